//! The optimizer and its settings on the command line: options that are made from the table of optimizers.

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Args, Command, FromArgMatches, value_parser};
use kolo_ddp::optimizer::{self, OPTIMIZERS};
use kolo_ddp::table::{Allowed, Setting, Settings, Value};

use crate::fail::Failure;
use crate::train::config::{OptimizerConfig, wrong_setting};

/// The group of all options for settings.
pub(super) const SETTINGS: &str = "optimizer_settings";

const OPTIMIZER: &str = "optimizer";

/// Where a training has another default than the table.
const RECIPE: [(&str, f64); 2] = [("weight_decay", 5e-4), ("momentum", 0.9)];

/// `--optimizer`, and an option for each setting that some optimizer has.
#[derive(Clone, Debug)]
pub(super) struct OptimizerOptions {
    name: String,
    given: Settings,
}

impl OptimizerOptions {
    /// The optimizer with a value for each of its settings.
    pub(super) fn config(&self) -> Result<OptimizerConfig, Failure> {
        let entry = optimizer::find(&self.name).map_err(Failure::input)?;
        let settings = entry.settings.iter().map(|setting| {
            let value = self.given.get(setting.name).unwrap_or_else(|| default(setting));
            (setting.name.to_string(), value)
        });
        // What is given may be none of its settings.
        let settings = settings.chain(self.given.clone()).collect();
        let settings = entry.complete(&settings).map_err(wrong_setting)?;
        Ok(OptimizerConfig { name: self.name.clone(), settings })
    }
}

fn default(setting: &Setting) -> Value {
    let own = RECIPE.iter().find(|(name, _)| *name == setting.name);
    own.map_or(setting.default, |(_, number)| Value::Number(*number))
}

/// Each setting once, with the optimizers that have it and their defaults.
fn settings() -> Vec<(&'static Setting, Vec<String>)> {
    let mut all: Vec<(&Setting, Vec<String>)> = Vec::new();
    for entry in OPTIMIZERS {
        for setting in entry.settings {
            let owner = format!("{} {}", entry.name, default(setting));
            match all.iter_mut().find(|(known, _)| known.name == setting.name) {
                Some((_, owners)) => owners.push(owner),
                None => all.push((setting, vec![owner])),
            }
        }
    }
    all
}

impl Args for OptimizerOptions {
    fn augment_args(command: Command) -> Command {
        let optimizer = Arg::new(OPTIMIZER)
            .long(OPTIMIZER)
            .value_name("NAME")
            .default_value("sgd")
            .help("Optimizer (see below)");
        let option = |(setting, owners): (&Setting, Vec<String>)| {
            let option = Arg::new(setting.name).long(setting.name.replace('_', "-"));
            let option = option.help(format!("{} [default: {}]", setting.about, owners.join(", ")));
            match setting.allowed {
                Allowed::Flag => option.action(ArgAction::SetTrue),
                Allowed::Number(_) => option.value_name("NUMBER").value_parser(value_parser!(f64)),
            }
        };
        let names = settings().into_iter().map(|(setting, _)| setting.name);
        let group = ArgGroup::new(SETTINGS).multiple(true).args(names);
        command.arg(optimizer).args(settings().into_iter().map(option)).group(group)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for OptimizerOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = settings().into_iter().filter_map(|(setting, _)| {
            let value = match setting.allowed {
                Allowed::Flag => matches.get_flag(setting.name).then_some(Value::Flag(true)),
                Allowed::Number(_) => {
                    matches.get_one::<f64>(setting.name).map(|number| Value::Number(*number))
                }
            };
            Some((setting.name.into(), value?))
        });
        let name = matches.get_one::<String>(OPTIMIZER).cloned().unwrap_or_default();
        Ok(OptimizerOptions { name, given: given.collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
