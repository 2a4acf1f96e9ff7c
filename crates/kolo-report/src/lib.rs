//! One page about training runs.
mod analysis;
mod error;
#[cfg(test)]
mod example;
pub mod findings;
mod html;
pub mod run;
mod statistics;
mod units;
pub use error::Error;
