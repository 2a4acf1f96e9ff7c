//! Division of a run's state among its workers.

use kolo_ddp::Sharding;
use kolo_ddp::straggler::Policy;
use kolo_ddp::sync::{Exclusion, JobSetting};

use super::Recipe;
use super::sync::remedy;
use crate::error::Error;

const SHARD: &str = "--shard";

impl Recipe {
    /// Returns the state of which each worker holds a part only.
    ///
    /// # Errors
    ///
    /// There is none of that name; lists the known ones.
    pub fn sharding(&self) -> Result<Sharding, Error> {
        let found = Sharding::ALL.iter().find(|(name, _)| *name == self.shard);
        let unknown = || Error::unknown(SHARD, &self.shard, Sharding::ALL.map(|(name, _)| name));
        found.map(|(_, sharding)| *sharding).ok_or_else(unknown)
    }

    /// Returns the option because of which the run cannot go on without one of its workers, as it was given;
    /// `None` if it can.
    pub fn needs_all_workers(&self) -> Option<String> {
        let sync = &self.sync.mode;
        let of_sync = sync.traits().staleness_bound.map(|_| format!("--sync {sync}"));
        let is_divided = self.shard != Sharding::Nothing.name();
        of_sync.or_else(|| is_divided.then(|| format!("{SHARD} {}", self.shard)))
    }

    /// Checks the division beside the other settings of a run.
    pub(super) fn check_sharding(&self) -> Result<(), Error> {
        let refused = |problem| Err(Error::setting(SHARD, &self.shard, problem));
        let sharding = self.sharding()?;
        if sharding != Sharding::Nothing && self.straggler()? == Policy::Drop {
            return refused(
                "its workers cannot continue with fewer; take --straggler warn or rebalance".into(),
            );
        }
        match sharding.exclusion(&JobSetting::of(&self.ddp()?)) {
            Some(Exclusion { setting, why }) => refused(format!("it {why}; {}", remedy(setting))),
            None => Ok(()),
        }
    }

    /// Checks the division in a job of so many summation servers.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if it does without servers, and there are some.
    pub fn check_sharding_with_servers(&self, servers: usize) -> Result<(), Error> {
        let excluded = self.sharding()?.exclusion(&[JobSetting::Servers]);
        match excluded.filter(|_| servers > 0) {
            Some(Exclusion { setting, why }) => {
                Err(Error::setting(SHARD, &self.shard, format!("it {why}; {}", remedy(setting))))
            }
            None => Ok(()),
        }
    }
}
