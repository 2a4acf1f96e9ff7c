//! The ways to synchronize by name.

use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::choice::SyncMode;
use super::exclusion::{Exclusion, JobSetting};
use super::mode::{Made, refused};
use super::synchronization::Synchronization;
use super::{delayed, every_step, islands, stale};
use crate::config::Config;
use kolo_optim::Optimizer;
use kolo_optim::table::{self as tables, Choice, Entry};
use kolo_reduction::Error;

/// All modes; the first one is the default.
pub static SYNCS: &[Entry<Synchronization>] = &[
    every_step::EVERY_STEP,
    islands::LOCAL,
    islands::POST_LOCAL,
    islands::DILOCO,
    delayed::DELAYED,
    stale::STALE,
];

/// Creates the mode that a configuration chooses, in a job of `world` ranks.
///
/// # Errors
///
/// A setting of the job excludes the mode.
pub fn make(config: &Config, world: usize, optimizer: Box<dyn Optimizer>) -> Result<Made, Error> {
    if let Some(exclusion) = config.sync.exclusion(&JobSetting::of(config)) {
        return Err(refused(config, &exclusion.problem()));
    }
    (find(config.sync.name)?.build(&config.sync.settings)?.make)(config, world, optimizer)
}

/// Returns the entry of that name in [`SYNCS`].
///
/// # Errors
///
/// No entry has that name; the error lists the known ones.
pub fn find(name: &str) -> Result<&'static Entry<Synchronization>, Error> {
    Ok(tables::find("mode of synchronization", SYNCS, name)?)
}

impl SyncMode {
    /// Returns the mode that a choice describes.
    ///
    /// # Errors
    ///
    /// No mode has that name, it has no such setting, a value is not allowed, or a number of steps is not
    /// whole.
    pub fn new(choice: &Choice) -> Result<Self, Error> {
        let entry = find(&choice.name)?;
        let traits = entry.build(&choice.settings)?.traits;
        Ok(SyncMode { name: entry.name, settings: choice.settings.clone(), traits })
    }
}

impl SyncMode {
    /// Returns the first of a job's settings that the mode excludes, if there is one.
    pub fn exclusion(&self, settings: &[JobSetting]) -> Option<Exclusion> {
        let excludes = find(self.name).ok()?.build(&self.settings).ok()?.excludes;
        let mut found = excludes.iter().filter(|(setting, _)| settings.contains(setting));
        found.next().map(|(setting, why)| Exclusion { setting: *setting, why })
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
            assert_eq!(mode.traits().rounds.is_none(), text == "every-step");
            assert_eq!((mode.traits().staleness_bound, mode.traits().is_delayed), (None, false));
        }
        for (text, whole, bound) in
            [("stale", "stale", 3), ("stale:0", "stale:K=0", 0), ("stale: 2", "stale:K=2", 2)]
        {
            let mode: SyncMode = text.parse().unwrap();
            assert_eq!(
                (mode.to_string().as_str(), mode.traits().staleness_bound, mode.traits().rounds),
                (whole, Some(bound), None)
            );
            assert_eq!(whole.parse::<SyncMode>().unwrap(), mode);
        }
        for text in ["delayed", "delayed:1", "delayed: 1", "delayed:steps=1"] {
            let mode: SyncMode = text.parse().unwrap();
            assert!(mode.traits().is_delayed && mode.traits().rounds.is_none());
            assert_eq!(mode.to_string().parse::<SyncMode>().unwrap(), mode);
        }
        let mode: SyncMode = "diloco: outer-lr = 0.5, restart-inner".parse().unwrap();
        let rounds = mode.traits().rounds.unwrap();
        assert_eq!(mode.to_string(), "diloco:outer_lr=0.5,restart_inner=true");
        assert_eq!((rounds.steps, rounds.outer_lr, rounds.outer_momentum), (50, 0.5, 0.9));
        assert!(rounds.restart_inner);
        assert_eq!(SyncMode::default(), "every-step".parse().unwrap());
    }

    #[test]
    fn what_cannot_be_read_is_told_with_what_is_right() {
        for (text, words) in [
            ("never", "unknown mode of synchronization `never`; known are every-step, local"),
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
