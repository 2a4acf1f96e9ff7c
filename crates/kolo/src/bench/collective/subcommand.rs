//! A subcommand of `kolo bench` for every row of the table of operations.

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Subcommand};
use kolo_comm::schedule::OperationKind;

use super::options::Options;

/// An operation and the options of its measurement.
pub(crate) struct MeasureCollective {
    pub(crate) operation: OperationKind,
    pub(crate) options: Options,
}

impl Subcommand for MeasureCollective {
    fn augment_subcommands(command: Command) -> Command {
        OperationKind::ALL.iter().fold(command, |command, operation| {
            let about = operation.properties().about;
            command.subcommand(Options::augment_args(Command::new(operation.name())).about(about))
        })
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        name.parse::<OperationKind>().is_ok()
    }
}

impl FromArgMatches for MeasureCollective {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let (name, options) = matches.subcommand().ok_or_else(|| Error::new(ErrorKind::MissingSubcommand))?;
        let operation = name.parse().map_err(|_| Error::new(ErrorKind::InvalidSubcommand))?;
        Ok(MeasureCollective { operation, options: Options::from_arg_matches(options)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
