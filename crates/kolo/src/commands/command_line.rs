//! Parses the command line, with answers that clap does not give by itself.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Command, CommandFactory, Error, FromArgMatches};
use kolo::Failure;
use kolo_burn_train::LogFormat;
use kolo_comm::env::is_worker;
use kolo_recipe::{OnResume, Recipe};

use super::invalid_value::in_words;
use super::{Cli, train};

impl Cli {
    /// Parses the program's arguments, the first of which is its name; ends the program if they are wrong.
    /// Errors: they are wrong, and ask for JSON; or they are a worker's, whose launcher must learn that no
    /// node can begin.
    pub(crate) fn of(args: Vec<OsString>) -> Result<Cli, Failure> {
        let is_json = asks_json(&args);
        Self::try_of(args).map_err(|error| match error.use_stderr() {
            true if is_json => Failure::input(sentence(&error)).in_json(),
            true if is_worker() => Failure::input(sentence(&error)),
            _ => error.exit(),
        })
    }

    pub(super) fn try_of(args: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Cli, Error> {
        Self::by(&mut Self::definition(), args)
    }

    /// Returns the definition of the command line. To make it takes longer than to use it.
    pub(super) fn definition() -> Command {
        taking_negative_numbers(Cli::command())
    }

    /// Parses arguments by the definition.
    pub(super) fn by(
        command: &mut Command,
        args: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Cli, Error> {
        let mut matches =
            command.try_get_matches_from_mut(args).map_err(|error| explained(in_words(error)))?;
        let prints_json = prints_json(&matches);
        let cli = Cli::from_arg_matches_mut(&mut matches).map_err(|error| match error.kind() {
            // It names the option; the usage would be that of the program and not of the command.
            ErrorKind::ValueValidation => error,
            _ => error.format(command),
        })?;
        Ok(Cli { prints_json, ..cli })
    }
}

/// Returns true if the user wants JSON of the command.
fn prints_json(matches: &ArgMatches) -> bool {
    let Some((_, below)) = matches.subcommand() else {
        let has_flag = matches.try_get_one("json").is_ok_and(|json| json == Some(&true));
        return has_flag
            || matches.try_get_one("log_format").is_ok_and(|format| format == Some(&LogFormat::Json));
    };
    prints_json(below)
}

/// Returns true if arguments that clap has refused ask for JSON.
fn asks_json(args: &[OsString]) -> bool {
    let own = args.split(|arg| arg == "--").next().unwrap_or_default();
    own.iter().any(|arg| arg == "--json" || arg == "--log-format=json")
        || own.windows(2).any(|pair| pair[0] == "--log-format" && pair[1] == "json")
}

/// Returns the words of an error without the usage of the command.
fn sentence(error: &Error) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let is_usage = |part: &str| part.starts_with("Usage:") || part.starts_with("For more information");
    let parts = text.split("\n\n").filter(|part| !is_usage(part));
    let lines = parts.map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    lines.collect::<Vec<_>>().join("; ")
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
        let is_kept = matches!(Recipe::default().on_resume(&field), OnResume::Refused | OnResume::Unused);
        let tip = match is_kept {
            true => format!("a run keeps its `{field}` from its start: begin a new run with another one"),
            false => {
                format!("--resume takes all settings from the run's config.toml: change `{field}` there")
            }
        };
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

/// Returns the field of `config.toml` that an option sets, with its section, if it is a setting of a run.
fn field(option: &str) -> Option<String> {
    let command = Cli::command();
    let mut options = command.find_subcommand("train")?.get_arguments();
    let id = options.find(|arg| arg.get_long() == option.strip_prefix("--"))?.get_id();
    let is_setting = train::settings().contains(id);
    let field = match id.as_str() {
        "accumulate" => "shards",
        "scale_lr" => "scaling",
        "sync" => "mode",
        "optimizer" => "name",
        field => field,
    };
    let names = Recipe::default().noted().unwrap_or_default();
    let full = names.into_keys().find(|name| name.rsplit('.').next() == Some(field));
    is_setting.then(|| full.unwrap_or_else(|| field.into()))
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
            ("--lr-factor", "0.5", "rate.step_factor"),
            ("--momentum", "0.5", "optimizer.settings.momentum"),
            ("--accumulate", "2", "shards"),
        ] {
            let error = refused(&["train", "--resume", "run", option, value]);
            let tip =
                format!("tip: --resume takes all settings from the run's config.toml: change `{field}`");
            assert!(error.contains("cannot be used with") && error.contains(&tip), "{error}");
        }
        for (option, value, field) in [
            ("--tokenizer", "train:300", "input.tokenizer"),
            ("--sync", "local", "sync.mode"),
            ("--init", "a", "init"),
        ] {
            let error = refused(&["train", "--resume", "run", option, value]);
            let tip = format!("tip: a run keeps its `{field}` from its start: begin a new run");
            assert!(error.contains(&tip), "{error}");
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

    #[test]
    fn errors_are_json_where_results_are() {
        let of = |args: &[&str]| args.iter().map(OsString::from).collect::<Vec<_>>();
        for args in [
            &["kolo", "plan", "memory", "--parameters", "no", "--json"][..],
            &["kolo", "train", "--log-format", "json", "--nproc", "no"],
            &["kolo", "launch", "--json", "--nproc", "no", "--", "true"],
        ] {
            let ending = kolo_program::Ending::of(&Cli::of(of(args)).err().unwrap());
            assert!(ending.is_json && ending.code == 2, "{args:?}");
            let message = ending.message;
            assert!(message.starts_with("invalid value 'no' for '--"), "{message}");
            assert!(!message.contains('\n') && !message.contains("Usage"), "{message}");
        }
        assert!(!asks_json(&of(&["kolo", "launch", "--", "program", "--json"])));
        for (args, prints_json) in [
            (&["kolo", "train"][..], false),
            (&["kolo", "train", "--json"], true),
            (&["kolo", "check", "--log-format", "json"], true),
            (&["kolo", "bench", "all-reduce", "--json"], true),
            (&["kolo", "launch", "true", "--json"], false),
            (&["kolo", "completions", "bash"], false),
        ] {
            assert_eq!(Cli::try_of(args).ok().unwrap().prints_json, prints_json, "{args:?}");
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
