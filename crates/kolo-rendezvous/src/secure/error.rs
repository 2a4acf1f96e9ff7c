//! Errors of a handshake: the listener's reason, which it logs and sends, and the connecting side's error.

use std::io;

use serde::{Deserialize, Serialize};

/// A reason why a listener rejects a connection. The listener sends the discriminant without protection, so
/// it serves only as an explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[repr(u8)]
pub enum RejectReason {
    /// The first bytes are not those of this version of Kolo's protocol.
    #[error("it does not speak this version of Kolo's protocol")]
    Stranger = b'x',
    /// The connecting side has no token, but the job has one.
    #[error("it brings no token, but the job has one (KOLO_TOKEN, KOLO_TOKEN_FILE)")]
    TokenMissing = b't',
    /// The connecting side has a token, but the job has none.
    #[error("it brings a token, but the job has none (KOLO_TOKEN, KOLO_TOKEN_FILE)")]
    TokenUnknown = b'o',
    /// The connecting side does not know the token, or replays another side's messages.
    #[error("it does not know the job's token (KOLO_TOKEN, KOLO_TOKEN_FILE)")]
    TokenWrong = b'w',
    /// Only one of the two sides encrypts.
    #[error("only one of both sides encrypts; KOLO_ENCRYPT must be the same for all workers")]
    Encryption = b'e',
    /// A data connection reached the store, or vice versa.
    #[error("it belongs to another listener")]
    Protocol = b'p',
    /// The connecting side did not complete the handshake in time.
    #[error("it did not complete the handshake in time")]
    Late = b'l',
    /// The connection ended during the handshake.
    #[error("it ended within the handshake")]
    Ended = b'z',
    /// There are too many handshakes at once; the oldest is dropped.
    #[error("too many connections wait for their handshake")]
    Crowded = b'c',
}

impl RejectReason {
    pub(super) const ALL: [RejectReason; 9] = [
        RejectReason::Stranger,
        RejectReason::TokenMissing,
        RejectReason::TokenUnknown,
        RejectReason::TokenWrong,
        RejectReason::Encryption,
        RejectReason::Protocol,
        RejectReason::Late,
        RejectReason::Ended,
        RejectReason::Crowded,
    ];

    pub(super) fn from_code(code: u8) -> Option<RejectReason> {
        RejectReason::ALL.into_iter().find(|reason| *reason as u8 == code)
    }

    /// Returns true if the two sides have different tokens, or only one side has a token.
    pub fn is_of_token(self) -> bool {
        matches!(self, RejectReason::TokenMissing | RejectReason::TokenUnknown | RejectReason::TokenWrong)
    }

    /// Returns true if connecting again may help.
    fn is_transient(self) -> bool {
        matches!(self, RejectReason::Late | RejectReason::Ended | RejectReason::Crowded)
    }
}

impl From<io::Error> for RejectReason {
    fn from(cause: io::Error) -> RejectReason {
        match cause.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => RejectReason::Late,
            _ => RejectReason::Ended,
        }
    }
}

/// An error of the connecting side's handshake.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The listener rejected this side.
    #[error("this connection was refused: {0}")]
    Rejected(RejectReason),
    /// The listener does not know the token: it does not belong to this job.
    #[error("the program that answers there does not know the job's token (KOLO_TOKEN, KOLO_TOKEN_FILE)")]
    Impostor,
    /// The listener is not Kolo's, or has another version.
    #[error("the program that answers there does not speak this version of Kolo's protocol")]
    Foreign,
    /// The connection broke.
    #[error("{0}")]
    Broken(#[from] io::Error),
}

impl HandshakeError {
    /// Returns the listener's reason for a rejection, if the tokens are the reason.
    pub fn token_rejection(&self) -> Option<RejectReason> {
        match self {
            HandshakeError::Rejected(reason) => Some(*reason).filter(|reason| reason.is_of_token()),
            _ => None,
        }
    }

    /// Returns true if connecting again may help.
    pub fn is_transient(&self) -> bool {
        match self {
            HandshakeError::Rejected(reason) => reason.is_transient(),
            HandshakeError::Broken(_) => true,
            HandshakeError::Impostor | HandshakeError::Foreign => false,
        }
    }
}
