//! A recipe in layers: the options of a command line over a configuration file, and single fields over both.

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use kolo_ddp::table::Choice;
use serde_json::Value;

use super::check::is_finite;
use super::{OptimizerChoice, Recipe};
use crate::error::Error;
use crate::nearest::nearest;

const SET: &str = "--set";
/// Field whose value decides which settings there are.
const OPTIMIZER_NAME: &str = "optimizer.name";
/// Value of `--set` for a field without one.
const NOTHING: &str = "none";

/// The recipe's options of a command line.
#[derive(Clone, Debug)]
pub struct RecipeOptions {
    /// Recipe of these options and the defaults.
    pub recipe: Recipe,
    /// Names of the options that the user gave.
    given: Vec<String>,
}

impl Args for RecipeOptions {
    fn augment_args(command: Command) -> Command {
        Recipe::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for RecipeOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let options = Recipe::augment_args(Command::new("options"));
        let ids = options.get_arguments().map(|option| option.get_id().as_str());
        let is_given = |id: &&str| matches.value_source(id) == Some(ValueSource::CommandLine);
        let given = ids.filter(is_given).map(String::from).collect();
        Ok(RecipeOptions { recipe: Recipe::from_arg_matches(matches)?, given })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl RecipeOptions {
    /// Returns true if the user gave the option of this field.
    pub fn has(&self, field: &str) -> bool {
        self.given.iter().any(|given| given == field)
    }

    /// Returns `file` with the given options in place of its fields. Another optimizer begins with its
    /// defaults.
    ///
    /// # Errors
    ///
    /// The optimizer or a transform has no such setting.
    pub fn over(&self, file: &Recipe) -> Result<Recipe, Error> {
        let (mut merged, typed) = (tree(file)?, tree(&self.recipe)?);
        if let Some(field) = without_number(&typed, &|field| self.has(field)) {
            self.recipe.check()?;
            let problem = format!("--{} is not a finite number", field.replace('_', "-"));
            return Err(Error::encode("the configuration", problem));
        }
        overlay(&mut merged, typed, &|field| self.has(field));
        let mut merged: Recipe = from_tree(merged)?;
        if self.has("warmup_steps") {
            // The same warm-up in the other unit.
            merged.rate.warmup_epochs = None;
        }
        let typed = &self.recipe.optimizer.0;
        let optimizer = match self.has("optimizer") && typed.name != file.optimizer.0.name {
            true => typed.clone(),
            false => self.with_given(file.optimizer.0.clone(), typed),
        };
        merged.optimizer = OptimizerChoice(optimizer);
        merged.transforms = file.transforms.clone();
        for typed in &self.recipe.transforms.0 {
            match merged.transforms.0.iter_mut().find(|other| other.name == typed.name) {
                Some(other) => *other = self.with_given(other.clone(), typed),
                None => merged.transforms.0.push(typed.clone()),
            }
        }
        Ok(merged)
    }

    /// Returns `choice` with those settings of `typed` that the user gave.
    fn with_given(&self, choice: Choice, typed: &Choice) -> Choice {
        let names = typed.settings.names().filter(|name| self.has(name));
        let values = names.filter_map(|name| Some((name, typed.settings.get(name)?)));
        values.fold(choice, |choice, (name, value)| choice.with(name, value))
    }
}

impl Recipe {
    /// Returns the recipe with another value of one field, as `rate.lr=0.2`. The field has its name in a
    /// `config.toml`, with its section in front; `none` removes the value of an optional one. A new
    /// optimizer begins with its defaults.
    ///
    /// # Errors
    ///
    /// There is no such field, or it has values of another type.
    pub fn with_field(&self, assignment: &str) -> Result<Self, Error> {
        let refused = |problem: String| Err(Error::setting(SET, assignment, problem));
        let Some((name, text)) = assignment.split_once('=') else {
            return refused("give KEY=VALUE, as rate.lr=0.2".into());
        };
        let (name, text) = (name.trim(), text.trim());
        let mut fields = tree(self)?;
        let mut names = Vec::new();
        leaves("", &fields, &mut names);
        if !names.iter().any(|known| known == name) {
            let meant = nearest(name, names.iter().map(String::as_str));
            return refused(match meant {
                Some(meant) => format!("there is no key `{name}`; do you mean `{meant}`?"),
                None => format!("there is no key `{name}`; --print-config shows all"),
            });
        }
        let pointer = format!("/{}", name.replace('.', "/"));
        // An optional field without a value is null in the defaults as well, or has been given one.
        let is_optional = tree(&Recipe::default())?.pointer(&pointer).is_some_and(Value::is_null);
        // What is no value of TOML is a word.
        let parsed = toml::from_str::<toml::Table>(&format!("value = {text}"));
        let value = match parsed.ok().and_then(|mut table| table.remove("value")) {
            Some(value) if !is_finite(&value) => return refused("give a finite number".into()),
            Some(value) => serde_json::to_value(value).map_err(|e| Error::encode("the configuration", e))?,
            None if is_optional && text == NOTHING => Value::Null,
            None => Value::String(text.into()),
        };
        match fields.pointer_mut(&pointer) {
            _ if name == OPTIMIZER_NAME => fields["optimizer"] = serde_json::json!({ "name": value }),
            Some(field) => *field = value,
            None => {}
        }
        serde_json::from_value(fields).or_else(|error| refused(in_words(&error.to_string())))
    }
}

/// Replaces Rust's names of types in an error of serde.
fn in_words(error: &str) -> String {
    let words = [
        ("f64", "a number"),
        ("usize", "a whole number"),
        ("u64", "a whole number"),
        ("a boolean", "true or false"),
    ];
    let error =
        error.strip_prefix("invalid type: ").map_or_else(|| error.into(), |rest| format!("it is {rest}"));
    words
        .into_iter()
        .fold(error, |text, (from, to)| text.replace(&format!("expected {from}"), &format!("expected {to}")))
}

/// Returns all fields of a recipe as nested objects.
fn tree(recipe: &Recipe) -> Result<Value, Error> {
    serde_json::to_value(recipe).map_err(|e| Error::encode("the configuration", e))
}

fn from_tree(tree: Value) -> Result<Recipe, Error> {
    serde_json::from_value(tree).map_err(|e| Error::encode("the configuration", e))
}

/// Replaces those fields of `tree` whose options are given by those of `typed`. The optimizer and the
/// transforms are left as they are.
fn overlay(tree: &mut Value, typed: Value, is_given: &impl Fn(&str) -> bool) {
    let (Value::Object(fields), Value::Object(typed)) = (tree, typed) else { return };
    for (name, typed) in typed {
        let Some(field) = fields.get_mut(&name) else { continue };
        match (name.as_str(), &typed) {
            ("optimizer" | "transforms", _) => {}
            ("mode", _) if is_given("sync") => *field = typed,
            (_, Value::Object(_)) => overlay(field, typed, is_given),
            _ if is_given(&name) => *field = typed,
            _ => {}
        }
    }
}

/// Returns a given option that is NaN or infinite, or has such an element; JSON has `null` for it.
fn without_number<'a>(typed: &'a Value, is_given: &dyn Fn(&str) -> bool) -> Option<&'a str> {
    typed.as_object()?.iter().find_map(|(name, value)| match value {
        Value::Null => is_given(name).then_some(&**name),
        Value::Array(list) if is_given(name) => {
            list.iter().find_map(|element| without_number(element, &|_| true)).and(Some(name))
        }
        inner => without_number(inner, is_given),
    })
}

/// Collects the names of all fields, each with its section in front.
fn leaves(section: &str, tree: &Value, into: &mut Vec<String>) {
    match tree {
        Value::Object(fields) => {
            let dot = if section.is_empty() { "" } else { "." };
            fields.iter().for_each(|(name, value)| leaves(&format!("{section}{dot}{name}"), value, into));
        }
        _ => into.push(section.into()),
    }
}

#[cfg(test)]
mod tests {
    use kolo_ddp::optimizer::OPTIMIZERS;
    use kolo_ddp::table::{Allowed, Setting, Value as SettingValue};
    use kolo_ddp::transform::TRANSFORMS;

    use super::*;

    fn typed(args: &[&str]) -> RecipeOptions {
        let command = RecipeOptions::augment_args(Command::new("test").no_binary_name(true));
        RecipeOptions::from_arg_matches(&command.try_get_matches_from(args).unwrap()).unwrap()
    }

    /// Returns the setting of an optimizer or a transform with this name.
    fn setting(id: &str) -> Option<&'static Setting> {
        let of_optimizers = OPTIMIZERS.iter().flat_map(|entry| entry.settings);
        let mut all = of_optimizers.chain(TRANSFORMS.iter().flat_map(|entry| entry.settings));
        all.find(|setting| setting.name == id)
    }

    /// Returns a value of an option other than its default.
    fn another(id: &str) -> String {
        if let Some(setting) = setting(id) {
            return match (&setting.allowed, setting.default) {
                (Allowed::Flag, SettingValue::Flag(flag)) => (!flag).to_string(),
                (Allowed::Whole(_), _) => "7".into(),
                _ => "0.25".into(),
            };
        }
        match id {
            "model" | "data" | "init" | "best_metric" => "another",
            "stem" => "small",
            "device" => "cuda:1",
            "schedule" => "poly",
            "reduction" | "compute" => "bf16",
            "batch_norm" => "sync",
            "no_decay" | "no_trust_ratio" | "init_skip" | "freeze" => "norm,fc.*",
            "grow_batch" => "2:2,5:3",
            "groups" => "fc.*:lr_scale=10",
            "optimizer" => "lamb",
            "sync" => "local:H=4",
            "ema" | "lr" | "bucket_cap_mb" | "dropout" | "step_factor" | "label_smoothing" => "0.25",
            _ => "7",
        }
        .into()
    }

    #[test]
    fn every_option_survives_its_file_and_lies_over_another() {
        let command = Recipe::augment_args(Command::new("options"));
        let mut options = 0;
        for option in command.get_arguments() {
            let (id, name) = (option.get_id().as_str(), option.get_long().unwrap());
            if OPTIMIZERS.iter().any(|entry| entry.setting(id).is_some())
                && OPTIMIZERS[0].setting(id).is_none()
            {
                continue; // A setting of another optimizer than the default.
            }
            let argument = match option.get_action().takes_values() {
                true => format!("--{name}={}", another(id)),
                false => format!("--{name}"),
            };
            let given = typed(&[&argument]);
            let read: Recipe = toml::from_str(&given.recipe.to_toml().unwrap()).unwrap();
            assert_eq!(read, given.recipe, "{argument}");
            assert_ne!(read, Recipe::default(), "{argument}: another value than the default");
            assert_eq!(given.over(&Recipe::default()).unwrap(), given.recipe, "{argument}");
            options += 1;
        }
        assert!(options > 40, "{options}");
    }

    #[test]
    fn options_that_are_not_given_leave_the_file_alone() {
        let file =
            typed(&["--epochs", "3", "--optimizer", "adamw", "--beta1", "0.8", "--warmup-epochs", "2"]);
        let file = Recipe { augment: false, ..file.recipe };
        assert_eq!(typed(&[]).over(&file).unwrap(), file);
        // The default is a value, too.
        assert_eq!(typed(&["--epochs", "8"]).over(&file).unwrap().epochs, 8);
        let over = typed(&["--beta2", "0.9", "--warmup-steps", "7", "--clip-norm", "2"]).over(&file).unwrap();
        let settings = &over.optimizer.0.settings;
        assert_eq!(over.optimizer.0.name, "adamw");
        assert_eq!((settings.get("beta1"), settings.get("beta2")), (Some(0.8.into()), Some(0.9.into())));
        assert_eq!((over.rate.warmup_epochs, over.rate.warmup_steps), (None, 7));
        assert_eq!(over.transforms.0.len(), 1);
        assert!(!over.augment);
        let error = typed(&["--trust-coefficient", "0.1"]).over(&file).unwrap().check().unwrap_err();
        assert!(error.to_string().contains("adamw has no such setting"), "{error}");
        let error = typed(&["--lr", "nan"]).over(&file).unwrap_err();
        assert_eq!(error.to_string(), "--lr NaN: it must be greater than 0");
        let single = ["--ema", "--mixup", "--max-hours", "--val-split", "--dropout", "--label-smoothing"];
        for option in single.into_iter().chain(["--group=*:lr_scale", "--group=*:weight_decay"]) {
            for given in [format!("{option}=nan"), format!("{option}=inf")] {
                let error = typed(&[&given]).over(&file).unwrap_err().to_string();
                assert!(error.contains(option.split('=').next().unwrap()), "{given}: {error}");
            }
        }
        let other = typed(&["--optimizer", "sgd"]).over(&file).unwrap();
        assert_eq!(other.optimizer, Recipe::default().optimizer);
    }

    #[test]
    fn every_key_can_be_set() {
        let (usual, mut names) = (Recipe::default(), Vec::new());
        let fields = tree(&usual).unwrap();
        leaves("", &fields, &mut names);
        for name in &names {
            let value = fields.pointer(&format!("/{}", name.replace('.', "/"))).unwrap();
            let text = if value.is_null() { NOTHING.into() } else { value.to_string() };
            assert_eq!(usual.with_field(&format!("{name}={text}")).unwrap(), usual, "{name}={text}");
        }
        assert!(names.len() > 45, "{names:?}");
        let set = |assignment: &str| usual.with_field(assignment).unwrap();
        assert_eq!(set("rate.lr=1").rate.lr, 1.0);
        assert_eq!(set("model = mlp").model, "mlp");
        assert_eq!(
            (set("steps=3").steps, set("steps=3").with_field("steps=none").unwrap().steps),
            (Some(3), None)
        );
        assert_eq!(set("no_decay=[\"norm\"]").no_decay, typed(&["--no-decay", "norm"]).recipe.no_decay);
        assert_eq!(set("optimizer.name=adamw").optimizer, typed(&["--optimizer", "adamw"]).recipe.optimizer);
    }

    #[test]
    fn a_wrong_key_or_type_is_one_sentence() {
        for (assignment, words) in [
            ("steps=nan", "--set steps=nan: give a finite number"),
            ("rate.lr=inf", "--set rate.lr=inf: give a finite number"),
            ("rate.lrr=1", "--set rate.lrr=1: there is no key `rate.lrr`; do you mean `rate.lr`?"),
            ("color=1", "--set color=1: there is no key `color`; --print-config shows all"),
            ("epochs", "--set epochs: give KEY=VALUE, as rate.lr=0.2"),
            ("epochs=many", "--set epochs=many: it is string \"many\", expected a whole number"),
            ("epochs=2.5", "--set epochs=2.5: it is floating point `2.5`, expected a whole number"),
            ("rate.lr=fast", "--set rate.lr=fast: it is string \"fast\", expected a number"),
            ("augment=1", "--set augment=1: it is integer `1`, expected true or false"),
            ("epochs=none", "expected a whole number"),
        ] {
            let error = Recipe::default().with_field(assignment).unwrap_err().to_string();
            assert!(error.contains(words) && error.lines().count() == 1, "{error}");
        }
    }
}
