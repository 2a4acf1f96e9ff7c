//! Options that are made from tables: the optimizer and its settings, and the gradient transforms.

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Args, Command, FromArgMatches, value_parser};
use kolo_ddp::optimizer::{self, OPTIMIZERS};
use kolo_ddp::table::{Allowed, Choice, Entry, Setting, Settings, Value};
use kolo_ddp::transform::TRANSFORMS;

use crate::fail::Failure;
use kolo_train::Error;

/// The group of all options for settings of optimizers and transforms.
pub(super) const SETTINGS: &str = "settings";

const OPTIMIZER: &str = "optimizer";

/// Where a training has another default than the table.
const RECIPE: [(&str, f64); 2] = [("weight_decay", 5e-4), ("momentum", 0.9)];

/// `--optimizer`, and an option for each setting that some optimizer or gradient transform has.
#[derive(Clone, Debug)]
pub(super) struct TableOptions {
    optimizer: String,
    given: Settings,
}

impl TableOptions {
    /// The optimizer with a value for each of its settings.
    pub(super) fn optimizer(&self) -> Result<Choice, Failure> {
        let entry = optimizer::find(&self.optimizer).map_err(Failure::input)?;
        let defaults = entry.settings.iter().map(|setting| (setting.name.to_string(), default(setting)));
        // What is given may be none of its settings.
        let given = self.given_of(settings(OPTIMIZERS).into_iter().map(|(setting, _)| setting));
        let settings = entry.complete(&defaults.chain(given).collect()).map_err(Error::Choice)?;
        Ok(Choice { name: self.optimizer.clone(), settings })
    }

    /// The transforms of which a setting is given, with a value for each of their settings.
    pub(super) fn transforms(&self) -> Result<Vec<Choice>, Failure> {
        let given = TRANSFORMS.iter().map(|entry| (entry, self.given_of(entry.settings.iter())));
        let choice = |(entry, given): (&Entry<_>, Settings)| {
            let settings = entry.complete(&given).map_err(Error::Choice)?;
            Ok(Choice { name: entry.name.into(), settings })
        };
        given.filter(|(_, given)| !given.is_empty()).map(choice).collect()
    }

    fn given_of(&self, settings: impl Iterator<Item = &'static Setting>) -> Settings {
        settings.filter_map(|setting| Some((setting.name.into(), self.given.get(setting.name)?))).collect()
    }
}

fn default(setting: &Setting) -> Value {
    let own = RECIPE.iter().find(|(name, _)| *name == setting.name);
    own.map_or(setting.default, |(_, number)| Value::Number(*number))
}

/// Each setting of a table once, with the entries that have it and their defaults.
fn settings<T: ?Sized>(table: &'static [Entry<T>]) -> Vec<(&'static Setting, Vec<String>)> {
    let mut all: Vec<(&Setting, Vec<String>)> = Vec::new();
    for entry in table {
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

fn option(setting: &'static Setting, help: String) -> Arg {
    let option = Arg::new(setting.name).long(setting.name.replace('_', "-")).help(help);
    match setting.allowed {
        Allowed::Flag => option.action(ArgAction::SetTrue),
        _ => option.value_name("NUMBER").value_parser(value_parser!(f64)),
    }
}

impl Args for TableOptions {
    fn augment_args(command: Command) -> Command {
        let optimizer = Arg::new(OPTIMIZER).long(OPTIMIZER).value_name("NAME").default_value("sgd");
        let of_optimizers = settings(OPTIMIZERS).into_iter().map(|(setting, owners)| {
            option(setting, format!("{} [default: {}]", setting.about, owners.join(", ")))
        });
        let of_transforms = settings(TRANSFORMS)
            .into_iter()
            .map(|(setting, _)| option(setting, format!("{} [default: off]", setting.about)));
        let options: Vec<Arg> = of_optimizers.chain(of_transforms).collect();
        let group = ArgGroup::new(SETTINGS).multiple(true).args(options.iter().map(Arg::get_id));
        command.arg(optimizer.help("Optimizer (see below)")).args(options).group(group)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for TableOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let all = settings(OPTIMIZERS).into_iter().chain(settings(TRANSFORMS));
        let given = all.filter_map(|(setting, _)| {
            let value = match setting.allowed {
                Allowed::Flag => matches.get_flag(setting.name).then_some(Value::Flag(true)),
                _ => matches.get_one::<f64>(setting.name).map(|number| Value::Number(*number)),
            };
            Some((setting.name.into(), value?))
        });
        let optimizer = matches.get_one::<String>(OPTIMIZER).cloned().unwrap_or_default();
        Ok(TableOptions { optimizer, given: given.collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
