//! Islands: the parts of a job that synchronise every step among themselves, and rarely with each other
//! (local SGD, DiLoCo).
//!
//! A job with islands is made of replicas: each island is one, over those ranks that hold its shards, and so
//! is the outer step, over all ranks. The outer replica is the job's: it counts the steps, its values are
//! those with which a round begins, and it holds the [`Islands`] of its rank. Its shards are the islands: the
//! gradient of each is what that has come to in the round ([`round`]), so sum, compression and momentum are
//! those of any other step. A rank with several islands trains them one after another in each step; the one
//! whose pass is under way, or comes next, is [`Islands::here`].
//!
//! Between two outer steps ranks talk only within islands that several of them hold. Losses of all islands
//! are known after the outer step.
//!
//! In an elastic job members come and go after an outer step. A death takes all back to the end of an earlier
//! round, of which there are copies ([`copied`]): islands are formed anew from these.

mod copied;
mod forming;
mod loss;
mod round;
mod saved;

use std::ops::Range;

pub(super) use self::copied::IslandNotes;
pub(super) use self::forming::{Plan, another};
use self::loss::IslandLoss;
pub(crate) use self::saved::ISLAND_LOSS_SCALES;
use self::saved::IslandState;
use super::Replica;
use crate::buckets::BucketCaps;
use crate::config::Config;
use crate::error::Error;
use crate::same_settings::Stated;
use crate::step::Step;
use crate::sync::Rounds;
use kolo_optim::{Optimizer, SpanId};

/// The islands of a rank.
pub(super) struct Islands {
    rounds: Rounds,
    /// Islands of the job, apart from the steps before the first round.
    count: usize,
    /// Shards of the job, and how many of them each rank holds.
    shards: usize,
    shares: Vec<usize>,
    /// What an island is configured as, but for its shards.
    config: Config,
    /// What the islands' optimizers are made after. It has no state.
    optimizer: Box<dyn Optimizer>,
    /// Whether all shards still synchronise every step, as one island.
    together: bool,
    own: Vec<OwnIsland>,
    /// Which of this rank's islands has the pass that is under way or comes next.
    here: usize,
    /// Steps done when the round began.
    began: u64,
    /// The learning rates of the round's steps.
    rates: Vec<f64>,
    /// Whether the next step is to be the last one of its round.
    ends: bool,
    /// Steps that were skipped until the last outer step, those of each island counted.
    skipped: u64,
    /// On rank 0 the state of all islands when so many steps were done.
    gathered: Option<(u64, Vec<IslandState>)>,
}

/// An island of which this rank holds shards, or all ranks do.
struct OwnIsland {
    number: usize,
    /// Its first shard, and the first rank that holds it.
    first_shard: usize,
    first_rank: usize,
    /// Whether this rank is that one, which speaks for it in the outer step.
    speaks: bool,
    replica: Replica,
    /// For each step of the round.
    losses: Vec<IslandLoss>,
}

impl Islands {
    /// What the ranks of a job compare of its islands' settings, besides those of the outer step.
    pub(super) fn stated(&self, caps: Option<BucketCaps>) -> Result<Stated, Error> {
        let shards = Some(self.shards / self.count);
        let config = Config { shards, stated: Vec::new(), ..self.config.clone() };
        Stated::of_job(&config, caps, &*self.optimizer)
    }

    /// Shards of the job.
    pub(super) fn shards(&self) -> usize {
        self.shards
    }

    /// Islands that the whole job has now.
    fn formed(&self) -> usize {
        if self.together { 1 } else { self.count }
    }

    /// The optimizer that the islands' are made after.
    pub(super) fn optimizer(self) -> Box<dyn Optimizer> {
        self.optimizer
    }

    /// A round begins after so many steps, with islands that are to be formed anew.
    pub(super) fn begins_at(&mut self, steps: u64) {
        self.began = steps;
        self.rates.clear();
        self.ends = false;
    }

    /// Whether no step has been done since the last outer step.
    pub(super) fn is_between_rounds(&self) -> bool {
        self.rates.is_empty()
    }

    /// The island of this rank whose losses are scaled next.
    pub(super) fn next_island(&self) -> Option<&Replica> {
        self.own.get(self.here).map(|island| &island.replica)
    }

    /// Steps that were skipped until the last outer step, those of each island counted.
    pub(super) fn skipped(&self) -> u64 {
        self.skipped
    }

    fn here(&mut self) -> Option<&mut Replica> {
        self.own.get_mut(self.here).map(|island| &mut island.replica)
    }

    /// Goes on to this rank's next island if all passes of this one are over.
    fn go_on(&mut self) {
        let last = self.own.len().saturating_sub(1);
        if self.here < last && self.here().is_some_and(|replica| replica.step.has_all_passes()) {
            self.here += 1;
        }
    }
}

impl Replica {
    /// Where islands synchronise rarely: the next step is the last one of its round, so an outer step ends
    /// it. Where updates are one step late: that step's are made at its end, too. Where servers hold the
    /// weights (`stale`): after the next step all workers have all updates. Does nothing where each step ends
    /// with all of its updates. All ranks call it before the same step, such as the last one before a
    /// checkpoint or an evaluation.
    pub fn end_round(&mut self) {
        if let Some(islands) = &mut self.islands {
            islands.ends = true;
        }
        if let Some(stale) = &mut self.stale {
            stale.end_round();
        }
        if let Some(delay) = &mut self.delay {
            delay.end_round();
        }
    }

    /// Whether all ranks hold the values of one model, which lack nothing: always, except between two outer
    /// steps of islands, within a round where servers hold the weights, and while a gradient is on its way
    /// where updates are one step late.
    pub fn is_synchronised(&self) -> bool {
        self.islands.as_ref().is_none_or(Islands::is_between_rounds)
            && self.stale.as_ref().is_none_or(|stale| stale.is_between_rounds())
            && self.has_all()
    }

    /// Whether every step is one of all shards.
    pub(crate) fn synchronises_every_step(&self) -> bool {
        self.islands.is_none() && self.stale.is_none()
    }

    /// Of a round that has failed no step counts.
    pub(super) fn forget_round(&mut self) {
        let Some(islands) = &mut self.islands else { return };
        // An outer step may have come to its end, and something have failed after it.
        let ended = self.last.map_or(0, |last| last.step + 1);
        self.steps = islands.began.max(ended);
        islands.begins_at(self.steps);
    }

    /// The island whose values [`Replica::latest`] gives: the one whose pass is under way or comes next. A
    /// binding fills the model anew when it is another one. `None` where there are no islands, or this rank
    /// has no shards.
    pub fn island(&self) -> Option<usize> {
        let islands = self.islands.as_ref()?;
        islands.own.get(islands.here).map(|island| island.number)
    }

    /// For a pass's guard.
    pub(crate) fn step_mut(&mut self) -> &mut Step {
        match self.islands.as_mut().and_then(Islands::here) {
            Some(island) => &mut island.step,
            None => &mut self.step,
        }
    }

    /// A pass is over.
    pub(crate) fn end_pass(&mut self, number: u64) -> Result<(), Error> {
        self.step_mut().end_shard(number)?;
        if let Some(islands) = &mut self.islands {
            islands.go_on();
        }
        Ok(())
    }

    /// Begins a pass of the island that is next.
    pub(super) fn begin_pass_of_island(&mut self, loss: f64, count: f64) -> Result<Option<u64>, Error> {
        let Some(islands) = &mut self.islands else { return Ok(None) };
        let first_step = islands.first_step_of_optimizers();
        match islands.here() {
            Some(island) => match island.begin_pass(loss, count) {
                Ok(pass) => Ok(Some(pass)),
                Err(error) => Err(round::counted_from(first_step, error)),
            },
            None => Err(Error::NoShardLeft { due: 0 }),
        }
    }

    pub(super) fn latest_of_island(&mut self, id: SpanId) -> &[f32] {
        match self.islands.as_mut().and_then(Islands::here) {
            Some(island) => island.latest(id),
            None => &self.values[self.layout.span(id).range()],
        }
    }

    /// Buckets of the islands' last steps for which nobody has waited yet.
    pub(super) fn outstanding_of_islands(&self) -> usize {
        let own = self.islands.iter().flat_map(|islands| &islands.own);
        own.map(|island| island.replica.step.outstanding()).sum()
    }

    /// The shards of this rank, and of every rank, where there are islands.
    pub(super) fn shares_of_islands(&self) -> Option<(Range<usize>, &[usize])> {
        let islands = self.islands.as_ref()?;
        let first: usize = islands.shares[..self.group.rank().0].iter().sum();
        Some((first..first + islands.shares[self.group.rank().0], &islands.shares))
    }
}
