//! The decoders of this crate that read bytes from outside, for `fuzz/`. Only with the feature `fuzzing`; not part of the
//! interface.

use kolo_rendezvous::fuzzing::{Decoder, Seed};

use crate::{member_name, node_of, roll, talk, words};

/// What a target is called, and its decoder.
pub const TARGETS: &[(&str, Decoder)] = &[("membership", membership)];

/// What launchers and members read of each other.
pub fn membership(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = serde_json::from_str::<talk::Up>(&text);
    let _ = serde_json::from_str::<talk::Down>(&text);
    let _ = serde_json::from_str::<roll::Roll>(&text);
    let _ = serde_json::from_str::<words::Arrival>(&text);
    let _ = serde_json::from_str::<words::Seat>(&text);
    let _ = node_of(&text);
}

/// Good bytes for every target, under the names of their files.
pub fn seeds() -> Vec<Seed> {
    let formed =
        talk::Formed { generation: 1, members: vec![member_name(0, 0, 0)], reason: "the job begins".into() };
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 29500));
    let hello = talk::Hello { address, node: Some(1), starts: 2, back: Some(formed) };
    vec![("membership", "launcher", serde_json::to_vec(&talk::Up::Hello(hello)).unwrap_or_default())]
}
