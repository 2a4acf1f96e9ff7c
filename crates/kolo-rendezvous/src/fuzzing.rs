//! The decoders of this crate that read bytes from outside, for `fuzz/`. They exist only in tests and with
//! the feature `fuzzing`, and are not part of the public API. Keys are fixed, so that seeds get past the
//! handshake and findings can be reproduced.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::Duration;

use kolo_schedule::Rank;

use crate::secure::handshake::{initiate_with, respond_with};
use crate::secure::{Access, Protocol, Session, Token};
use crate::store::wire::{self, Reply, Request};

const INITIATOR_KEY: &[u8; 32] = b"the caller's key, always the sam";
const RESPONDER_KEY: &[u8; 32] = b"the listener's key, as always...";

/// A decoder that takes any bytes without a panic.
pub type Decoder = fn(&[u8]);

/// Name of a target, name of a seed, and the seed's bytes.
pub type Seed = (&'static str, &'static str, Vec<u8>);

/// Names of the targets, and their decoders.
pub const TARGETS: &[(&str, Decoder)] = &[
    ("store_request", store_request),
    ("store_reply", store_reply),
    ("handshake_responder", handshake_responder),
    ("handshake_initiator", handshake_initiator),
];

/// Decodes the messages that the store reads from a rank.
pub fn store_request(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(request) = wire::read::<Request>(&mut rest) {
        if let Request::Failed { error } | Request::Stalled { error } = request {
            let _ = (error.to_string(), error.culprit());
        }
    }
}

/// Decodes the messages that a rank reads from the store.
pub fn store_reply(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(reply) = wire::read::<Reply>(&mut rest) {
        if let Reply::Failed { error } = reply {
            let _ = (error.to_string(), error.culprit());
        }
    }
}

/// Runs the handshake's responder.
pub fn handshake_responder(bytes: &[u8]) {
    let protocol = Protocol::Data;
    if let Ok(peer) = respond_with(&mut Canned(bytes), &access(), protocol, Some(RESPONDER_KEY)) {
        let _ = peer.accept(&mut io::sink());
    }
}

/// Runs the handshake's initiator, with a token and without.
pub fn handshake_initiator(bytes: &[u8]) {
    for access in [access(), Access::default()] {
        let _ = initiate_with(&mut Canned(bytes), &access, Protocol::Data, b"rank", Some(INITIATOR_KEY));
    }
}

/// Returns the identity that a responder without a token reads; `None` if it rejects the bytes.
pub fn identity(bytes: &[u8], protocol: Protocol) -> Option<Vec<u8>> {
    respond_with(&mut Canned(bytes), &Access::default(), protocol, None).ok().map(|peer| peer.identity)
}

/// Returns the responder's session of a handshake that is always the same.
pub fn session() -> Session {
    // The initiator's bytes are recorded, so the session needs no initiator.
    static SENT: OnceLock<Vec<u8>> = OnceLock::new();
    let sent = SENT.get_or_init(|| handshake().0);
    let peer = respond_with(&mut Canned(sent), &access(), Protocol::Data, Some(RESPONDER_KEY));
    let session = peer.ok().and_then(|peer| peer.accept(&mut io::sink()).ok().flatten());
    session.expect("a handshake that is known to work")
}

fn access() -> Access {
    let token = Token::new("a token that is no secret").expect("long enough");
    Access { token: Some(token), encrypt: true }
}

/// A stream that reads the given bytes and ignores writes.
#[derive(Debug)]
pub struct Canned<'a>(pub &'a [u8]);

impl Read for Canned<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Canned<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stream that records the bytes that are read from it and written to it.
struct Recorded {
    stream: UnixStream,
    received: Vec<u8>,
    sent: Vec<u8>,
}

impl Read for Recorded {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(into)?;
        self.received.extend(&into[..count]);
        Ok(count)
    }
}

impl Write for Recorded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.stream.write(bytes)?;
        self.sent.extend(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs one handshake. Returns the initiator's bytes, the responder's bytes, and the initiator's session.
pub fn handshake() -> (Vec<u8>, Vec<u8>, Session) {
    let (theirs, mut ours) = UnixStream::pair().expect("the system has sockets");
    let initiating = std::thread::spawn(move || {
        let mut stream = Recorded { stream: theirs, received: Vec::new(), sent: Vec::new() };
        let session = initiate_with(
            &mut stream,
            &access(),
            Protocol::Data,
            &[1, 0, 0, 0, 0, 0, 0, 0],
            Some(INITIATOR_KEY),
        );
        (stream.sent, stream.received, session)
    });
    let peer = respond_with(&mut ours, &access(), Protocol::Data, Some(RESPONDER_KEY)).expect("one token");
    peer.accept(&mut ours).expect("the initiator is there");
    let (sent, received, session) = initiating.join().expect("no panic");
    (sent, received, session.expect("one token").expect("encryption is asked for"))
}

fn framed(messages: &[impl serde::Serialize]) -> Vec<u8> {
    let mut bytes = Vec::new();
    messages.iter().for_each(|message| wire::write(&mut bytes, message).expect("a vector takes all"));
    bytes
}

/// Returns valid bytes for every target, with their file names.
pub fn seeds() -> Vec<Seed> {
    let error = || crate::Error::Timeout {
        rank: Rank(1),
        during: "all_reduce".into(),
        waited: Duration::from_secs(1),
    };
    let requests = [
        Request::Set { key: "card/0".into(), value: "{}".into() },
        Request::Get { key: "card/1".into(), wait_ms: 500 },
        Request::Take { key: "in/1".into(), wait_ms: 0 },
        Request::Gather { topic: "peer".into(), from: 0, count: 4, wait_ms: 500 },
        Request::Will { key: "in/1".into(), value: "{}".into() },
        Request::Monitor { rank: Rank(1) },
        Request::Waiting { on: Some(Rank(2)) },
        Request::Stalled { error: error() },
        Request::Failed { error: error() },
        Request::Leave,
    ];
    let replies = [
        Reply::Value(Some("{}".into())),
        Reply::Value(None),
        Reply::Values(vec!["{}".into(), "{}".into()]),
        Reply::Absent { missing: vec![1, 3] },
        Reply::Kept,
        Reply::Refused { why: "full".into() },
        Reply::Monitored,
        Reply::Probe,
        Reply::Left { rank: Rank(1) },
        Reply::Failed { error: error() },
    ];
    let (initiator_sends, responder_sends, _) = handshake();
    vec![
        ("store_request", "all", framed(&requests)),
        ("store_reply", "all", framed(&replies)),
        ("handshake_responder", "whole", initiator_sends),
        ("handshake_initiator", "whole", responder_sends),
        ("handshake_initiator", "accepted", vec![0, 0, b'k']),
        ("handshake_initiator", "rejected", vec![0, 0, b'w']),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_seeds_and_takes_them() {
        let seeds = seeds();
        kolo_testing::assert_seeds_are_taken(TARGETS, &seeds);
        let whole = |name: &str| seeds.iter().find(|(target, _, _)| *target == name).unwrap().2.clone();
        let listener = respond_with(
            &mut Canned(&whole("handshake_responder")),
            &access(),
            Protocol::Data,
            Some(RESPONDER_KEY),
        );
        assert_eq!(listener.ok().map(|peer| peer.identity), Some(vec![1, 0, 0, 0, 0, 0, 0, 0]));
        let caller = whole("handshake_initiator");
        let called = initiate_with(
            &mut Canned(&caller),
            &access(),
            Protocol::Data,
            &[1, 0, 0, 0, 0, 0, 0, 0],
            Some(INITIATOR_KEY),
        );
        assert!(called.is_ok(), "seeds reach behind the handshake");
    }
}
