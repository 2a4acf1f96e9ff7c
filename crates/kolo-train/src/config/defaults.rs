//! The values that settings have where nobody says another: those of the command line.

use clap::Command;

/// What the command line gives if it holds no option at all, so that each default is written once.
pub(super) fn defaults<T: clap::Args>() -> T {
    let command = T::augment_args(Command::new("defaults").no_binary_name(true));
    let matches = command.get_matches_from(std::iter::empty::<&str>());
    T::from_arg_matches(&matches).unwrap_or_else(|error| unreachable!("every setting has a default: {error}"))
}
