//! Groups over the memory of NVIDIA's GPUs, by NCCL (feature `nccl`).
//!
//! A [`DeviceGroup`] stands beside a native [`Group`](crate::Group) of the same ranks, one device each. The native group
//! is the rendezvous (rank 0 makes NCCL's unique id, a broadcast carries it) and the watch: NCCL by itself waits for a
//! dead peer forever. A wait looks at the device, at NCCL and at the group's liveness in turn; when a peer dies or the
//! time is up, the communicator is aborted and every later call gives the same error, with the culprit's name.
//!
//! NCCL adds in an order of its own: unlike those of a [`Group`](crate::Group), its sums may differ in their last bits
//! between numbers of workers.
//!
//! CUDA's driver and NCCL are loaded at run time. Without the feature the same functions are there, and the first one,
//! [`DeviceGroup::new`], says how to build with it.
//!
//! | file | what |
//! |---|---|
//! | `group` | the group, what is started and awaited |
//! | `calls` | one function for each operation |
//! | `buffer`, `device` | device memory; which device, and its stream |
//! | `plan` | the NCCL calls that make a collective: pure |
//! | `communicator`, `library` | NCCL itself |
//! | `vigil` | how long a wait makes sense |
//! | `check`, `measure` | every operation against the native group; all-reduce in the manner of nccl-tests |

mod calls;
mod check;
mod measure;

mod buffer;
mod card;
mod codes;
mod communicator;
mod device;
mod group;
mod library;
mod pending;
mod plan;
mod vigil;

pub use check::check;
pub use measure::{Measured, measure_all_reduce};

pub use buffer::DeviceBuffer;
pub use group::DeviceGroup;
pub use pending::DevicePending;

/// File name or path of NCCL's library: overrides the search for `libnccl.so.2`.
pub const LIBRARY: &str = "KOLO_NCCL_LIBRARY";
