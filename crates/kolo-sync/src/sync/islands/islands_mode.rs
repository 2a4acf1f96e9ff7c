//! The islands of a rank, and what they do in each phase of a step.

use kolo_comm::{Group, Rank};

use super::counted::counted_from;
use super::division::divide;
use super::loss::IslandLoss;
use crate::config::Config;
use crate::replica::assignment;
use crate::replica::core::Core;
use crate::replica::report::StepReport;
use crate::same_settings::Stated;
use crate::sync::mode::{Mode, Passes, Standing};
use crate::sync::traits::Rounds;
use kolo_optim::Optimizer;
use kolo_reduction::{BucketCaps, Error};
use kolo_step::Agreed;

/// The islands of a rank.
pub(super) struct Islands {
    pub(super) rounds: Rounds,
    /// Number of islands of the job, except in the steps before the first round.
    pub(super) count: usize,
    /// Number of shards of the job, and of each rank.
    pub(super) shards: usize,
    pub(super) shares: Vec<usize>,
    /// Configuration of an island, except its shards.
    pub(super) config: Config,
    /// Template of the islands' optimizers, without state.
    pub(super) optimizer: Box<dyn Optimizer>,
    /// True while all shards synchronize every step, as one island.
    pub(super) together: bool,
    pub(super) own: Vec<OwnIsland>,
    /// Index of this rank's island whose pass is under way or comes next.
    pub(super) here: usize,
    /// Number of steps done when the round began.
    pub(super) began: u64,
    /// Learning rates of the round's steps.
    pub(super) rates: Vec<f64>,
    /// True if the next step is the last one of its round.
    pub(super) ends: bool,
    /// Number of steps skipped until the last outer step, counted for each island.
    pub(super) skipped: u64,
}

/// An island of which this rank holds shards, or which spans all ranks.
pub(super) struct OwnIsland {
    pub(super) number: usize,
    /// First shard of the island, and first rank that holds it.
    pub(super) first_shard: usize,
    pub(super) first_rank: usize,
    /// True if this rank represents the island in the outer step: it is the first one that holds a shard of
    /// it.
    pub(super) speaks: bool,
    pub(super) core: Core,
    /// Losses of each step of the round.
    pub(super) losses: Vec<IslandLoss>,
}

impl Islands {
    /// Returns the number of islands that the whole job has now.
    pub(super) fn formed(&self) -> usize {
        if self.together { 1 } else { self.count }
    }

    /// Returns the islands that this rank represents.
    pub(super) fn represented(&self) -> impl Iterator<Item = &OwnIsland> {
        self.own.iter().filter(|island| island.speaks)
    }

    fn here(&self) -> Option<&OwnIsland> {
        self.own.get(self.here)
    }
}

impl Mode for Islands {
    fn step(&mut self, core: &mut Core, rate: f64) -> Result<(StepReport, Agreed), Error> {
        self.step_of_all_islands(core, rate)
    }

    fn half_step_for_tests(&mut self, core: &mut Core, rate: f64) -> Result<(), Error> {
        self.begin_outer_step_for_tests(core, rate)
    }

    fn end_round(&mut self) {
        self.ends = true;
    }

    fn standing(&self) -> Standing {
        if self.rates.is_empty() { Standing::Whole } else { Standing::InRound { began: self.began } }
    }

    fn add_settings(&self, caps: Option<BucketCaps>, settings: &mut Stated) -> Result<(), Error> {
        let shards = Some(self.shards / self.count);
        let config = Config { shards, stated: Vec::new(), ..self.config.clone() };
        settings.set("shards", self.shards.to_string());
        settings.add_all("an island's", Stated::of_job(&config, caps, &*self.optimizer)?);
        Ok(())
    }

    /// Agrees with the other ranks on the holders of the islands' shards and on the rank that represents
    /// each island.
    fn divide(&mut self, core: &mut Core, group: &Group) -> Result<(), Error> {
        let (shares, _) = assignment::agree(group, &self.config, self.shards, &core.ranks.servers)?;
        let mut speakers = vec![0.0; group.world_size()];
        divide(&shares, self.count).iter().for_each(|island| speakers[island.first_holder()] += 1.0);
        self.shares = shares;
        core.config.shares = Some(speakers);
        Ok(())
    }

    fn form(&mut self, core: &mut Core, steps: u64) -> Result<(), Error> {
        self.skipped = 0;
        self.form_all(core, steps)?;
        if core.ranks.group.world_size() > 1 && core.ranks.group.rank() == Rank(0) {
            let (count, each) = (self.count, self.shards / self.count);
            log::info!("{count} islands of {each} shards, rounds of {} steps", self.rounds.steps);
        }
        Ok(())
    }

    fn go_on_at(&mut self, steps: u64) {
        self.began = steps;
        self.rates.clear();
        self.ends = false;
    }
}

impl Passes for Islands {
    fn next<'a>(&'a self, core: &'a Core) -> &'a Core {
        self.here().map_or(core, |island| &island.core)
    }

    fn next_mut<'a>(&'a mut self, core: &'a mut Core) -> &'a mut Core {
        self.own.get_mut(self.here).map_or(core, |island| &mut island.core)
    }

    fn begin(&mut self, _: &mut Core, loss: f64, count: f64) -> Result<u64, Error> {
        let first_step = self.first_step_of_optimizers();
        let island = self.own.get_mut(self.here).ok_or(Error::NoShardLeft { due: 0 })?;
        island.core.begin_pass(loss, count).map_err(|error| counted_from(first_step, error))
    }

    /// Moves on to this rank's next island if all passes of this one are over.
    fn end(&mut self, core: &mut Core, number: u64) -> Result<(), Error> {
        self.next_mut(core).step.end_shard(number)?;
        let is_last = self.here + 1 >= self.own.len();
        if !is_last && self.here().is_some_and(|island| island.core.step.has_all_passes()) {
            self.here += 1;
        }
        Ok(())
    }

    fn shares<'a>(&'a self, _: &'a Core) -> &'a [usize] {
        &self.shares
    }

    fn island(&self) -> Option<usize> {
        self.here().map(|island| island.number)
    }

    fn outstanding(&self, core: &Core) -> usize {
        let own = self.own.iter().map(|island| island.core.step.outstanding());
        core.step.outstanding() + own.sum::<usize>()
    }
}
