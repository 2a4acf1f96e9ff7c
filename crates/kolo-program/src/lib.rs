//! Frame of a program: its logger and variables, its output, and the failure with which it ends.
//!
//! [`Failure`] takes any of Kolo's errors and decides the exit code and the rank at fault; `kolo::main`
//! prints and reports it. The commands of `kolo` print by [`output`], and draw by [`chart`].

pub mod chart;
pub mod environment;
mod failure;
pub mod home;
pub mod logger;
pub mod output;
mod started;

pub use failure::{Ending, Failure};
pub use started::check_lone_worker;
