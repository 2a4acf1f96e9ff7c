//! Test support for the crates of Kolo: one way to spawn a world of ranks ([`spawn`]), programs started as workers ([`jobs`],
//! [`mpirun`]), and the conformance of collectives ([`operations`]). Only tests use it.

mod compare;
pub mod jobs;
pub mod mpirun;
pub mod operations;
mod world;

pub use compare::assert_same_results;
pub use world::{ALL, Over, free_port, spawn};
