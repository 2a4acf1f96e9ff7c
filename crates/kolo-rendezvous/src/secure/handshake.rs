//! The handshake: the messages that precede a connection's payload.
//!
//! ```text
//!             with a token                                    without
//! initiator   opening (8 bytes), message 1: `psk, e`     →    opening, identity   →
//! responder   ←   message 2: `e, ee`
//! initiator   identity, as the session's first record    →
//! responder   ←   "accepted", as its first record             ←   "accepted"
//! ```
//!
//! The responder may send a [`RejectReason`] instead of its message. An attacker who recorded message 1 can
//! replay it, so only the initiator's record authenticates the initiator: its key depends on the responder's
//! fresh ephemeral key. The opening is part of the handshake's hash, so nobody in between can change
//! version, protocol or protection. Only "accepted" tells the initiator that the listener has not dropped it
//! for too many handshakes, and that it need not connect again.

use std::io::{self, Read, Write};

use snow::{Builder, HandshakeState};

use super::access::Access;
use super::error::{HandshakeError, RejectReason};
use super::record::Session;
use super::token::Token;

/// The Noise suite: `ring` runs AES-256-GCM at several gigabytes a second with AES instructions.
const SUITE: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";

/// Maximum length of a handshake message. A record's authentication leaves 240 bytes for an identity.
const LONGEST: usize = 256;

/// Byte that means "accepted". After a length of 0 comes one byte: this one, or the reason of a rejection.
const ACCEPTED: u8 = b'k';

/// Protocol of a connection after its handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Protocol {
    /// Requests to the store.
    Store = b's',
    /// Messages of collectives.
    Data = b'd',
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Protection {
    /// No protection.
    Plain = b'p',
    /// The initiator proves that it knows the token.
    Proved = b'n',
    /// The initiator proves that it knows the token, and all later bytes are encrypted.
    Sealed = b'e',
}

impl Access {
    fn protection(&self, protocol: Protocol) -> Protection {
        match (&self.token, protocol) {
            (None, _) => Protection::Plain,
            // The store's messages are few and decide which processes connect, so they are always encrypted.
            (Some(_), Protocol::Store) => Protection::Sealed,
            (Some(_), Protocol::Data) if self.encrypt => Protection::Sealed,
            (Some(_), Protocol::Data) => Protection::Proved,
        }
    }
}

/// The first bytes of every connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Opening {
    protocol: Protocol,
    protection: Protection,
}

impl Opening {
    fn encode(self) -> [u8; 8] {
        // The fifth byte is the protocol's version.
        [b'k', b'o', b'l', b'o', 1, self.protocol as u8, self.protection as u8, b'\n']
    }

    fn decode(bytes: [u8; 8]) -> Option<Opening> {
        let protocol = [Protocol::Store, Protocol::Data].into_iter().find(|p| *p as u8 == bytes[5])?;
        let protection = [Protection::Plain, Protection::Proved, Protection::Sealed]
            .into_iter()
            .find(|m| *m as u8 == bytes[6])?;
        let opening = Opening { protocol, protection };
        (opening.encode() == bytes).then_some(opening)
    }

    /// Checks that a responder that demands `demanded` continues after this opening.
    fn check(self, demanded: Opening) -> Result<(), RejectReason> {
        match (self.protection, demanded.protection) {
            _ if self.protocol != demanded.protocol => Err(RejectReason::Protocol),
            (offered, demanded) if offered == demanded => Ok(()),
            (Protection::Plain, _) => Err(RejectReason::TokenMissing),
            (_, Protection::Plain) => Err(RejectReason::TokenUnknown),
            _ => Err(RejectReason::Encryption),
        }
    }
}

/// Runs the connecting side of the handshake. `identity` is sent to the responder, at most 240 bytes.
/// Returns the session for all further bytes, if the connection stays encrypted.
///
/// # Errors
///
/// The responder rejected this side or does not belong to this job, or the connection broke.
pub fn initiate(
    stream: &mut (impl Read + Write),
    access: &Access,
    protocol: Protocol,
    identity: &[u8],
) -> Result<Option<Session>, HandshakeError> {
    initiate_with(stream, access, protocol, identity, None)
}

/// Runs [`initiate`], with a fixed key if a fuzz target must see the same bytes each time.
pub(crate) fn initiate_with(
    stream: &mut (impl Read + Write),
    access: &Access,
    protocol: Protocol,
    identity: &[u8],
    fixed: Option<&[u8; 32]>,
) -> Result<Option<Session>, HandshakeError> {
    let protection = access.protection(protocol);
    let opening = Opening { protocol, protection }.encode();
    let Some(token) = &access.token else {
        stream.write_all(&[&opening[..], &framed(identity)].concat())?;
        return match read_answer(stream)? {
            None => Ok(None),
            Some(_) => Err(HandshakeError::Foreign),
        };
    };
    let mut noise = initiator(token, &opening, fixed);
    let first = next_message(&mut noise).ok_or(HandshakeError::Foreign)?;
    stream.write_all(&[&opening[..], &framed(&first)].concat())?;
    let second = read_answer(stream)?.ok_or(HandshakeError::Foreign)?;
    noise.read_message(&second, &mut [0; LONGEST]).map_err(|_| HandshakeError::Impostor)?;
    let mut session = session(noise).ok_or(HandshakeError::Foreign)?;
    let mut frame = Vec::new();
    session.seal(identity, &mut frame)?;
    stream.write_all(&frame)?;
    let accepted = read_answer(stream)?.ok_or(HandshakeError::Foreign)?;
    session.open(&accepted, &mut [0; LONGEST]).map_err(|_| HandshakeError::Impostor)?;
    Ok((protection == Protection::Sealed).then_some(session))
}

/// An initiator that has proved its knowledge of the token, if there is one, and awaits "accepted".
pub struct Authenticated {
    /// Identity that the initiator sent about itself.
    pub identity: Vec<u8>,
    session: Option<Session>,
    protection: Protection,
}

kolo_schedule::opaque_debug!(Authenticated);

impl Authenticated {
    /// Sends "accepted" to the initiator. Returns the session for all further bytes, if they are encrypted.
    ///
    /// # Errors
    ///
    /// The connection broke.
    pub fn accept(self, stream: &mut impl Write) -> io::Result<Option<Session>> {
        let Some(mut session) = self.session else {
            stream.write_all(&[0, 0, ACCEPTED])?;
            return Ok(None);
        };
        let mut frame = Vec::new();
        session.seal(&[], &mut frame)?;
        stream.write_all(&frame)?;
        Ok((self.protection == Protection::Sealed).then_some(session))
    }
}

/// Runs the listening side of the handshake, up to [`Authenticated::accept`].
///
/// # Errors
///
/// The reason for rejecting the initiator, which has been sent to it.
pub fn respond(
    stream: &mut (impl Read + Write),
    access: &Access,
    protocol: Protocol,
) -> Result<Authenticated, RejectReason> {
    respond_with(stream, access, protocol, None).inspect_err(|reason| {
        // The initiator may be gone or not read; it is rejected either way.
        let _ = stream.write_all(&[0, 0, *reason as u8]);
    })
}

/// Runs [`respond`], with a fixed key if a fuzz target must see the same bytes each time.
pub(crate) fn respond_with(
    stream: &mut (impl Read + Write),
    access: &Access,
    protocol: Protocol,
    fixed: Option<&[u8; 32]>,
) -> Result<Authenticated, RejectReason> {
    let protection = access.protection(protocol);
    let mut opening = [0; 8];
    stream.read_exact(&mut opening)?;
    Opening::decode(opening).ok_or(RejectReason::Stranger)?.check(Opening { protocol, protection })?;
    let Some(token) = &access.token else {
        return Ok(Authenticated { identity: read_frame(stream)?, session: None, protection });
    };
    let mut noise = responder(token, &opening, fixed);
    let first = read_frame(stream)?;
    noise.read_message(&first, &mut [0; LONGEST]).map_err(|_| RejectReason::TokenWrong)?;
    // This fails only if the initiator's key is invalid.
    let second = next_message(&mut noise).ok_or(RejectReason::Stranger)?;
    stream.write_all(&framed(&second))?;
    let mut session = session(noise).ok_or(RejectReason::Stranger)?;
    let proof = read_frame(stream)?;
    let mut identity = vec![0; LONGEST];
    // Only this proves that the initiator knows the token: message 1 could have been replayed.
    let long = session.open(&proof, &mut identity).map_err(|_| RejectReason::TokenWrong)?;
    identity.truncate(long);
    Ok(Authenticated { identity, session: Some(session), protection })
}

fn builder<'a>(token: &'a Token, opening: &'a [u8; 8], fixed: Option<&'a [u8; 32]>) -> Builder<'a> {
    let suite = SUITE.parse().expect("the suite's name is written in the source");
    let builder = Builder::new(suite)
        .psk(0, token.key())
        .and_then(|builder| builder.prologue(opening))
        .expect("key and prologue are set once");
    match fixed {
        Some(key) => builder.fixed_ephemeral_key_for_testing_only(key),
        None => builder,
    }
}

fn initiator(token: &Token, opening: &[u8; 8], fixed: Option<&[u8; 32]>) -> HandshakeState {
    builder(token, opening, fixed)
        .build_initiator()
        .expect("the suite needs the key that is set, and no other")
}

fn responder(token: &Token, opening: &[u8; 8], fixed: Option<&[u8; 32]>) -> HandshakeState {
    builder(token, opening, fixed)
        .build_responder()
        .expect("the suite needs the key that is set, and no other")
}

/// Returns this side's next handshake message, with an empty payload.
fn next_message(noise: &mut HandshakeState) -> Option<Vec<u8>> {
    let mut message = vec![0; LONGEST];
    let long = noise.write_message(&[], &mut message).ok()?;
    message.truncate(long);
    Some(message)
}

fn session(noise: HandshakeState) -> Option<Session> {
    noise.into_transport_mode().ok().map(Session::new)
}

fn framed(bytes: &[u8]) -> Vec<u8> {
    debug_assert!(bytes.len() <= LONGEST);
    let mut frame = (bytes.len() as u16).to_le_bytes().to_vec();
    frame.extend(bytes);
    frame
}

/// Reads bytes with a length prefix. A record of the session has the same form.
fn read_frame(stream: &mut impl Read) -> Result<Vec<u8>, RejectReason> {
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let len = usize::from(u16::from_le_bytes(len));
    if len > LONGEST {
        return Err(RejectReason::Stranger);
    }
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// Reads the responder's answer: a message, or "accepted" (`None`).
fn read_answer(stream: &mut impl Read) -> Result<Option<Vec<u8>>, HandshakeError> {
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let len = usize::from(u16::from_le_bytes(len));
    if len > LONGEST {
        return Err(HandshakeError::Foreign);
    }
    let mut bytes = vec![0; len.max(1)];
    stream.read_exact(&mut bytes)?;
    match (len, bytes[0]) {
        (0, ACCEPTED) => Ok(None),
        (0, code) => {
            Err(RejectReason::from_code(code).map_or(HandshakeError::Foreign, HandshakeError::Rejected))
        }
        _ => Ok(Some(bytes)),
    }
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
pub(super) mod tests;
