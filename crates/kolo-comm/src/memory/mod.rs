//! Memory that collectives work on: allocated from a group, so that on one host a peer can read it where it
//! lies.

mod buffer;
mod mapping;
mod pool;
mod segment;

pub use buffer::{Buffer, Memory};
pub(crate) use mapping::Mapping;
pub(crate) use pool::{Backing, Block, Pool};
pub(crate) use segment::Segment;
