//! The decoders of this crate that read bytes from outside, for `fuzz/`. Only with the feature `fuzzing`; not part of the
//! interface.
//!
//! Keys are fixed here, so that the seeds reach behind the handshake and a finding can be repeated.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::Duration;

use kolo_schedule::Rank;

use crate::secure::handshake::{answer_with, call_with};
use crate::secure::{Access, Purpose, Session, Token};
use crate::store::wire::{self, Reply, Request};

const CALLER_KEY: &[u8; 32] = b"the caller's key, always the sam";
const LISTENER_KEY: &[u8; 32] = b"the listener's key, as always...";

/// Takes any bytes without a panic, whatever it makes of them.
pub type Decoder = fn(&[u8]);

/// A target's name, the name of a seed, and the seed's bytes.
pub type Seed = (&'static str, &'static str, Vec<u8>);

/// What a target is called, and its decoder.
pub const TARGETS: &[(&str, Decoder)] = &[
    ("store_request", store_request),
    ("store_reply", store_reply),
    ("handshake_listener", handshake_listener),
    ("handshake_caller", handshake_caller),
];

/// What the store reads from a rank.
pub fn store_request(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(request) = wire::read::<Request>(&mut rest) {
        if let Request::Failed { error } | Request::Stalled { error } = request {
            let _ = (error.to_string(), error.culprit());
        }
    }
}

/// What a rank reads from the store.
pub fn store_reply(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(reply) = wire::read::<Reply>(&mut rest) {
        if let Reply::Failed { error } = reply {
            let _ = (error.to_string(), error.culprit());
        }
    }
}

/// The listener's side of the handshake.
pub fn handshake_listener(bytes: &[u8]) {
    let purpose = Purpose::Data;
    if let Ok(heard) = answer_with(&mut Canned(bytes), &access(), purpose, Some(LISTENER_KEY)) {
        let _ = heard.welcome(&mut io::sink());
    }
}

/// The caller's side of the handshake, with a token and without.
pub fn handshake_caller(bytes: &[u8]) {
    for access in [access(), Access::default()] {
        let _ = call_with(&mut Canned(bytes), &access, Purpose::Data, b"rank", Some(CALLER_KEY));
    }
}

/// Who says to be calling, where there is no token; `None` if the listener refuses.
pub fn identity(bytes: &[u8], purpose: Purpose) -> Option<Vec<u8>> {
    answer_with(&mut Canned(bytes), &Access::default(), purpose, None).ok().map(|heard| heard.identity)
}

/// The listener's session of a handshake that is always the same.
pub fn session() -> Session {
    // What the caller says is always the same, so the session needs no caller.
    static SAID: OnceLock<Vec<u8>> = OnceLock::new();
    let said = SAID.get_or_init(|| handshake().0);
    let heard = answer_with(&mut Canned(said), &access(), Purpose::Data, Some(LISTENER_KEY));
    let session = heard.ok().and_then(|heard| heard.welcome(&mut io::sink()).ok().flatten());
    session.expect("a handshake that is known to work")
}

fn access() -> Access {
    let token = Token::new("a token that is no secret").expect("long enough");
    Access { token: Some(token), encrypt: true }
}

/// A stream that says the given bytes and hears nothing.
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

/// Keeps what passes.
struct Recorded {
    stream: UnixStream,
    heard: Vec<u8>,
    said: Vec<u8>,
}

impl Read for Recorded {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(into)?;
        self.heard.extend(&into[..count]);
        Ok(count)
    }
}

impl Write for Recorded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.stream.write(bytes)?;
        self.said.extend(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One handshake: what the caller said, what the listener said, and the caller's session.
pub fn handshake() -> (Vec<u8>, Vec<u8>, Session) {
    let (theirs, mut ours) = UnixStream::pair().expect("the system has sockets");
    let calling = std::thread::spawn(move || {
        let mut stream = Recorded { stream: theirs, heard: Vec::new(), said: Vec::new() };
        let session =
            call_with(&mut stream, &access(), Purpose::Data, &[1, 0, 0, 0, 0, 0, 0, 0], Some(CALLER_KEY));
        (stream.said, stream.heard, session)
    });
    let heard = answer_with(&mut ours, &access(), Purpose::Data, Some(LISTENER_KEY)).expect("one token");
    heard.welcome(&mut ours).expect("the caller is there");
    let (said, heard, caller) = calling.join().expect("no panic");
    (said, heard, caller.expect("one token").expect("encryption is asked for"))
}

fn framed(messages: &[impl serde::Serialize]) -> Vec<u8> {
    let mut bytes = Vec::new();
    messages.iter().for_each(|message| wire::write(&mut bytes, message).expect("a vector takes all"));
    bytes
}

/// Good bytes for every target, under the names of their files.
pub fn seeds() -> Vec<Seed> {
    let error = || crate::Error::Timeout {
        rank: Rank(1),
        during: "all_reduce".into(),
        waited: Duration::from_secs(1),
    };
    let requests = [
        Request::Set { key: "card/0".into(), value: "{}".into() },
        Request::Get { key: "card/1".into(), wait_ms: 500 },
        Request::Will { key: "in/1".into(), value: "{}".into() },
        Request::Watch { rank: Rank(1) },
        Request::Waiting { on: Some(Rank(2)) },
        Request::Stalled { error: error() },
        Request::Failed { error: error() },
        Request::Bye,
    ];
    let replies = [
        Reply::Value(Some("{}".into())),
        Reply::Value(None),
        Reply::Kept,
        Reply::Refused { why: "full".into() },
        Reply::Watched,
        Reply::Probe,
        Reply::Left { rank: Rank(1) },
        Reply::Failed { error: error() },
    ];
    let (caller_says, listener_says, _) = handshake();
    vec![
        ("store_request", "all", framed(&requests)),
        ("store_reply", "all", framed(&replies)),
        ("handshake_listener", "whole", caller_says),
        ("handshake_caller", "whole", listener_says),
        ("handshake_caller", "welcome", vec![0, 0, b'k']),
        ("handshake_caller", "refused", vec![0, 0, b'w']),
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
        let whole = |name: &str| seeds.iter().find(|(target, _, _)| *target == name).unwrap().2.clone();
        let listener = answer_with(
            &mut Canned(&whole("handshake_listener")),
            &access(),
            Purpose::Data,
            Some(LISTENER_KEY),
        );
        assert_eq!(listener.ok().map(|heard| heard.identity), Some(vec![1, 0, 0, 0, 0, 0, 0, 0]));
        let caller = whole("handshake_caller");
        let called = call_with(
            &mut Canned(&caller),
            &access(),
            Purpose::Data,
            &[1, 0, 0, 0, 0, 0, 0, 0],
            Some(CALLER_KEY),
        );
        assert!(called.is_ok(), "seeds reach behind the handshake");
    }
}
