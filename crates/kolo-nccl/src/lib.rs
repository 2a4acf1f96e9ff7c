//! Collectives over the memory of NVIDIA's GPUs, by NCCL.
//!
//! A [`DeviceGroup`] stands beside a native [`Group`](kolo_comm::Group) of the same ranks, one device each.
//! The native group is the rendezvous (rank 0 makes NCCL's unique id, a broadcast carries it) and the failure
//! detector: NCCL by itself waits for a dead peer forever. A wait looks at the device, at NCCL and at the
//! group's liveness in turn; when a peer dies or the time is up, the communicator is aborted and every later
//! call gives the same error, with the culprit's name.
//!
//! NCCL adds in an order of its own: unlike those of a [`Group`](kolo_comm::Group), its sums may differ in
//! their last bits between numbers of workers.
//!
//! This crate sees buffers and [`Collectives`](kolo_comm::Collectives), never a schedule or a transport;
//! kolo-comm stands below it. CUDA's driver and NCCL are loaded at run time, so nothing of them is needed to
//! build.
//!
//! | file | what |
//! |---|---|
//! | `group` | the group as one of `Collectives` |
//! | `state`, `pending` | what collectives share until they are over: starting, waiting, failing, leaving |
//! | `buffer`, `device` | device memory; which device, and its stream |
//! | `plan` | the NCCL calls that make a collective: pure |
//! | `communicator`, `library`, `codes` | NCCL itself |
//! | `device_wait` | how long a wait for the device makes sense |
//! | `peer_info` | what ranks show each other before NCCL is called |

mod buffer;
mod codes;
mod communicator;
mod device;
mod device_wait;
mod group;
mod library;
mod peer_info;
mod pending;
mod plan;
mod state;

pub use buffer::DeviceBuffer;
pub use group::DeviceGroup;
pub use library::LIBRARY;
pub use pending::DevicePending;
