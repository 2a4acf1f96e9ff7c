//! Why a connection is refused, for the log on one side and the error on the other.

use std::io;

/// Why a connection is refused. The discriminant travels to the caller, unprotected: it explains, nothing rests
/// on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Refusal {
    /// The first bytes are not those of a worker.
    #[error("it does not speak this version of Kolo's protocol")]
    Stranger = b'x',
    /// The caller came without a token.
    #[error("it brings no token, but the job has one (KOLO_TOKEN, KOLO_TOKEN_FILE)")]
    TokenMissing = b't',
    /// The caller came with a token, but there is none here.
    #[error("it brings a token, but the job has none (KOLO_TOKEN, KOLO_TOKEN_FILE)")]
    TokenUnknown = b'o',
    /// The caller does not know the token, or repeats what somebody else has said.
    #[error("it does not know the job's token (KOLO_TOKEN, KOLO_TOKEN_FILE)")]
    TokenWrong = b'w',
    /// The two do not agree on encryption.
    #[error("only one of both sides encrypts; KOLO_ENCRYPT must be the same for all workers")]
    Encryption = b'e',
    /// A data connection came to the store, or the other way round.
    #[error("it belongs to another listener")]
    Purpose = b'p',
    /// A caller said too little in the time it had.
    #[error("it did not complete the handshake in time")]
    Late = b'l',
    /// The connection ended.
    #[error("it ended within the handshake")]
    Ended = b'z',
    /// More callers than can be heard at once: the one that has waited longest goes.
    #[error("too many connections wait for their handshake")]
    Crowded = b'c',
}

impl Refusal {
    pub(super) const ALL: [Refusal; 9] = [
        Refusal::Stranger,
        Refusal::TokenMissing,
        Refusal::TokenUnknown,
        Refusal::TokenWrong,
        Refusal::Encryption,
        Refusal::Purpose,
        Refusal::Late,
        Refusal::Ended,
        Refusal::Crowded,
    ];

    pub(super) fn from_code(code: u8) -> Option<Refusal> {
        Refusal::ALL.into_iter().find(|refusal| *refusal as u8 == code)
    }

    /// Whether calling again may help.
    fn passes(self) -> bool {
        matches!(self, Refusal::Late | Refusal::Ended | Refusal::Crowded)
    }
}

impl From<io::Error> for Refusal {
    fn from(cause: io::Error) -> Refusal {
        match cause.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Refusal::Late,
            _ => Refusal::Ended,
        }
    }
}

/// Why a call was not successful.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The other side said why.
    #[error("this connection was refused: {0}")]
    Refused(Refusal),
    /// What answers does not know the token: it is not of this job.
    #[error("what answers there does not know the job's token (KOLO_TOKEN, KOLO_TOKEN_FILE)")]
    Impostor,
    /// What answers is something else.
    #[error("what answers there does not speak this version of Kolo's protocol")]
    Foreign,
    /// The connection broke.
    #[error("{0}")]
    Broken(#[from] io::Error),
}

impl CallError {
    /// Whether calling again may help.
    pub fn passes(&self) -> bool {
        match self {
            CallError::Refused(refusal) => refusal.passes(),
            CallError::Broken(_) => true,
            CallError::Impostor | CallError::Foreign => false,
        }
    }
}
