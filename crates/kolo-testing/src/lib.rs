//! Test support for the crates of Kolo: one way to spawn a world of ranks ([`spawn`]), tests that need
//! something that a machine may lack ([`harness`]), programs started as workers ([`jobs`], [`mpirun`]) and
//! their processes ([`children`], [`Logged`](jobs::Logged)), two hosts with a cable ([`TwoHosts`]), a disk
//! that fills up ([`SmallDisk`]), ways to die ([`stages`], [`subsets`]), a terminal ([`PseudoTerminal`]), a
//! real etcd ([`Etcd`]), the conformance of collectives ([`operations`], [`assert_same_results`]), and the
//! seeds of fuzz targets ([`assert_seeds_are_taken`]). It stands above kolo-comm; only tests and examples use
//! it. Its functions panic where a test is to fail.

mod compare;
mod deaths;
mod etcd;
mod fuzz_seeds;
pub mod harness;
pub mod jobs;
pub mod mpirun;
pub mod operations;
mod processes;
mod pty;
mod small_disk;
mod thorough;
mod two_hosts;
mod world;

pub use compare::assert_same_results;
pub use deaths::{stages, subsets};
pub use etcd::Etcd;
pub use fuzz_seeds::assert_seeds_are_taken;
pub use processes::{alive, children, children_that_run, ignores, send, wait_until};
pub use pty::PseudoTerminal;
pub use small_disk::SmallDisk;
pub use thorough::{is_thorough, selected};
pub use two_hosts::{Hosts, TwoHosts};
pub use world::{ALL, Over, free_port, spawn, try_spawn};
