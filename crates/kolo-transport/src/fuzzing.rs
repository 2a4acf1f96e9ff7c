//! Decoders of this crate for bytes from outside, for `fuzz/`. Not part of the public interface.

use std::cell::Cell;
use std::time::Duration;

use kolo_rendezvous::fuzzing::{Canned, Decoder, Seed, handshake, identity, session};
use kolo_rendezvous::secure::{Protocol, Session};
use kolo_rendezvous::{Error, Liveness};
use kolo_schedule::{DType, Op, Rank};

use crate::connect;
use crate::fingerprint::{Call, CollectiveKind, Fingerprint};
use crate::transport::fuzzing::{ConnectionId, HEADER, Header, Sealed};
use crate::transport::slot::{self, Announcement, BLOCK, BLOCK_LEN, INBOX};
use crate::wait::{WaitContext, WaitMode};

/// Names of the fuzzing targets, and their decoders.
pub const TARGETS: &[(&str, Decoder)] = &[
    ("peer_info", peer_info),
    ("hello", hello),
    ("record", record),
    ("tcp_header", tcp_header),
    ("mailbox_slot", mailbox_slot),
];

/// Decodes another rank's entry in the store: its addresses, or its obstacles.
pub fn peer_info(bytes: &[u8]) {
    connect::decode_for_fuzzing(bytes);
}

/// Decodes the first bytes of a connection without a token, and the caller's identity in them.
pub fn hello(bytes: &[u8]) {
    for purpose in [Protocol::Store, Protocol::Data] {
        if let Some(identity) = identity(bytes, purpose) {
            ConnectionId::decode(&identity);
        }
    }
    ConnectionId::decode(bytes);
}

/// Decodes encrypted records. The first byte sets how much is read at once.
pub fn record(bytes: &[u8]) {
    let Some((at_once, bytes)) = bytes.split_first() else { return };
    // A handshake takes thirty times as long as all the rest.
    thread_local!(static SESSION: Cell<Option<Session>> = const { Cell::new(None) });
    let mut channel = Sealed::new(Canned(bytes), SESSION.take().unwrap_or_else(session));
    let mut into = vec![0; 1 + 257 * usize::from(*at_once)];
    while let Ok(1..) = channel.read(&mut into) {}
    let mut session = channel.into_session();
    session.rewind();
    SESSION.set(Some(session));
}

/// Decodes the header of a TCP message.
pub fn tcp_header(bytes: &[u8]) {
    let Some(header) = bytes.first_chunk::<HEADER>() else { return };
    let liveness = Liveness::new(2);
    let header = Header::decode(header);
    let _ = header.under_way();
    if let Err(error) = header.check(Rank(1), 12, &context(&liveness)) {
        let _ = error.to_string();
    }
}

/// Decodes a mailbox slot, in which another process announces where its message lies. The first two bytes
/// are the expected length, the next four are the file, then the words of a slot follow. The call is
/// given as its difference from the right one, so zeros are right.
pub fn mailbox_slot(bytes: &[u8]) {
    let Some((expected, bytes)) = bytes.split_first_chunk::<2>() else { return };
    let Some((file, bytes)) = bytes.split_first_chunk::<4>() else { return };
    let Some(words) = bytes.first_chunk::<{ 8 * SLOT_WORDS }>() else { return };
    let word = |n: usize| u64::from_le_bytes(std::array::from_fn(|i| words[8 * n + i]));
    let (liveness, [first, second]) = (Liveness::new(2), call().words());
    let announcement = Announcement {
        file: i32::from_le_bytes(*file),
        len: word(0),
        offset: word(1),
        bytes: word(2),
        call: [first ^ word(3), second ^ word(4)],
        within: [word(5), word(6)],
    };
    let expected = usize::from(u16::from_le_bytes(*expected));
    // After a rank's memory is gone the decoder waits for the report of its failure; here that has arrived.
    liveness.fail(Error::Died { rank: Rank(1) });
    if let Err(error) = slot::receive(&announcement, expected, &context(&liveness)) {
        let _ = error.to_string();
    }
}

/// Number of words of a slot, as [`mailbox_slot`] reads them.
const SLOT_WORDS: usize = 7;

/// Wait context of rank 0 of two.
fn context(liveness: &Liveness) -> WaitContext<'_> {
    WaitContext::new(Rank(0), &[Rank(0), Rank(1)], call(), WaitMode::Blocking, Duration::ZERO, liveness)
}

fn call() -> Fingerprint {
    let (kind, op, dtype) = (CollectiveKind::AllReduce, Op::Sum, DType::F32);
    Fingerprint::new(&Call { kind, op, root: None, readers: None, dtype, elements: 3, algorithm: 0 }).after(7)
}

/// Valid bytes for every target, with the names of their files.
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
    let slot = |expected: u16, file: i32, len: usize, offset: u64, within: u64| {
        let words = [len as u64, offset, u64::from(expected), 0, 0, within, 0];
        let words = words.iter().flat_map(|word: &u64| word.to_le_bytes());
        expected.to_le_bytes().into_iter().chain(file.to_le_bytes()).chain(words).collect::<Vec<u8>>()
    };
    vec![
        ("mailbox_slot", "in_slot", slot(12, -2, 0, 0, 7)),
        ("mailbox_slot", "longer_than_its_slot", slot(64, -2, 0, 0, 7)),
        ("mailbox_slot", "in_block", slot(4096, BLOCK, BLOCK_LEN, 8192, 0)),
        ("mailbox_slot", "in_another_file", slot(64, INBOX, 64, 0, 0)),
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
        kolo_testing::assert_seeds_are_taken(TARGETS, &seeds);
    }

    #[test]
    fn a_message_lies_in_its_slot_or_in_a_block_of_its_sender() {
        let received = |file, len: usize, offset, bytes: usize| {
            let liveness = Liveness::new(2);
            // If a slot's message lies in a file, the first word gives the block's start in that file.
            let (len, within) = (len as u64, [if file == -2 { 7 } else { 0 }, 0]);
            let announcement =
                Announcement { file, len, offset, bytes: bytes as u64, call: call().words(), within };
            slot::receive(&announcement, bytes, &context(&liveness)).map_err(|error| error.to_string())
        };
        assert_eq!(received(-2, 0, 0, 12), Ok(7), "the sum of its bytes");
        assert!(received(-2, 0, 0, 17).unwrap_err().contains("17 bytes lies in a slot of 16"));
        assert_eq!(received(BLOCK, BLOCK_LEN, 8192, 4096), Ok(0));
        assert!(received(BLOCK, BLOCK_LEN, 8193, 4096).unwrap_err().contains("outside of its block"));
        assert!(received(BLOCK, BLOCK_LEN + 1, 0, 64).unwrap_err().contains("are announced"));
        assert!(received(INBOX, 64, 0, 64).unwrap_err().contains("no shared memory of Kolo's"));
    }
}
