//! Rendezvous of a job's workers: they find each other, prove their identity, and detect a death.
//!
//! A launcher passes each worker its rank in environment variables ([`env`](mod@env)). Rank 0 serves a small
//! key-value [`store`] at the address in these variables; the other ranks find it ([`establish_store`]) and
//! exchange connection data through it. Every connection between the job's processes begins with a handshake
//! ([`secure`]). [`Liveness`] latches the first failure of a group and wakes all waiting threads. This crate
//! knows no collectives and no buffers. It depends on kolo-schedule (for [`Rank`](kolo_schedule::Rank)).
//! kolo-comm, which forms groups, and kolo-elastic, which manages membership, depend on it.
//!
//! Two workers, here threads, meet at the store and exchange a value:
//!
//! ```
#![doc = include_str!("../examples/exchange.rs")]
//! ```

#[cfg(not(target_os = "linux"))]
compile_error!(
    "Kolo runs on Linux only: build it there, or in a container or virtual machine of Linux (on Windows: WSL 2)"
);

mod backend_error;
pub mod env;
mod error;
mod establish_store;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod interface;
mod invalid_call;
mod liveness;
pub mod secure;
pub mod store;
mod wait_notice;

pub use backend_error::BackendError;
pub use error::{Error, is_out_of_files};
pub use establish_store::establish_store;
pub use interface::{AdvertisedAddress, Interface};
pub use invalid_call::InvalidCall;
pub use kolo_schedule::hash;
pub use liveness::{Liveness, WaitGuard, Waker, culprit};
pub use wait_notice::WaitNotice;
