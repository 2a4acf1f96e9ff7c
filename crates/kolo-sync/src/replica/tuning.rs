//! Tuning of a replica: sends the times of its steps, receives those of all ranks, and runs the next steps
//! by the setting that the [`Tuner`] chooses. All ranks receive the same times, so all make the same choice.

use kolo_comm::schedule::{ALGORITHMS, Algorithm, ownership_by_rate, slowest_share};
use kolo_comm::{Collective, DType, Group};

use super::core::Core;
use super::tuning_observer::TuningObserver;
use crate::config::Config;
use kolo_reduction::{BucketCaps, Error};
use kolo_step::{Effort, Received, Space, TunedSetting, Tuner, Verdict};

/// Name of the algorithm whose ranks may add unequal parts of a sum.
const BY_LINKS: &str = "direct";
/// Links count as different if dividing the work by their rates makes the slowest one's time less than this
/// fraction of its present time.
const LINKS_DIFFER: f64 = 0.95;
/// An algorithm is tried only if its predicted time is less than this many times the best one's.
const HOPELESS: f64 = 2.0;

/// Returns an error if a job is tuned on a group whose sums depend on how they are cut.
pub(crate) fn check_group(config: &Config, group: &Group) -> Result<(), Error> {
    match adds_in_another_order(group).filter(|_| config.tune) {
        Some(who) => Err(Error::Setting(format!(
            "tuning (`Config::tune`) cuts sums anew, and {who} adds in an order that depends on how they are cut, so the bits \
             would change: leave one of them out"
        ))),
        None => Ok(()),
    }
}

/// Returns the transport or algorithm that does not add in tree order for sums of every length, if there is
/// one.
fn adds_in_another_order(group: &Group) -> Option<String> {
    let choice = group.explain(&Collective::AllReduce(kolo_comm::Op::Sum), 1, DType::F32);
    match choice {
        None if group.world_size() > 1 => Some(group.transport().into()),
        Some(choice) if !choice.algorithm.keeps_tree => {
            Some(format!("the algorithm {}", choice.algorithm.name))
        }
        _ => None,
    }
}

fn named(name: Option<&str>) -> Option<&'static Algorithm> {
    ALGORITHMS.iter().find(|algorithm| Some(algorithm.name) == name)
}

impl Core {
    /// Begins tuning, if it is enabled, before the first step of `group`, whose buckets have these caps.
    pub(crate) fn begin_tuning(&mut self, group: &Group, caps: BucketCaps) {
        let wished =
            self.config.tune || self.observers.verifier.tunes() && adds_in_another_order(group).is_none();
        let tunes = wished && self.config.can_be_tuned() && group.world_size() > 1;
        let is_hasty = self.observers.tuning.is_hasty || self.observers.verifier.tunes();
        let effort = if is_hasty { Effort::Hasty } else { Effort::Measured };
        let tuner = tunes.then(|| Tuner::new(effort, TunedSetting::untuned(caps, group)));
        self.observers.tuning = TuningObserver { tuner, is_hasty, ..TuningObserver::default() };
    }

    /// Same as `Replica::tune_hastily_for_tests`.
    pub fn tune_hastily(&mut self) {
        self.observers.tuning.is_hasty = true;
        let tuner = self.observers.tuning.tuner.take();
        self.observers.tuning.tuner = tuner.map(|tuner| Tuner::new(Effort::Hasty, tuner.current().clone()));
    }

    /// Chooses the setting of the next steps from the times of all ranks, at the end of a step.
    /// `shards_changed`: shards move between ranks from now on.
    pub(crate) fn tune(&mut self, received: &Received, shards_changed: bool) -> Result<(), Error> {
        let Some(mut tuner) = self.observers.tuning.tuner.take() else { return Ok(()) };
        let result = self.tune_by(&mut tuner, received, shards_changed);
        self.observers.tuning.tuner = Some(tuner);
        result
    }

    fn tune_by(&mut self, tuner: &mut Tuner, received: &Received, shards_changed: bool) -> Result<(), Error> {
        if shards_changed {
            tuner.restart();
            // Moving shards has discarded the division of additions among ranks.
            return self.run_by(tuner.current());
        }
        let is_known = !received.seconds.is_empty() && received.seconds.iter().all(|seconds| *seconds > 0.0);
        if !is_known {
            return Ok(());
        }
        if tuner.is_waiting() {
            if tuner.is_hasty() || !self.step.is_profiling() {
                self.apply_outstanding()?;
                let space = self.space(tuner.current())?;
                tuner.begin(space);
            }
            return Ok(());
        }
        match tuner.step(received.seconds.iter().copied().fold(0.0, f64::max)) {
            Verdict::Stay => {}
            Verdict::Try(setting) => self.run_by(&setting)?,
            Verdict::Keep(mut tuning) => {
                self.run_by(&tuning.kept)?;
                tuning.link_rates.clone_from(&self.observers.tuning.link_rates);
                self.observers.tuning.kept = Some(*tuning);
            }
            Verdict::Again => {
                self.apply_outstanding()?;
                self.step.profile_again();
            }
        }
        Ok(())
    }

    /// Runs the next steps with `setting`.
    fn run_by(&mut self, setting: &TunedSetting) -> Result<(), Error> {
        log::debug!("the next steps have {setting}");
        self.apply_outstanding()?;
        self.step.tune(setting)?;
        self.ranks.group.prefer_algorithm(named(setting.algorithm));
        self.ranks.group.use_streams(setting.streams);
        Ok(())
    }

    /// Returns the settings to try. A collective, which measures links.
    fn space(&mut self, current: &TunedSetting) -> Result<Space, Error> {
        self.observers.tuning.link_rates = self.ranks.group.link_rates()?;
        let (mut algorithms, adds_by_links) = self.algorithms();
        self.ranks.group.prefer_algorithm(named(current.algorithm));
        let rates = self.observers.tuning.link_rates.as_ref().filter(|_| adds_by_links);
        let uneven = rates.filter(|rates| slowest_share(rates) < LINKS_DIFFER);
        let ownership = uneven.map(|rates| ownership_by_rate(rates));
        algorithms.retain(|name| Some(*name) != current.algorithm);
        Ok(self.step.space(algorithms, ownership, self.ranks.group.streams().1))
    }

    /// Returns the algorithms that can sum the job's longest bucket, besides the cost model's choice; and
    /// true if ranks may add unequal parts of it.
    fn algorithms(&self) -> (Vec<&'static str>, bool) {
        let len = self.step.buckets().map(|bucket| bucket.len).max().unwrap_or(0);
        let sum = Collective::tree_sum(self.step.contributions(), len);
        let explain = |preferred: Option<&str>| {
            self.ranks.group.prefer_algorithm(named(preferred));
            self.ranks.group.explain(&sum, len, DType::F32)
        };
        let Some(own) = explain(None).filter(|_| self.config.reduction.is_sum()) else {
            return (Vec::new(), false);
        };
        // An algorithm that the user chose overrides the preferred one.
        let can = |name: &str| explain(Some(name)).is_some_and(|choice| choice.algorithm.name == name);
        let best = own.predicted.first().map_or(0.0, |(_, seconds)| *seconds);
        let others = own
            .predicted
            .iter()
            .filter(|(name, seconds)| *name != own.algorithm.name && *seconds < HOPELESS * best && can(name));
        let adds_by_links = !self.ranks.servers.contains(&true) && can(BY_LINKS);
        (others.map(|(name, _)| *name).collect(), adds_by_links)
    }
}
