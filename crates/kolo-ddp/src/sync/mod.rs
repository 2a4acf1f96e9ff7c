//! How often the shards of a job synchronise: in every step, or rarely, as islands (local SGD, DiLoCo), or
//! in every step with updates that are one step late (`delayed`, which `replica/delayed.rs` explains), or not
//! at once, through servers (`stale`, which `replica/stale` explains).
//!
//! An *island* is some of the job's shards, which train on a model of their own, with an optimizer of their
//! own, and synchronise every step among themselves. After a *round* of H steps an *outer step* brings all
//! islands to the same weights. Islands belong to the job, not to the cluster, so the bits do not depend on
//! the number of workers. What a replica does with them is in `replica/islands`.

mod division;
mod table;

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) use self::division::{Island, divide, spanning};
pub use self::table::{Rounds, SYNCS, Synchronisation};
use crate::error::Error;
use kolo_optim::Settings;
use kolo_optim::table::{self as tables, Choice, Entry};

/// The entry of that name in [`SYNCS`].
///
/// # Errors
///
/// There is none of that name; lists the known ones.
pub fn find(name: &str) -> Result<&'static Entry<Synchronisation>, Error> {
    Ok(tables::find("mode of synchronisation", SYNCS, name)?)
}

/// An entry of [`SYNCS`] with its settings: what a configuration holds. As text `NAME` or
/// `NAME:SETTING=VALUE,…`, such as `diloco:H=50,outer_lr=0.7`; in a setting's name `-` is as good as `_`, and
/// a number alone is the value of the mode's first setting, as in `delayed:1`.
#[derive(Clone, Debug, PartialEq)]
pub struct SyncMode {
    name: &'static str,
    /// Those that were given.
    settings: Settings,
    synchronisation: Synchronisation,
}

impl SyncMode {
    /// The mode that a choice describes.
    ///
    /// # Errors
    ///
    /// There is none of that name, it has no such setting, a value is not allowed, or a number of steps is
    /// not whole.
    pub fn new(choice: &Choice) -> Result<Self, Error> {
        let entry = find(&choice.name)?;
        let synchronisation = *entry.build(&choice.settings)?;
        Ok(SyncMode { name: entry.name, settings: choice.settings.clone(), synchronisation })
    }

    /// Name of the table's entry.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Whether islands synchronise rarely.
    pub fn is_rare(&self) -> bool {
        self.rounds().is_some()
    }

    /// The rounds, where islands synchronise rarely; else `None`.
    pub fn rounds(&self) -> Option<Rounds> {
        match self.synchronisation {
            Synchronisation::Rounds(rounds) => Some(rounds),
            _ => None,
        }
    }

    /// How many steps a worker may be ahead of the slowest one, where servers hold the weights; else `None`.
    pub fn staleness_bound(&self) -> Option<u64> {
        match self.synchronisation {
            Synchronisation::Stale { bound } => Some(bound),
            _ => None,
        }
    }

    /// Whether updates are one step late.
    pub fn is_delayed(&self) -> bool {
        self.synchronisation == Synchronisation::Delayed
    }
}

/// Every step.
impl Default for SyncMode {
    fn default() -> Self {
        let synchronisation = Synchronisation::EveryStep;
        SyncMode { name: SYNCS[0].name, settings: Settings::default(), synchronisation }
    }
}

impl fmt::Display for SyncMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Choice { name: self.name.into(), settings: self.settings.clone() }.fmt(f)
    }
}

/// As its text.
impl Serialize for SyncMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SyncMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl FromStr for SyncMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let Some((name, settings)) = text.split_once(':') else {
            return SyncMode::new(&Choice::new(text.trim()));
        };
        let first = find(name.trim())?.settings.first();
        let complete = |setting: &str| match (setting.split_once('='), first) {
            (Some((name, value)), _) => format!("{}={value}", name.replace('-', "_")),
            (None, Some(first)) if setting.trim().parse::<f64>().is_ok() => {
                format!("{}={}", first.name, setting.trim())
            }
            // A flag needs no value.
            (None, _) => format!("{}=true", setting.trim().replace('-', "_")),
        };
        let settings = settings.split(',').map(complete).collect::<Vec<_>>().join(",");
        let choice: Choice = format!("{name}:{settings}").parse()?;
        SyncMode::new(&choice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["every-step", "local", "local:H=4", "post-local:H=4,T=100", "diloco:H=50,outer_lr=0.5"] {
            let mode: SyncMode = text.parse().unwrap();
            assert_eq!(mode.to_string(), text);
            assert_eq!(mode.rounds().is_none(), text == "every-step");
            assert_eq!((mode.staleness_bound(), mode.is_delayed()), (None, false));
        }
        for (text, whole, bound) in
            [("stale", "stale", 3), ("stale:0", "stale:K=0", 0), ("stale: 2", "stale:K=2", 2)]
        {
            let mode: SyncMode = text.parse().unwrap();
            assert_eq!(
                (mode.to_string().as_str(), mode.staleness_bound(), mode.rounds()),
                (whole, Some(bound), None)
            );
            assert_eq!(whole.parse::<SyncMode>().unwrap(), mode);
        }
        for text in ["delayed", "delayed:1", "delayed: 1", "delayed:steps=1"] {
            let mode: SyncMode = text.parse().unwrap();
            assert!(mode.is_delayed() && mode.rounds().is_none());
            assert_eq!(mode.to_string().parse::<SyncMode>().unwrap(), mode);
        }
        let mode: SyncMode = "diloco: outer-lr = 0.5, restart-inner".parse().unwrap();
        let rounds = mode.rounds().unwrap();
        assert_eq!(mode.to_string(), "diloco:outer_lr=0.5,restart_inner=true");
        assert_eq!((rounds.steps, rounds.outer_lr, rounds.outer_momentum), (50, 0.5, 0.9));
        assert!(rounds.restart_inner);
        assert_eq!(SyncMode::default(), "every-step".parse().unwrap());
    }

    #[test]
    fn what_cannot_be_read_is_told_with_what_is_right() {
        for (text, words) in [
            ("never", "unknown mode of synchronisation `never`; known are every-step, local"),
            ("every-step:H=2", "every-step has no setting `H`; it has none"),
            ("local:h=2", "local has no setting `h`; it has H, restart_inner"),
            ("local:H", "H of local is true; it must be a whole number of 1 or more"),
            ("local:H=many", "a value must be a number, true or false"),
            ("local:H=2,H=3", "given twice"),
            ("local:H=2.5", "H of local is 2.5; it must be a whole number of 1 or more"),
            ("local:H=0", "H of local is 0; it must be a whole number of 1 or more"),
            ("stale:-1", "K of stale is -1; it must be"),
            ("stale:1.5", "K of stale is 1.5; it must be"),
            ("stale:s=2", "stale has no setting `s`; it has K"),
            ("delayed:2", "steps of delayed is 2; it must be a whole number from 1 to 1"),
            ("delayed:0", "steps of delayed is 0; it must be"),
            ("delayed:H=1", "delayed has no setting `H`; it has steps"),
            ("every-step:3", "every-step has no setting `3`; it has none"),
            ("diloco:outer_momentum=1", "it must be at least 0 and below 1"),
        ] {
            let error = text.parse::<SyncMode>().unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
