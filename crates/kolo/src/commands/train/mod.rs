//! `kolo train`: its options, the configuration that they make, and the command.

mod advice;
mod command;
mod command_words;
mod configuration;
mod options;
mod refusals;
mod tables;

pub(super) use command_words::{options_of, parse, refuse_bare};
pub(super) use options::{Train, settings};
pub(super) use refusals::refuse_fewest;
