//! What is said before the first byte of a connection's own.
//!
//! ```text
//!             with a token                                  without
//! caller      opening (8 bytes), message 1: `psk, e`   →    opening, who it is   →
//! listener    ←   message 2: `e, ee`
//! caller      who it is, as the session's first record →
//! listener    ←   welcome, as its first record              ←   welcome
//! ```
//!
//! Instead of its part the listener may send a refusal. Message 1 can be repeated by whoever recorded it. The
//! caller counts as authenticated only by its record: that is sealed under a key that the listener's own fresh part
//! has gone into. The opening is part of the handshake's hash, so nobody in between can change version, purpose or
//! mode. Only by the welcome the caller knows that it has not been pushed aside in a crowd, and need not call again.

use std::io::{self, Read, Write};

use snow::{Builder, HandshakeState};

use super::access::Access;
use super::record::Session;
use super::refusal::{CallError, Refusal};
use super::token::Token;

/// AES-256-GCM, because `ring` runs it at several gigabytes a second on any processor with AES instructions.
const SUITE: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";

/// Longest message of the handshake, and longest word on who is calling.
const LONGEST: usize = 256;

/// Takes the place of a message's length of 0: no message, but one byte that says why, or this.
const WELCOME: u8 = b'k';

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Purpose {
    Store = b's',
    Data = b'd',
}

/// How a connection is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Mode {
    /// Not at all.
    Plain = b'p',
    /// The caller proves that it knows the token.
    Proved = b'n',
    /// And everything after is sealed.
    Sealed = b'e',
}

impl Access {
    fn mode(&self, purpose: Purpose) -> Mode {
        match (&self.token, purpose) {
            (None, _) => Mode::Plain,
            // What the store says is little and decides who talks to whom: always sealed.
            (Some(_), Purpose::Store) => Mode::Sealed,
            (Some(_), Purpose::Data) if self.encrypt => Mode::Sealed,
            (Some(_), Purpose::Data) => Mode::Proved,
        }
    }
}

/// The first bytes of every connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Opening {
    purpose: Purpose,
    mode: Mode,
}

impl Opening {
    fn encode(self) -> [u8; 8] {
        // The fifth byte is the protocol's version.
        [b'k', b'o', b'l', b'o', 1, self.purpose as u8, self.mode as u8, b'\n']
    }

    fn decode(bytes: [u8; 8]) -> Option<Opening> {
        let purpose = [Purpose::Store, Purpose::Data].into_iter().find(|p| *p as u8 == bytes[5])?;
        let mode = [Mode::Plain, Mode::Proved, Mode::Sealed].into_iter().find(|m| *m as u8 == bytes[6])?;
        let opening = Opening { purpose, mode };
        (opening.encode() == bytes).then_some(opening)
    }

    /// Whether a listener lets a caller with this opening go on.
    fn check(self, demanded: Opening) -> Result<(), Refusal> {
        match (self.mode, demanded.mode) {
            _ if self.purpose != demanded.purpose => Err(Refusal::Purpose),
            (brought, demanded) if brought == demanded => Ok(()),
            (Mode::Plain, _) => Err(Refusal::TokenMissing),
            (_, Mode::Plain) => Err(Refusal::TokenUnknown),
            _ => Err(Refusal::Encryption),
        }
    }
}

/// The calling side: says who it is. Returns the session that all further bytes belong into, if they do.
pub fn call(
    stream: &mut (impl Read + Write),
    access: &Access,
    purpose: Purpose,
    identity: &[u8],
) -> Result<Option<Session>, CallError> {
    call_with(stream, access, purpose, identity, None)
}

/// [`call`], with a key that is not fresh where a fuzz target must see the same bytes each time.
pub(crate) fn call_with(
    stream: &mut (impl Read + Write),
    access: &Access,
    purpose: Purpose,
    identity: &[u8],
    fixed: Option<&[u8; 32]>,
) -> Result<Option<Session>, CallError> {
    let mode = access.mode(purpose);
    let opening = Opening { purpose, mode }.encode();
    let Some(token) = &access.token else {
        stream.write_all(&[&opening[..], &framed(identity)].concat())?;
        return match read_answer(stream)? {
            None => Ok(None),
            Some(_) => Err(CallError::Foreign),
        };
    };
    let mut noise = initiator(token, &opening, fixed);
    let first = next_message(&mut noise).ok_or(CallError::Foreign)?;
    stream.write_all(&[&opening[..], &framed(&first)].concat())?;
    let second = read_answer(stream)?.ok_or(CallError::Foreign)?;
    noise.read_message(&second, &mut [0; LONGEST]).map_err(|_| CallError::Impostor)?;
    let mut session = session(noise).ok_or(CallError::Foreign)?;
    let mut frame = Vec::new();
    session.seal(identity, &mut frame)?;
    stream.write_all(&frame)?;
    let welcome = read_answer(stream)?.ok_or(CallError::Foreign)?;
    session.open(&welcome, &mut [0; LONGEST]).map_err(|_| CallError::Impostor)?;
    Ok((mode == Mode::Sealed).then_some(session))
}

/// A caller that may come in, and is to be told so.
pub struct Heard {
    /// Who it says it is.
    pub identity: Vec<u8>,
    session: Option<Session>,
    mode: Mode,
}

impl Heard {
    /// Tells it. Returns the session that all further bytes belong into, if they do.
    pub fn welcome(self, stream: &mut impl Write) -> io::Result<Option<Session>> {
        let Some(mut session) = self.session else {
            stream.write_all(&[0, 0, WELCOME])?;
            return Ok(None);
        };
        let mut frame = Vec::new();
        session.seal(&[], &mut frame)?;
        stream.write_all(&frame)?;
        Ok((self.mode == Mode::Sealed).then_some(session))
    }
}

/// The listening side, up to the welcome.
pub fn answer(stream: &mut (impl Read + Write), access: &Access, purpose: Purpose) -> Result<Heard, Refusal> {
    answer_with(stream, access, purpose, None).inspect_err(|refusal| {
        // The caller may be gone, or not listen; it is refused either way.
        let _ = stream.write_all(&[0, 0, *refusal as u8]);
    })
}

/// [`answer`], with a key that is not fresh where a fuzz target must see the same bytes each time.
pub(crate) fn answer_with(
    stream: &mut (impl Read + Write),
    access: &Access,
    purpose: Purpose,
    fixed: Option<&[u8; 32]>,
) -> Result<Heard, Refusal> {
    let mode = access.mode(purpose);
    let mut opening = [0; 8];
    stream.read_exact(&mut opening)?;
    Opening::decode(opening).ok_or(Refusal::Stranger)?.check(Opening { purpose, mode })?;
    let Some(token) = &access.token else {
        return Ok(Heard { identity: read_frame(stream)?, session: None, mode });
    };
    let mut noise = responder(token, &opening, fixed);
    let first = read_frame(stream)?;
    noise.read_message(&first, &mut [0; LONGEST]).map_err(|_| Refusal::TokenWrong)?;
    // It fails only on a key of the caller's that is none.
    let second = next_message(&mut noise).ok_or(Refusal::Stranger)?;
    stream.write_all(&framed(&second))?;
    let mut session = session(noise).ok_or(Refusal::Stranger)?;
    let proof = read_frame(stream)?;
    let mut identity = vec![0; LONGEST];
    // Only now the caller has proved that it knows the token and is here: see the module's text.
    let long = session.open(&proof, &mut identity).map_err(|_| Refusal::TokenWrong)?;
    identity.truncate(long);
    Ok(Heard { identity, session: Some(session), mode })
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

/// The handshake's next message of this side, which carries nothing besides.
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

/// Bytes behind their length. A record of the session has the same form.
fn read_frame(stream: &mut impl Read) -> Result<Vec<u8>, Refusal> {
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let len = usize::from(u16::from_le_bytes(len));
    if len > LONGEST {
        return Err(Refusal::Stranger);
    }
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// What the listener says to an opening: a message, or welcome (`None`), or why not.
fn read_answer(stream: &mut impl Read) -> Result<Option<Vec<u8>>, CallError> {
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let len = usize::from(u16::from_le_bytes(len));
    if len > LONGEST {
        return Err(CallError::Foreign);
    }
    let mut bytes = vec![0; len.max(1)];
    stream.read_exact(&mut bytes)?;
    match (len, bytes[0]) {
        (0, WELCOME) => Ok(None),
        (0, code) => Err(Refusal::from_code(code).map_or(CallError::Foreign, CallError::Refused)),
        _ => Ok(Some(bytes)),
    }
}

#[cfg(test)]
#[path = "handshake_tests.rs"]
pub mod tests;
