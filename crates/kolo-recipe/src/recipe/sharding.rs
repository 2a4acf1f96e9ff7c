//! Division of a run's state among its workers.

use kolo_ddp::straggler::Policy;
use kolo_ddp::sync::{Exclusion, JobSetting};
use kolo_ddp::{Sharding, check_offload_folder};

use super::Recipe;
use super::sync::remedy;
use crate::error::Error;

const SHARD: &str = "--shard";

/// Setting because of which a run cannot go on without one of its workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeedsAll {
    /// The option, as it was given.
    pub option: String,
    /// Option that lets the run go on nevertheless, if there is one.
    pub remedy: Option<&'static str>,
}

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

    /// Returns the setting because of which the run cannot go on without one of its workers; `None` if it
    /// can.
    pub fn needs_all_workers(&self) -> Option<NeedsAll> {
        let sync = &self.sync.mode;
        let of_sync = || NeedsAll { option: format!("--sync {sync}"), remedy: None };
        let of_shard = || NeedsAll { option: format!("{SHARD} {}", self.shard), remedy: self.second_owner() };
        match sync.traits().staleness_bound {
            Some(_) => Some(of_sync()),
            None => (self.is_divided() && self.redundancy < 2).then(of_shard),
        }
    }

    /// Returns the option with which each part of the state would have a second owner, if it can have one.
    fn second_owner(&self) -> Option<&'static str> {
        Recipe { redundancy: 2, ..self.clone() }.check().is_ok().then_some("--redundancy 2")
    }

    /// Returns true if each worker holds a part of some state only, which dies with its owners.
    pub fn is_divided(&self) -> bool {
        ![Sharding::Nothing, Sharding::Host].map(Sharding::name).contains(&&*self.shard)
    }

    /// Returns true if the workers of the host have one copy of all state.
    pub fn is_shared(&self) -> bool {
        self.shard == Sharding::Host.name()
    }

    /// Returns the state that the run could divide, by its names; none if it divides some already.
    pub fn divisible(&self) -> Vec<&'static str> {
        let can = |shard: &&str| Recipe { shard: shard.to_string(), ..self.clone() }.check().is_ok();
        let names = Sharding::ALL.into_iter().skip(1).map(|(name, _)| name);
        if self.is_divided() || self.is_shared() { Vec::new() } else { names.filter(can).collect() }
    }

    /// Returns true if the optimizer's state could be in a file, and is not already.
    pub fn could_offload(&self) -> bool {
        self.offload.is_none() && Recipe { offload: Some("/".into()), ..self.clone() }.check().is_ok()
    }

    /// Checks that the folder for the optimizer's state can have a file on this host.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if it is missing, or not writable.
    pub fn check_offload_folder(&self) -> Result<(), Error> {
        let Some(folder) = &self.offload else { return Ok(()) };
        let refused = |problem| Error::setting("--offload", folder.display(), problem);
        check_offload_folder(folder).map_err(refused)
    }

    /// Checks the division beside the other settings of a run.
    pub(super) fn check_sharding(&self) -> Result<(), Error> {
        let refused = |problem| Err(Error::setting(SHARD, &self.shard, problem));
        let sharding = self.sharding()?;
        if self.redundancy > 2 {
            let problem = "each part of the state has 1 or 2 workers that hold it; give 1 or 2";
            return Err(Error::setting("--redundancy", self.redundancy, problem));
        }
        if self.redundancy > 1 && self.is_shared() {
            let problem = "--shard host keeps state in memory that outlives each worker; set redundancy to 1";
            return Err(Error::setting("--redundancy", self.redundancy, problem));
        }
        if self.redundancy > 1 && !self.is_divided() {
            let add = match &*self.divisible() {
                [] => String::new(),
                [only] => format!("add {SHARD} {only}, or "),
                [others @ .., last] => format!("add {SHARD} {} or {last}, or ", others.join(", ")),
            };
            let problem = format!("without {SHARD} each worker holds all of the state; {add}set it to 1");
            return Err(Error::setting("--redundancy", self.redundancy, problem));
        }
        if self.is_divided() && self.redundancy < 2 && self.straggler()? == Policy::Drop {
            let or = self.second_owner().map_or(String::new(), |remedy| format!(", or {remedy}"));
            return refused(format!(
                "its workers cannot continue with fewer; take --straggler warn or rebalance{or}"
            ));
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
