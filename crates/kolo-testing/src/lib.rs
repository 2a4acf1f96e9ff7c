//! Test support for the crates of Kolo: one way to spawn a world of ranks ([`spawn`]), tests that need what a
//! machine may not have ([`harness`]), programs started as workers ([`jobs`], [`mpirun`]), two hosts with a
//! cable ([`TwoHosts`]), and the conformance of collectives ([`operations`], [`assert_same_results`]). It
//! stands above kolo-comm; only tests and examples use it.

mod compare;
pub mod harness;
pub mod jobs;
pub mod mpirun;
pub mod operations;
mod two_hosts;
mod world;

pub use compare::assert_same_results;
pub use two_hosts::TwoHosts;
pub use world::{ALL, Over, free_port, spawn};
