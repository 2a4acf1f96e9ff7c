//! The decoders of this crate that read bytes from outside, for `fuzz/`. Only with the feature `fuzzing`; not
//! part of the interface.

use std::cell::Cell;
use std::time::Duration;

use kolo_rendezvous::Liveness;
use kolo_rendezvous::fuzzing::{Canned, Decoder, Seed, handshake, identity, session};
use kolo_rendezvous::secure::Protocol;
use kolo_schedule::{DType, Op, Rank};

use crate::collective::CollectiveKind;
use crate::connect;
use crate::fingerprint::{Call, Fingerprint};
use crate::transport::fuzzing::{ConnectionId, HEADER, Header, Sealed};
use crate::wait::{WaitContext, WaitMode};

/// What a target is called, and its decoder.
pub const TARGETS: &[(&str, Decoder)] =
    &[("peer_info", peer_info), ("hello", hello), ("record", record), ("tcp_header", tcp_header)];

/// What a rank reads of another in the store: how it is reached, and why not.
pub fn peer_info(bytes: &[u8]) {
    connect::decode_for_fuzzing(bytes);
}

/// The first bytes of a connection where there is no token, and who it says is calling.
pub fn hello(bytes: &[u8]) {
    for purpose in [Protocol::Store, Protocol::Data] {
        if let Some(identity) = identity(bytes, purpose) {
            ConnectionId::decode(&identity);
        }
    }
    ConnectionId::decode(bytes);
}

/// Encrypted records. The first byte says how much is read at once.
pub fn record(bytes: &[u8]) {
    let Some((at_once, bytes)) = bytes.split_first() else { return };
    let mut channel = Sealed::new(Canned(bytes), session());
    let mut into = vec![0; 1 + 257 * usize::from(*at_once)];
    while let Ok(1..) = channel.read(&mut into) {}
}

/// What stands before every message over TCP.
pub fn tcp_header(bytes: &[u8]) {
    let Some(header) = bytes.first_chunk::<HEADER>() else { return };
    let liveness = Liveness::new(2);
    let wait = WaitContext {
        here: Rank(0),
        members: &[Rank(0), Rank(1)],
        call: call(),
        mode: WaitMode::Blocking,
        timeout: Duration::ZERO,
        began: Cell::new(None),
        liveness: &liveness,
    };
    let header = Header::decode(header);
    let _ = header.under_way();
    if let Err(error) = header.check(Rank(1), 12, &wait) {
        let _ = error.to_string();
    }
}

fn call() -> Fingerprint {
    let (kind, op, dtype) = (CollectiveKind::AllReduce, Op::Sum, DType::F32);
    Fingerprint::new(&Call { kind, op, root: None, dtype, elements: 3, algorithm: 0 }).after(7)
}

/// Good bytes for every target, under the names of their files.
pub fn seeds() -> Vec<Seed> {
    let (_, _, mut caller) = handshake();
    let mut records = vec![3];
    let mut frame = Vec::new();
    for plain in [&b"header"[..], &[7; 2000], &[]] {
        caller.seal(plain, &mut frame).expect("it fits");
        records.extend(&frame);
    }
    let hello = [&b"kolo\x01dp\n\x08\0"[..], &[2, 0, 0, 0, 0, 0, 0, 0]].concat();
    let header: Vec<u8> =
        call().words().into_iter().chain([12, 0]).flat_map(|word: u64| word.to_le_bytes()).collect();
    vec![
        ("peer_info", "peer", connect::seed_for_fuzzing().into()),
        ("peer_info", "obstacles", br#"{"shm":"no memory"}"#.into()),
        ("hello", "data", hello),
        ("hello", "store", b"kolo\x01sp\n\0\0".into()),
        ("record", "three", records),
        ("tcp_header", "right", header.clone()),
        ("tcp_header", "other_call", header.iter().map(|byte| byte ^ 0x51).collect()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_seeds_and_takes_them() {
        let seeds = seeds();
        for (name, decode) in TARGETS {
            let mut own = seeds.iter().filter(|(target, _, _)| target == name).peekable();
            assert!(own.peek().is_some(), "{name}");
            own.for_each(|(_, _, bytes)| decode(bytes));
        }
    }
}
