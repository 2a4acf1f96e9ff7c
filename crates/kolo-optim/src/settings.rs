//! Settings of a table entry, as data.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

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

impl Value {
    /// Returns the nearest `f32`, with which optimizers compute.
    pub fn in_f32(self) -> Self {
        match self {
            Value::Flag(_) => self,
            Value::Number(number) => Value::Number(f64::from(number as f32)),
        }
    }
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
            Value::Number(number) if *number != 0.0 && !(1e-3..1e16).contains(&number.abs()) => {
                write!(f, "{number:e}")
            }
            Value::Number(number) => number.fmt(f),
        }
    }
}

/// Parses a number as it is typed.
///
/// # Errors
///
/// The text is not a number, or one that `f64` holds as 0 or as infinity, so that messages would show another
/// one.
pub fn parse_number(text: &str) -> Result<f64, &'static str> {
    let number: f64 = text.parse().map_err(|_| "it is not a number")?;
    let digits = text.split(['e', 'E']).next().unwrap_or_default();
    match digits.contains(|digit: char| ('1'..='9').contains(&digit)) {
        true if number == 0.0 => Err("it is nearer to 0 than any number of double precision"),
        true if number.is_infinite() => Err("it is beyond the numbers of double precision"),
        _ => Ok(number),
    }
}

/// Largest whole number of a setting: up to there `f64` has every one.
const MOST_WHOLE: u64 = 1 << 53;

/// Allowed values of a setting.
#[derive(Clone, Debug, PartialEq)]
pub enum Allowed {
    /// `true` or `false`.
    Flag,
    /// Number in this half-open range. An infinite end means no upper limit.
    Number(Range<f64>),
    /// A number greater than 0.
    Positive,
    /// Whole number in this half-open range. The end `u64::MAX` means no limit but that of `f64`, which has
    /// every whole number up to 2⁵³.
    Whole(Range<u64>),
}

impl Allowed {
    /// Returns true if the nearest `f32` is allowed as well. Whole numbers are counts and are never rounded.
    pub(crate) fn contains_in_f32(&self, value: Value) -> bool {
        matches!(self, Allowed::Whole(_)) || self.contains(value.in_f32())
    }

    pub(crate) fn contains(&self, value: Value) -> bool {
        match (self, value) {
            (Allowed::Flag, Value::Flag(_)) => true,
            (Allowed::Number(range), Value::Number(number)) => range.contains(&number),
            (Allowed::Positive, Value::Number(number)) => number > 0.0 && number.is_finite(),
            (Allowed::Whole(range), Value::Number(number)) => {
                let is_count = number.fract() == 0.0 && (0.0..=MOST_WHOLE as f64).contains(&number);
                is_count && range.contains(&(number as u64))
            }
            _ => false,
        }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Allowed::Flag => write!(f, "true or false"),
            Allowed::Number(range) if range.end == f64::INFINITY => {
                write!(f, "{} or more, and finite", range.start)
            }
            Allowed::Number(range) => write!(f, "at least {} and below {}", range.start, range.end),
            Allowed::Positive => write!(f, "greater than 0, and finite"),
            Allowed::Whole(range) if range.end == u64::MAX => {
                write!(f, "a whole number of {} or more, at most {MOST_WHOLE}", range.start)
            }
            Allowed::Whole(range) => write!(f, "a whole number from {} to {}", range.start, range.end - 1),
        }
    }
}

/// A setting of an [`Entry`](crate::table::Entry).
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Name in `config.toml`; the command line has `-` in place of `_`.
    pub name: &'static str,
    /// Value if none is given.
    pub default: Value,
    /// Allowed values.
    pub allowed: Allowed,
    /// Description in one line.
    pub about: &'static str,
}

impl Setting {
    /// Creates a setting that is a number in the range `allowed`.
    pub const fn number(name: &'static str, default: f64, allowed: Range<f64>, about: &'static str) -> Self {
        Setting { name, default: Value::Number(default), allowed: Allowed::Number(allowed), about }
    }

    /// Creates a setting that is a number greater than 0.
    pub const fn positive(name: &'static str, default: f64, about: &'static str) -> Self {
        Setting { name, default: Value::Number(default), allowed: Allowed::Positive, about }
    }

    /// Creates a setting that is a whole number in the range `allowed`.
    pub const fn whole(name: &'static str, default: u64, allowed: Range<u64>, about: &'static str) -> Self {
        Setting { name, default: Value::Number(default as f64), allowed: Allowed::Whole(allowed), about }
    }

    /// Creates a flag that is off by default.
    pub const fn flag(name: &'static str, about: &'static str) -> Self {
        Setting { name, default: Value::Flag(false), allowed: Allowed::Flag, about }
    }

    /// Turns the flag on by default.
    pub const fn on(self) -> Self {
        Setting { default: Value::Flag(true), ..self }
    }
}

/// Values of settings by name. A setting that is absent has its default.
///
/// ```
/// use kolo_optim::{Settings, named};
///
/// let adamw = named("adamw", &Settings::default().with("weight_decay", 0.1))?;
/// assert_eq!(adamw.name(), "adamw");
/// # Ok::<(), kolo_optim::ChoiceError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Settings(BTreeMap<String, Value>);

impl Settings {
    /// Sets a value, replacing an earlier one.
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.into(), value.into());
        self
    }

    /// Returns the value of a setting, if it is given.
    pub fn get(&self, name: &str) -> Option<Value> {
        self.0.get(name).copied()
    }

    /// Returns the names of the given settings.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns true if no value is given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the fields of a struct as settings, the inverse of [`Settings::read`]. An `f32` becomes the
    /// shortest number that rounds to it.
    ///
    /// # Panics
    ///
    /// Panics if a field is neither a number nor a flag.
    pub fn of<S: Serialize>(settings: &S) -> Self {
        let text = serde_json::to_string(settings);
        text.and_then(|text| serde_json::from_str(&text)).expect("settings are numbers and flags")
    }

    /// Reads the settings into a struct with one field for each setting of the entry.
    ///
    /// # Panics
    ///
    /// Panics if the struct's fields differ from the settings of the entry that completed these settings.
    pub fn read<S: DeserializeOwned>(&self) -> S {
        let values = serde_json::to_value(self);
        values.and_then(serde_json::from_value).expect("an entry lists the fields of its settings")
    }
}

/// Writes `momentum=0.9,nesterov=true`, sorted by name.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (name, value)) in self.0.iter().enumerate() {
            write!(f, "{}{name}={value}", if n == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// Reads `momentum=0.9,nesterov=true`; blanks around names and values are ignored.
impl FromStr for Settings {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        text.split(',').try_fold(Settings::default(), |settings, setting| {
            let (name, value) = setting.split_once('=').ok_or("a setting has no value")?;
            let (name, value) = (name.trim(), value.trim());
            if settings.get(name).is_some() {
                return Err("a setting is given twice");
            }
            match (value.parse::<bool>(), parse_number(value)) {
                (Ok(flag), _) => Ok(settings.with(name, flag)),
                (_, Ok(number)) => Ok(settings.with(name, number)),
                (_, Err(problem)) if value.parse::<f64>().is_ok() => Err(problem),
                _ => Err("a value must be a number, true or false"),
            }
        })
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
