//! Security: every connection between the processes of a job, to the store or for data, begins with a
//! handshake.
//!
//! Without a job token Kolo listens on loopback only, and trusts every process that can connect there. With
//! a token (`KOLO_TOKEN`, or a file) the handshake is Noise's `NNpsk0` (by the `snow` crate), whose
//! pre-shared key is derived from the token. The store's connections stay encrypted after it; data
//! connections do only with `KOLO_ENCRYPT=1`.
//!
//! | module | contents |
//! |---|---|
//! | `token` | the secret and its sources |
//! | `access` | a job's requirements for connections |
//! | `handshake` | the messages that precede a connection's payload |
//! | `record` | encrypted and authenticated records |
//! | `dial` | TCP connections to other sockets than the connecting one |
//! | `stream` | connections of the store; [`connect`] |
//! | `listener` | a listener that no stranger can block, exhaust or crash |
//! | `keepalive` | detection of vanished hosts |

mod access;
mod dial;
mod error;
pub mod handshake;
mod keepalive;
mod listener;
mod record;
mod stream;
mod token;

pub use access::Access;
pub use dial::{dial, is_loopback_down};
pub use error::{HandshakeError, RejectReason};
pub use handshake::Protocol;
pub use keepalive::{host_timeout, keep_open};
pub use listener::{Accepted, SecureListener};
pub use record::{MAX_FRAME, MAX_PLAINTEXT, PREFIX, Session};
pub use stream::{SecureStream, connect};
pub use token::Token;
