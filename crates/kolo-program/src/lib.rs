//! Output of a program to its user: lines of output, and the failure with which it ends.
//!
//! [`Failure`] takes any of Kolo's errors and decides the exit code and the rank at fault; `kolo::main`
//! prints and reports it. The commands of `kolo` print by [`output`].

mod failure;
pub mod output;

pub use failure::{Ending, Failure};
