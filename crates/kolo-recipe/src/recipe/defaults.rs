//! Defaults of settings: those of the command line.

use clap::Command;

/// Returns the settings of a command line without options, so that each default is written once.
pub(super) fn defaults<T: clap::Args>() -> T {
    let command = T::augment_args(Command::new("defaults").no_binary_name(true));
    let matches = command.get_matches_from(std::iter::empty::<&str>());
    T::from_arg_matches(&matches).unwrap_or_else(|error| unreachable!("every setting has a default: {error}"))
}
