//! Collectives over the memory of NVIDIA's GPUs, by NCCL.
//!
//! A [`DeviceGroup`] has the same ranks as a native [`Group`](kolo_comm::Group), one device each. The
//! native group is the rendezvous: rank 0 creates NCCL's unique id, and a broadcast sends it. The native
//! group is also the failure detector, because NCCL by itself waits for a dead peer forever. A wait
//! checks the device, NCCL and the group's liveness in turn. When a peer dies or the time is up, the
//! communicator is aborted, and every later call returns the same error, with the culprit's name.
//!
//! NCCL adds in its own order: unlike those of a [`Group`](kolo_comm::Group), its sums may differ in
//! their last bits between numbers of workers.
//!
//! This crate sees buffers and [`Collectives`](kolo_comm::Collectives), never a schedule or a transport;
//! it depends on kolo-comm. It loads CUDA's driver and NCCL at run time, so a build needs neither.
//!
//! | file | content |
//! |---|---|
//! | `group` | the group as an implementation of `Collectives` |
//! | `state`, `pending` | the state of running collectives: starting, waiting, failing, leaving |
//! | `buffer`, `device` | device memory; the choice of the device, and its stream |
//! | `plan` | the NCCL calls of a collective: pure |
//! | `communicator`, `library`, `codes` | NCCL itself |
//! | `device_wait` | limits of a wait for the device |
//! | `peer_info` | checks among the ranks before NCCL is called |

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
