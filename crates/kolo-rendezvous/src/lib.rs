//! How the workers of a job find each other and prove who they are.
//!
//! A launcher tells each worker its place in environment variables ([`env`]). Rank 0 serves a small key-value [`store`] there;
//! the others find it ([`meet()`]) and exchange through it what each must know of the others. Every connection between the
//! job's processes begins with a handshake ([`secure`]). [`Liveness`] latches the first failure of a group and wakes whoever
//! waits.
//!
//! This crate never sees a collective or a buffer. kolo-schedule stands below it (for [`Rank`](kolo_schedule::Rank)), kolo-comm
//! and kolo-elastic above.

pub mod env;
mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod hash;
mod interface;
mod liveness;
mod meet;
pub mod secure;
pub mod store;

pub use error::Error;
pub use interface::{Interface, Reach};
pub use liveness::{Liveness, Waiting, culprit, lock};
pub use meet::meet;
