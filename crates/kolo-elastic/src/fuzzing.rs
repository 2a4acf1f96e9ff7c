//! The decoders of this crate that read bytes from outside, for `fuzz/`. They exist only in tests and with
//! the feature `fuzzing`, and are not part of the interface.

use kolo_rendezvous::fuzzing::{Decoder, Seed};

use crate::generation::Formed;
use crate::launcher_protocol::{Hello, ToFollower, ToLeader};
use crate::launcher_view::LauncherView;
use crate::member_name::{member_name, node_rank_of};
use crate::worker_protocol::{Arrival, Reply};

/// Fuzz targets of this crate: name and decoder of each.
pub const TARGETS: &[(&str, Decoder)] = &[("membership", membership)];

/// Decodes the messages of launchers and members.
pub fn membership(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = serde_json::from_str::<ToLeader>(&text);
    let _ = serde_json::from_str::<ToFollower>(&text);
    let _ = serde_json::from_str::<LauncherView>(&text);
    let _ = serde_json::from_str::<Arrival>(&text);
    let _ = serde_json::from_str::<Reply>(&text);
    let _ = node_rank_of(&text);
}

/// Valid inputs for every target, with the names of their files.
pub fn seeds() -> Vec<Seed> {
    let (members, reason) = (vec![member_name(0, 0, 0)], "the job begins".into());
    let identities = members.clone();
    let evicted = Vec::new();
    let formed = Formed { generation: 1, leader: 1, members, identities, evicted, reason, state_held: true };
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 29500));
    let hello = Hello {
        address,
        node_rank: Some(1),
        deferred_workers: 2,
        rejoins: Some(vec![formed]),
        left: [7].into(),
    };
    vec![("membership", "launcher", serde_json::to_vec(&ToLeader::Hello(hello)).unwrap_or_default())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_seeds_and_takes_them() {
        kolo_testing::assert_seeds_are_taken(TARGETS, &seeds());
    }
}
