//! Who may join: every connection between the processes of a job begins here, the store's and those for data.
//!
//! Without a job token Kolo listens on loopback only, and trusts whoever can connect there. With one (`KOLO_TOKEN`,
//! or a file) every connection begins with a Noise handshake (`NNpsk0`, by the `snow` crate) whose key is made
//! from the token. The store's connections stay inside that session; data connections leave it again, unless
//! `KOLO_ENCRYPT=1` keeps them in.
//!
//! | module | idea |
//! |---|---|
//! | [`token`] | the secret, and where it comes from |
//! | [`access`] | what this job demands of those who connect |
//! | [`handshake`] | what is said before the first byte of a connection's own |
//! | [`record`] | bytes under the session's keys |
//! | [`link`] | a connection of the store |
//! | [`door`] | a listener that no stranger can block, exhaust or crash |

mod access;
mod door;
pub mod handshake;
mod link;
mod record;
mod refusal;
mod token;

pub use access::Access;
pub use door::{Door, Visitor};
pub use handshake::Purpose;
pub use link::{Link, introduce};
pub use record::{LONGEST_FRAME, PREFIX, ROOM, Session};
pub use refusal::CallError;
pub use token::Token;
