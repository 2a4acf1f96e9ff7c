//! Memory of collectives: a group's buffers, which peers on the same host read in place, or slices.

mod arena;
mod buffer;
mod host_file;
mod lending;
mod mapping;
mod nontemporal;
mod place;
mod pool;
mod segment;
mod shared_file;
mod shared_memory;

pub use buffer::{Buffer, Memory};
pub use host_file::{HostFile, HostPages};
pub use lending::Lending;
pub(crate) use mapping::Mapping;
pub use nontemporal::copy_nontemporal;
pub use place::{PeerMemory, Place};
pub use pool::{Backing, Block, Pool};
pub use segment::Segment;
pub(crate) use shared_file::{OpenError, Purpose, SharedFile};
pub use shared_memory::SharedMemory;
