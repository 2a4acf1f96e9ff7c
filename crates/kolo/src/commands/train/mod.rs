//! `kolo train`: its options, the configuration that they make, and the command.

mod command;
mod configuration;
mod options;
mod refusals;
mod tables;

pub(super) use options::{Train, settings};
