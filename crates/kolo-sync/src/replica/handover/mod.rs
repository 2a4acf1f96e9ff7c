//! Divided state whose owners change: ranks die, leave or join, and the new owners get what they need.

mod decision;
#[cfg(test)]
mod model_tests;
mod moving;
pub(crate) mod progress;
