//! Tables of what can be chosen by name: optimizers, and in `kolo_ddp` gradient transforms. Each entry has
//! settings of its own.
//!
//! An entry lists its settings as data, with their defaults and what they may be. The command line, its help,
//! `config.toml` and the tests read that list, so whoever adds an entry edits none of them.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The value of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// On or off.
    Flag(bool),
    /// A number.
    Number(f64),
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Value::Flag(flag)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Value::Number(number)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Flag(flag) => flag.fmt(f),
            Value::Number(number) if *number != 0.0 && number.abs() < 1e-3 => write!(f, "{number:e}"),
            Value::Number(number) => number.fmt(f),
        }
    }
}

/// What a setting may be.
#[derive(Clone, Debug, PartialEq)]
pub enum Allowed {
    /// `true` or `false`.
    Flag,
    /// A number of this range. Its end is not part of it; without an end it is infinite.
    Number(Range<f64>),
    /// A number greater than 0.
    Positive,
}

impl Allowed {
    fn contains(&self, value: Value) -> bool {
        match (self, value) {
            (Allowed::Flag, Value::Flag(_)) => true,
            (Allowed::Number(range), Value::Number(number)) => range.contains(&number),
            (Allowed::Positive, Value::Number(number)) => number > 0.0 && number.is_finite(),
            _ => false,
        }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Allowed::Flag => write!(f, "true or false"),
            Allowed::Number(range) if range.end == f64::INFINITY => write!(f, "{} or more", range.start),
            Allowed::Number(range) => write!(f, "at least {} and below {}", range.start, range.end),
            Allowed::Positive => write!(f, "greater than 0"),
        }
    }
}

/// A setting of an [`Entry`].
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Its name in `config.toml`; on the command line with `-` in place of `_`.
    pub name: &'static str,
    /// Its value where nobody gives one.
    pub default: Value,
    /// What it may be.
    pub allowed: Allowed,
    /// What it is, in one line.
    pub about: &'static str,
}

impl Setting {
    /// A number of the range `allowed`.
    pub const fn number(name: &'static str, default: f64, allowed: Range<f64>, about: &'static str) -> Self {
        Setting { name, default: Value::Number(default), allowed: Allowed::Number(allowed), about }
    }

    /// A number greater than 0.
    pub const fn positive(name: &'static str, default: f64, about: &'static str) -> Self {
        Setting { name, default: Value::Number(default), allowed: Allowed::Positive, about }
    }

    /// A flag, which is off by default.
    pub const fn flag(name: &'static str, about: &'static str) -> Self {
        Setting { name, default: Value::Flag(false), allowed: Allowed::Flag, about }
    }
}

/// Values of settings by name. What is not among them has its default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Settings(BTreeMap<String, Value>);

impl Settings {
    /// With one more; it replaces an earlier value.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.into(), value.into());
        self
    }

    /// The value of a setting, if it is given.
    pub fn get(&self, name: &str) -> Option<Value> {
        self.0.get(name).copied()
    }

    /// Whether no value is given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The settings as a struct with a field for each setting of the table.
    ///
    /// # Panics
    ///
    /// If the struct has other fields than the entry that has completed the settings.
    pub fn read<S: DeserializeOwned>(&self) -> S {
        let values = serde_json::to_value(self);
        values.and_then(serde_json::from_value).expect("an entry lists the fields of its settings")
    }
}

impl IntoIterator for Settings {
    type Item = (String, Value);
    type IntoIter = std::collections::btree_map::IntoIter<String, Value>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl FromIterator<(String, Value)> for Settings {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(values: I) -> Self {
        Settings(values.into_iter().collect())
    }
}

/// An entry of a table by its name, with settings: what a configuration holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// Name of the entry.
    pub name: String,
    /// Values of its settings; the others have their defaults.
    #[serde(default)]
    pub settings: Settings,
}

impl Choice {
    /// The entry of that name with its defaults.
    pub fn new(name: &str) -> Self {
        Choice { name: name.into(), settings: Settings::default() }
    }

    /// With a value for one more setting.
    pub fn with(self, name: &str, value: impl Into<Value>) -> Self {
        Choice { settings: self.settings.with(name, value), ..self }
    }
}

/// What is wrong with a name or with settings.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ChoiceError {
    /// The table has no entry of that name.
    #[error("unknown {kind} `{name}`; known are {}", known.join(", "))]
    Unknown {
        /// What the table lists.
        kind: &'static str,
        /// The name that was asked for.
        name: String,
        /// The names that there are.
        known: Box<[&'static str]>,
    },
    /// The entry has no such setting.
    #[error("{entry} has no setting `{setting}`; it has {}", names(known))]
    NoSetting {
        /// Name of the entry.
        entry: &'static str,
        /// The setting that was given.
        setting: String,
        /// The settings that it has.
        known: &'static [Setting],
    },
    /// A value that the setting may not have.
    #[error("{} of {entry} is {value}; it must be {}", setting.name, setting.allowed)]
    NotAllowed {
        /// Name of the entry.
        entry: &'static str,
        /// The setting, and with it what it may be.
        setting: &'static Setting,
        /// The value that was given.
        value: Value,
    },
}

fn names(settings: &[Setting]) -> String {
    match settings {
        [] => "none".into(),
        _ => settings.iter().map(|setting| setting.name).collect::<Vec<_>>().join(", "),
    }
}

/// A line of a table.
pub struct Entry<T: ?Sized> {
    /// Its name in `config.toml` and on the command line.
    pub name: &'static str,
    /// What it is, in one line, with its source.
    pub about: &'static str,
    /// The settings that it has.
    pub settings: &'static [Setting],
    /// Makes one from a value for each of its settings ([`Settings::read`]).
    pub make: fn(&Settings) -> Box<T>,
}

impl<T: ?Sized> fmt::Debug for Entry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl<T: ?Sized> Entry<T> {
    /// The setting of that name, if it has one.
    pub fn setting(&self, name: &str) -> Option<&'static Setting> {
        self.settings.iter().find(|setting| setting.name == name)
    }

    /// A value for each of its settings: those given, else the defaults.
    ///
    /// # Errors
    ///
    /// A setting is given that this entry does not have, or with a value that it may not have.
    pub fn complete(&self, given: &Settings) -> Result<Settings, ChoiceError> {
        if let Some(setting) = given.0.keys().find(|name| self.setting(name).is_none()) {
            let (entry, setting, known) = (self.name, setting.clone(), self.settings);
            return Err(ChoiceError::NoSetting { entry, setting, known });
        }
        let value = |setting: &'static Setting| {
            let value = given.get(setting.name).unwrap_or(setting.default);
            if !setting.allowed.contains(value) {
                return Err(ChoiceError::NotAllowed { entry: self.name, setting, value });
            }
            Ok((setting.name.into(), value))
        };
        self.settings.iter().map(value).collect()
    }

    /// Makes one.
    ///
    /// # Errors
    ///
    /// As [`Entry::complete`].
    pub fn build(&self, given: &Settings) -> Result<Box<T>, ChoiceError> {
        Ok((self.make)(&self.complete(given)?))
    }
}

/// The entry of that name in a table that lists `kind`.
///
/// # Errors
///
/// There is none of that name; lists the known ones.
pub fn find<T: ?Sized>(
    kind: &'static str,
    table: &'static [Entry<T>],
    name: &str,
) -> Result<&'static Entry<T>, ChoiceError> {
    table.iter().find(|entry| entry.name == name).ok_or_else(|| {
        let known = table.iter().map(|entry| entry.name).collect();
        ChoiceError::Unknown { kind, name: name.into(), known }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: Entry<f64> = Entry {
        name: "product",
        about: "",
        settings: &[
            Setting::number("factor", 2.0, 0.0..f64::INFINITY, ""),
            Setting::number("share", 0.5, 0.0..1.0, ""),
            Setting::positive("size", 1.0, ""),
            Setting::flag("negative", ""),
        ],
        make: |settings| {
            #[derive(Deserialize)]
            struct Product {
                factor: f64,
                share: f64,
                size: f64,
                negative: bool,
            }
            let Product { factor, share, size, negative } = settings.read();
            Box::new(if negative { -factor * share * size } else { factor * share * size })
        },
    };

    #[test]
    fn what_is_not_given_has_its_default() {
        assert_eq!(*ENTRY.build(&Settings::default()).unwrap(), 1.0);
        let given = Settings::default().with("negative", true).with("factor", 6.0);
        assert_eq!(*ENTRY.build(&given).unwrap(), -3.0);
        let text = serde_json::to_string(&ENTRY.complete(&given).unwrap()).unwrap();
        assert_eq!(text, r#"{"factor":6.0,"negative":true,"share":0.5,"size":1.0}"#);
        assert_eq!(serde_json::from_str::<Settings>(r#"{"factor": 6, "negative": true}"#).unwrap(), given);
    }

    #[test]
    fn wrong_settings_are_named_with_what_is_right() {
        let error = |name: &str, value: Value| {
            ENTRY.build(&Settings::default().with(name, value)).unwrap_err().to_string()
        };
        for (name, value, words) in [
            ("speed", Value::Number(1.0), "no setting `speed`; it has factor, share, size, negative"),
            ("share", Value::Number(1.0), "share of product is 1; it must be at least 0 and below 1"),
            ("factor", Value::Number(f64::NAN), "it must be 0 or more"),
            ("factor", Value::Number(f64::INFINITY), "it must be 0 or more"),
            ("size", Value::Number(0.0), "it must be greater than 0"),
            ("size", Value::Number(f64::NAN), "it must be greater than 0"),
            ("factor", Value::Flag(true), "factor of product is true; it must be 0 or more"),
            ("negative", Value::Number(1.0), "it must be true or false"),
        ] {
            assert!(error(name, value).contains(words), "{}", error(name, value));
        }
    }
}
