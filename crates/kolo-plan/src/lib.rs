//! What a collective takes on a given network, before anyone rents it.
//!
//! The simulator runs the very schedules that are executed and proved: no second description of an algorithm exists that could
//! be wrong in its own way.

mod network;
mod simulate;

pub use network::Network;
pub use simulate::seconds;
