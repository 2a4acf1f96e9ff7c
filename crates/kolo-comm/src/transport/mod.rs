//! Moving segments between two ranks; nothing else. A transport is a file (or folder) with a
//! [`TransportKind`] in it and a line of [`TRANSPORTS`]: connecting ([`crate::connect`]), `KOLO_TRANSPORT`,
//! the command line and the tests read that table.

mod adaptive_spin;
mod congestion;
mod interface;
mod kind;
mod routes;
mod shared_memory;
mod tcp;

pub use congestion::Congestion;
pub use kind::{Distance, TransportKind};
pub use shared_memory::{SHM, THREADS};
pub use tcp::TCP;

/// All transports, the nearest first: two ranks talk by the first one that leads from one to the other.
pub static TRANSPORTS: [&TransportKind; 3] = [&THREADS, &SHM, &TCP];

pub(crate) use kind::{Connecting, Connector, GroupContext};
pub(crate) use routes::Routes;
pub(crate) use shared_memory::connect_threads;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use {shared_memory::decode_address_for_fuzzing, shared_memory::fuzzing as slot, tcp::fuzzing};

impl TransportKind {
    /// The transport of that name, if a job can ask for it.
    pub fn named(name: &str) -> Option<&'static TransportKind> {
        TRANSPORTS.into_iter().find(|kind| kind.is_for_jobs() && kind.name == name)
    }

    /// The names that a job can ask for.
    pub fn names() -> Vec<&'static str> {
        TRANSPORTS.iter().filter(|kind| kind.is_for_jobs()).map(|kind| kind.name).collect()
    }
}
