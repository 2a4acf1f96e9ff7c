//! Transports: they only move segments between two ranks. A transport is a file (or folder) with a
//! [`TransportKind`] and a line of [`TRANSPORTS`]. Connecting ([`crate::connect`]), `KOLO_TRANSPORT`, the
//! command line and the tests read that table.

mod adaptive_spin;
mod congestion;
mod interface;
mod kind;
mod routes;
mod shared_memory;
mod tcp;

pub use congestion::Congestion;
pub use interface::{InPlace, Progress, Transport};
pub use kind::{
    Connecting, Connector, Distance, GroupContext, OpenConnector, OpenedConnector, TransportKind,
};
pub use routes::Routes;
pub use shared_memory::{SHM, THREADS, connect_threads};
pub use tcp::TCP;

/// All transports, nearest first: two ranks use the first one that connects them.
pub static TRANSPORTS: [&TransportKind; 3] = [&THREADS, &SHM, &TCP];

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use {shared_memory::decode_address_for_fuzzing, shared_memory::fuzzing as slot, tcp::fuzzing};

impl TransportKind {
    /// Returns the transport with this name, if a job can select it.
    pub fn named(name: &str) -> Option<&'static TransportKind> {
        TRANSPORTS.into_iter().find(|kind| kind.is_for_jobs() && kind.name == name)
    }

    /// Names of the transports that a job can select.
    pub fn names() -> Vec<&'static str> {
        TRANSPORTS.iter().filter(|kind| kind.is_for_jobs()).map(|kind| kind.name).collect()
    }
}
