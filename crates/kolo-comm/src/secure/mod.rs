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
//! | [`data`] | connections between ranks |
//! | [`door`] | a listener that no stranger can block, exhaust or crash |

pub(crate) mod access;
pub(crate) mod data;
pub(crate) mod door;
pub(crate) mod handshake;
pub(crate) mod link;
pub(crate) mod record;
mod refusal;
mod token;

pub(crate) use access::Access;
pub(crate) use door::{Door, Visitor};
pub(crate) use handshake::Purpose;
pub(crate) use link::Link;
pub(crate) use record::Session;
pub use token::Token;
