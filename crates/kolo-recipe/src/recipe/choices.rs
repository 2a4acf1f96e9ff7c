//! Choices from tables by name: the optimizer and the gradient transforms. Their options are made from the
//! tables, so a new entry needs no change here.

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, value_parser};
use kolo_ddp::optimizer::{self, OPTIMIZERS, Optimizer};
use kolo_ddp::table::{Allowed, Choice, ChoiceError, Entry, Setting, Settings, Value, parse_number};
use kolo_ddp::transform::{self, TRANSFORMS};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::defaults::defaults;
use crate::error::Error;

const OPTIMIZER: &str = "optimizer";

/// Defaults of a training for settings whose default in the table is 0, which disables them.
const RECIPE: [(&str, f64); 2] = [("weight_decay", 5e-4), ("momentum", 0.9)];

/// The optimizer of a run: `--optimizer`, and an option for each setting of any optimizer. A setting without
/// a value has the command line's default, which may differ from the optimizer's own: weight decay 5e-4 and
/// momentum 0.9 in place of 0.
#[derive(Clone, Debug)]
pub struct OptimizerChoice(pub Choice);

impl PartialEq for OptimizerChoice {
    /// Returns true if both result in the same settings.
    fn eq(&self, other: &Self) -> bool {
        self.written() == other.written()
    }
}

impl Serialize for OptimizerChoice {
    /// Writes all settings, so that any version repeats the run with the same ones.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.written().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for OptimizerChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            #[serde(default = "usual")]
            name: String,
            #[serde(default)]
            settings: Settings,
        }
        let Table { name, settings } = Table::deserialize(deserializer)?;
        Ok(OptimizerChoice(OptimizerChoice(Choice { name, settings }).written()))
    }
}

/// Name of the default optimizer.
fn usual() -> String {
    OptimizerChoice::default().0.name
}

impl Default for OptimizerChoice {
    fn default() -> Self {
        defaults()
    }
}

impl OptimizerChoice {
    pub(super) fn check(&self) -> Result<(), Error> {
        self.complete()?;
        Ok(())
    }

    /// Returns the choice with a value for each setting.
    fn complete(&self) -> Result<Choice, ChoiceError> {
        let Choice { name, settings: given } = &self.0;
        let entry = optimizer::find(name)?;
        let defaults = entry.settings.iter().map(|setting| (setting.name.to_string(), default(setting)));
        let given = given.names().filter_map(|name| Some((name.to_string(), given.get(name)?)));
        let settings = entry.complete(&defaults.chain(given).collect())?;
        Ok(Choice { name: name.clone(), settings })
    }

    /// Returns the complete choice, or the given one if it is invalid.
    fn written(&self) -> Choice {
        self.complete().unwrap_or_else(|_| self.0.clone())
    }

    /// Builds the optimizer with these settings.
    ///
    /// # Errors
    ///
    /// There is none of that name, or it has no such setting.
    pub fn build(&self) -> Result<Box<dyn Optimizer>, Error> {
        let Choice { name, settings } = self.complete()?;
        Ok(optimizer::named(&name, &settings)?)
    }
}

impl Args for OptimizerChoice {
    fn augment_args(command: Command) -> Command {
        let optimizer = Arg::new(OPTIMIZER).long(OPTIMIZER).value_name("NAME").default_value("sgd");
        let settings = settings(OPTIMIZERS).into_iter().map(|(setting, owners)| {
            option(setting, format!("{} [default: {}]", setting.about, owners.join(", ")))
        });
        command.arg(optimizer.help("Optimizer (see below)")).args(settings)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for OptimizerChoice {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let name = matches.get_one::<String>(OPTIMIZER).cloned().unwrap_or_default();
        // Other optimizers may have the given settings.
        let settings = given(settings(OPTIMIZERS).into_iter().map(|(setting, _)| setting), matches);
        // An optimizer of a configuration file may have other settings; the check of the recipe refuses.
        Ok(OptimizerChoice(OptimizerChoice(Choice { name, settings }).written()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Transforms of the gradient before the optimizer's step, one after another. A transform takes part if an
/// option for one of its settings is given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TransformChoices(pub Vec<Choice>);

impl TransformChoices {
    pub(super) fn check(&self) -> Result<(), Error> {
        self.0.iter().try_for_each(|Choice { name, settings }| {
            transform::find(name)?.complete(settings)?;
            Ok(())
        })
    }
}

impl Args for TransformChoices {
    fn augment_args(command: Command) -> Command {
        let settings = settings(TRANSFORMS).into_iter();
        command
            .args(settings.map(|(setting, _)| option(setting, format!("{} [default: off]", setting.about))))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for TransformChoices {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = TRANSFORMS.iter().map(|entry| (entry, given(entry.settings.iter(), matches)));
        let choice = |(entry, given): (&Entry<_>, Settings)| {
            let settings = entry.complete(&given).map_err(refused)?;
            Ok(Choice { name: entry.name.into(), settings })
        };
        given
            .filter(|(_, given)| !given.is_empty())
            .map(choice)
            .collect::<Result<_, _>>()
            .map(TransformChoices)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn default(setting: &Setting) -> Value {
    let none = setting.default == Value::Number(0.0);
    let own = RECIPE.iter().find(|(name, _)| none && *name == setting.name);
    own.map_or(setting.default, |(_, number)| Value::Number(*number))
}

/// Returns each setting of a table once, with the entries that have it and their defaults.
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
        // `--nesterov`, or `--nesterov=false` for an optimizer that has it by default.
        Allowed::Flag => option
            .value_name("true|false")
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .hide_possible_values(true)
            .value_parser(value_parser!(bool)),
        _ => option.value_name("NUMBER").value_parser(parse_number),
    }
}

/// Returns the values that the command line gives for these settings.
fn given(settings: impl Iterator<Item = &'static Setting>, matches: &ArgMatches) -> Settings {
    let value = |setting: &Setting| match setting.allowed {
        Allowed::Flag => matches.get_one::<bool>(setting.name).map(|flag| Value::Flag(*flag)),
        _ => matches.get_one::<f64>(setting.name).map(|number| Value::Number(*number)),
    };
    settings.filter_map(|setting| Some((setting.name.into(), value(setting)?))).collect()
}

fn refused(error: ChoiceError) -> clap::Error {
    clap::Error::raw(ErrorKind::ValueValidation, format!("{}\n", Error::Choice(error)))
}
