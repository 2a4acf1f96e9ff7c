//! Who may join: every connection between the processes of a job, to the store or for data, begins with a
//! handshake.
//!
//! Without a job token Kolo listens on loopback only, and trusts whoever can connect there. With one
//! (`KOLO_TOKEN`, or a file) the handshake is Noise's `NNpsk0` (by the `snow` crate), whose pre-shared key is
//! made from the token. The store's connections stay encrypted after it; data connections do only with
//! `KOLO_ENCRYPT=1`.
//!
//! | module | idea |
//! |---|---|
//! | `token` | the secret, and where it comes from |
//! | `access` | what this job demands of those who connect |
//! | `handshake` | the messages before the first byte of a connection's own |
//! | `record` | encrypted and authenticated records |
//! | `dial` | a connection that leads elsewhere than to this very socket |
//! | `stream` | a connection of the store; [`connect`] |
//! | `listener` | a listener that no stranger can block, exhaust or crash |
//! | `keepalive` | a host that vanishes is noticed |

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
pub(crate) use stream::SecureStream;
pub use stream::connect;
pub use token::Token;
