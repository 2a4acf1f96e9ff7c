//! Parses the command line, with answers that clap does not give by itself.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory, Error, FromArgMatches};

use super::{Cli, train};

impl Cli {
    /// Parses the program's arguments, the first of which is its name; ends the program if they are wrong.
    pub(crate) fn of(args: impl IntoIterator<Item = OsString>) -> Cli {
        Self::try_of(args).unwrap_or_else(|error| error.exit())
    }

    pub(super) fn try_of(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Cli, Error> {
        let mut command = taking_negative_numbers(Cli::command());
        let mut matches = command.try_get_matches_from_mut(args).map_err(explained)?;
        Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
    }
}

/// Lets all options take `-1` as their value, which the check of the value then refuses by name.
fn taking_negative_numbers(command: Command) -> Command {
    let option = |arg: Arg| match arg.get_action().takes_values() && !arg.is_positional() {
        true => arg.allow_negative_numbers(true),
        false => arg,
    };
    command.mut_args(option).mut_subcommands(taking_negative_numbers)
}

/// Adds to the error about a setting beside `--resume` where that setting can be changed.
fn explained(mut error: Error) -> Error {
    let given: Vec<String> = [ContextKind::InvalidArg, ContextKind::PriorArg]
        .into_iter()
        .flat_map(|kind| words(&error, kind))
        .collect();
    let resumes = given.iter().any(|arg| arg.starts_with("--resume "));
    let setting = given.iter().find_map(|arg| field(arg.split_whitespace().next()?));
    if let (ErrorKind::ArgumentConflict, true, Some(field)) = (error.kind(), resumes, setting) {
        let tip =
            format!("--resume takes all settings from config.toml in the run folder: change `{field}` there");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

fn words(error: &Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(arg)) => vec![arg.clone()],
        Some(ContextValue::Strings(args)) => args.clone(),
        _ => Vec::new(),
    }
}

/// Returns the field of `config.toml` that an option sets, if it is a setting of a run.
fn field(option: &str) -> Option<String> {
    let command = Cli::command();
    let mut options = command.find_subcommand("train")?.get_arguments();
    let id = options.find(|arg| arg.get_long() == option.strip_prefix("--"))?.get_id();
    let is_setting = train::settings().contains(id);
    is_setting.then(|| match id.as_str() {
        "accumulate" => "shards".into(),
        "scale_lr" => "scaling".into(),
        "sync" => "mode".into(),
        field => field.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(args: &[&str]) -> String {
        Cli::try_of([&["kolo"], args].concat()).err().unwrap().to_string()
    }

    #[test]
    fn a_setting_beside_resume_is_answered_with_the_place_to_change_it() {
        for (option, value, field) in [
            ("--seed", "9", "seed"),
            ("--lr-factor", "0.5", "step_factor"),
            ("--momentum", "0.5", "momentum"),
            ("--accumulate", "2", "shards"),
        ] {
            let error = refused(&["train", "--resume", "run", option, value]);
            let tip = format!(
                "tip: --resume takes all settings from config.toml in the run folder: change `{field}`"
            );
            assert!(error.contains("cannot be used with") && error.contains(&tip), "{error}");
        }
        let error = refused(&["train", "--resume", "run", "--out", "other"]);
        assert!(error.contains("cannot be used with") && !error.contains("tip:"), "{error}");
    }

    #[test]
    fn negative_numbers_are_values() {
        for args in [&["train", "--lr", "-1"][..], &["launch", "--grace", "-1e3", "--", "true"]] {
            assert!(Cli::try_of([&["kolo"], args].concat()).is_ok(), "{args:?}");
        }
        for args in [&["train", "--epochs", "-1"][..], &["bench", "all-reduce", "--nproc", "-1"]] {
            assert!(refused(args).contains("invalid value '-1' for '--"), "{}", refused(args));
        }
    }

    /// Calls `visit` with each command that has no commands below it, and its words: `bench all-reduce`.
    fn each_command(command: &Command, words: &str, visit: &mut impl FnMut(&Command, &str)) {
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            let words = format!("{words} {}", below.get_name());
            match below.has_subcommands() {
                true => each_command(below, &words, visit),
                false => visit(below, words.trim_start()),
            }
        }
    }

    /// Commands without a result to print, or whose result is for one reader alone: JSON for `kolo plan step`,
    /// a script, pages.
    const WITHOUT_JSON: [&str; 3] = ["bench profile", "completions", "man"];

    #[test]
    fn each_command_that_prints_a_result_prints_json_as_well() {
        let mut exempt = Vec::new();
        each_command(&Cli::command(), "", &mut |command, words| {
            let Some(json) = command.get_arguments().find(|arg| arg.get_long() == Some("json")) else {
                return exempt.push(words.to_owned());
            };
            assert!(!json.get_action().takes_values(), "{words}: --json is a flag");
            let help = json.get_help().unwrap().to_string();
            assert!(help.starts_with("Print JSON"), "{words}: {help}");
        });
        assert_eq!(exempt, WITHOUT_JSON);
    }
}
