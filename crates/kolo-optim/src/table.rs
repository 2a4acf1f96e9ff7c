//! Tables of things chosen by name: optimizers, and the gradient transforms of `kolo_ddp`. Each entry has its
//! own settings.
//!
//! An entry lists its settings as data, with defaults and allowed values. The command line, its help,
//! `config.toml` and the tests read that list, so a new entry changes none of them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use crate::settings::{Allowed, Setting, Settings, Value, parse_number};

/// Name of a table entry with its settings, as a configuration holds it.
///
/// ```
/// use kolo_optim::table::Choice;
///
/// let choice = Choice::new("sgd").with("momentum", 0.9);
/// assert_eq!(choice.to_string(), "sgd:momentum=0.9");
/// assert_eq!("sgd:momentum=0.9".parse::<Choice>()?, choice);
/// # Ok::<(), kolo_optim::ChoiceError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// Name of the entry.
    pub name: String,
    /// Settings that differ from their defaults.
    #[serde(default)]
    pub settings: Settings,
}

impl Choice {
    /// Creates a choice of this entry with default settings.
    pub fn new(name: &str) -> Self {
        Choice { name: name.into(), settings: Settings::default() }
    }

    /// Sets one more setting.
    pub fn with(self, name: &str, value: impl Into<Value>) -> Self {
        Choice { settings: self.settings.with(name, value), ..self }
    }
}

/// Writes the form of the command line: `NAME`, or `NAME:setting=value,…`.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let colon = if self.settings.is_empty() { "" } else { ":" };
        write!(f, "{}{colon}{}", self.name, self.settings)
    }
}

/// Reads the displayed form.
impl FromStr for Choice {
    type Err = ChoiceError;

    fn from_str(text: &str) -> Result<Self, ChoiceError> {
        let Some((name, settings)) = text.split_once(':') else { return Ok(Choice::new(text.trim())) };
        let syntax_error = |problem| ChoiceError::Syntax { text: text.into(), problem };
        Ok(Choice { name: name.trim().into(), settings: settings.parse().map_err(syntax_error)? })
    }
}

/// Error in a name or in settings.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages name the fields")]
pub enum ChoiceError {
    /// The text is not a name with settings.
    #[error("`{text}` is not NAME:setting=value,…: {problem}")]
    Syntax { text: String, problem: &'static str },
    /// The table has no entry of that name.
    #[error("unknown {kind} `{name}`; known are {}", known.join(", "))]
    Unknown { kind: &'static str, name: String, known: Box<[&'static str]> },
    /// The entry has no such setting.
    #[error("{entry} has no setting `{setting}`; it has {}", names(known))]
    NoSetting { entry: &'static str, setting: String, known: &'static [Setting] },
    /// The value is not allowed for the setting.
    #[error("{} of {entry} is {value}; it must be {}", setting.name, setting.allowed)]
    NotAllowed { entry: &'static str, setting: &'static Setting, value: Value },
    /// Rounded to `f32`, the value is not allowed for the setting.
    #[error(
        "{} of {entry} is {value}, which is {} in single precision; it must be {}",
        setting.name, value.in_f32(), setting.allowed
    )]
    Rounded { entry: &'static str, setting: &'static Setting, value: Value },
}

fn names(settings: &[Setting]) -> String {
    match settings {
        [] => "none".into(),
        _ => settings.iter().map(|setting| setting.name).collect::<Vec<_>>().join(", "),
    }
}

/// Line of a table.
pub struct Entry<T: ?Sized> {
    /// Name in `config.toml` and on the command line.
    pub name: &'static str,
    /// Description in one line, with its source.
    pub about: &'static str,
    /// Settings of the entry.
    pub settings: &'static [Setting],
    /// Constructor, which takes a value for each setting ([`Settings::read`]).
    pub make: fn(&Settings) -> Box<T>,
}

impl<T: ?Sized> fmt::Debug for Entry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl<T: ?Sized> Entry<T> {
    /// Returns the setting with this name, if the entry has it.
    pub fn setting(&self, name: &str) -> Option<&'static Setting> {
        self.settings.iter().find(|setting| setting.name == name)
    }

    /// Returns the default of each setting.
    pub fn defaults(&self) -> Settings {
        self.settings.iter().map(|setting| (setting.name.into(), setting.default)).collect()
    }

    /// Returns a value for each setting: the given one, or else the default.
    ///
    /// # Errors
    ///
    /// Returns an error if `given` has a setting that this entry lacks, or a value that is not allowed,
    /// either as given or rounded to `f32`.
    pub fn complete(&self, given: &Settings) -> Result<Settings, ChoiceError> {
        if let Some(setting) = given.names().find(|name| self.setting(name).is_none()) {
            let (entry, setting, known) = (self.name, setting.to_string(), self.settings);
            return Err(ChoiceError::NoSetting { entry, setting, known });
        }
        let value = |setting: &'static Setting| {
            let value = given.get(setting.name).unwrap_or(setting.default);
            if !setting.allowed.contains(value) {
                return Err(ChoiceError::NotAllowed { entry: self.name, setting, value });
            }
            if !setting.allowed.contains_in_f32(value) {
                return Err(ChoiceError::Rounded { entry: self.name, setting, value });
            }
            Ok((setting.name.into(), value))
        };
        self.settings.iter().map(value).collect()
    }

    /// Builds the entry's object. Fails as [`Entry::complete`] does.
    pub fn build(&self, given: &Settings) -> Result<Box<T>, ChoiceError> {
        Ok((self.make)(&self.complete(given)?))
    }
}

/// Returns the entry with this name in a table that lists `kind`.
///
/// # Errors
///
/// Returns [`ChoiceError::Unknown`], which lists the known names, if there is no such entry.
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
            Setting::whole("count", 1, 1..u64::MAX, ""),
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
    fn missing_settings_have_their_defaults() {
        assert_eq!(*ENTRY.build(&Settings::default()).unwrap(), 1.0);
        let given = Settings::default().with("negative", true).with("factor", 6.0);
        assert_eq!(*ENTRY.build(&given).unwrap(), -3.0);
        let text = serde_json::to_string(&ENTRY.complete(&given).unwrap()).unwrap();
        assert_eq!(text, r#"{"count":1.0,"factor":6.0,"negative":true,"share":0.5,"size":1.0}"#);
        assert_eq!(serde_json::from_str::<Settings>(r#"{"factor": 6, "negative": true}"#).unwrap(), given);
    }

    #[test]
    fn a_choice_is_read_as_it_is_displayed() {
        for text in ["product", "product:factor=2.5", "product:factor=1e-4,negative=true"] {
            let choice: Choice = text.parse().unwrap();
            assert_eq!((choice.name.as_str(), choice.to_string().as_str()), ("product", text));
        }
        let wrong = |text: &str| text.parse::<Choice>().unwrap_err().to_string();
        for (text, problem) in [
            ("a:b", "no value"),
            ("a:b=x", "must be a number"),
            ("a:b=1,b=2", "given twice"),
            ("a:", "no value"),
        ] {
            assert!(wrong(text).contains(&format!("`{text}`")) && wrong(text).contains(problem), "{text}");
        }
    }

    #[test]
    fn a_number_that_would_be_shown_as_another_one_is_refused() {
        for (text, number) in [("0", 0.0), ("-0.00e9", 0.0), ("1e-300", 1e-300), ("-1.5", -1.5)] {
            assert_eq!(parse_number(text), Ok(number), "{text}");
        }
        assert_eq!(parse_number("inf"), Ok(f64::INFINITY));
        for (text, words) in [("1e-400", "nearer to 0"), ("-1e400", "beyond"), ("0.1.2", "not a number")] {
            assert!(parse_number(text).unwrap_err().contains(words), "{text}");
        }
        let error = "dgc:momentum=1e-400".parse::<Choice>().unwrap_err().to_string();
        assert!(error.contains("nearer to 0"), "{error}");
    }

    #[test]
    fn wrong_settings_are_named_with_the_allowed_values() {
        let error = |name: &str, value: Value| {
            ENTRY.build(&Settings::default().with(name, value)).unwrap_err().to_string()
        };
        for (name, value, message) in [
            ("speed", Value::Number(1.0), "no setting `speed`; it has factor, share, size, negative, count"),
            ("share", Value::Number(1.0), "share of product is 1; it must be at least 0 and below 1"),
            ("factor", Value::Number(f64::NAN), "it must be 0 or more"),
            ("factor", Value::Number(f64::INFINITY), "it must be 0 or more, and finite"),
            ("size", Value::Number(f64::INFINITY), "it must be greater than 0, and finite"),
            (
                "count",
                Value::Number(1.9e19),
                "it must be a whole number of 1 or more, at most 9007199254740992",
            ),
            ("size", Value::Number(0.0), "it must be greater than 0"),
            ("size", Value::Number(f64::NAN), "it must be greater than 0"),
            ("factor", Value::Flag(true), "factor of product is true; it must be 0 or more"),
            ("negative", Value::Number(1.0), "it must be true or false"),
            (
                "share",
                Value::Number(0.99999999),
                "share of product is 0.99999999, which is 1 in single precision",
            ),
            ("factor", Value::Number(1e39), "factor of product is 1e39, which is inf in single precision"),
            ("size", Value::Number(1e-46), "size of product is 1e-46, which is 0 in single precision"),
        ] {
            assert!(error(name, value).contains(message), "{}", error(name, value));
        }
    }
}
