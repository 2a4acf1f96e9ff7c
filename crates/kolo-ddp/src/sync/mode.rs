//! What a way to synchronize does over a core.

use std::sync::Arc;

use kolo_checkpoint::{Part, Reader};
use kolo_comm::{Group, Rank};

use crate::buckets::BucketCaps;
use crate::config::Config;
use crate::error::Error;
use crate::membership::Agreed;
use crate::replica::backup::copies::ShardNotes;
use crate::replica::core::Core;
use crate::replica::report::StepReport;
use crate::same_settings::Stated;
use crate::warning::Warning;
use kolo_optim::{Optimizer, named};

/// A mode before its ranks have met, and what its core is made with.
pub(crate) struct Made {
    pub(crate) config: Config,
    pub(crate) optimizer: Box<dyn Optimizer>,
    pub(crate) mode: Box<dyn Mode>,
}

/// A job between two steps of its program, as its mode sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Standing {
    /// All ranks hold the values of one model, which lack nothing.
    Whole,
    /// The ranks hold different values, in a round that has begun after so many steps.
    InRound { began: u64 },
    /// All ranks hold the values of one model, which lack the gradient of the last step.
    OnItsWay,
}

/// A way to synchronize: runs the steps of a [`Core`].
pub(crate) trait Mode: Passes + ModeState + Send {
    /// Runs a step, whose passes on this rank are over. Returns its report and what the ranks have agreed on.
    ///
    /// # Errors
    ///
    /// As [`Replica::step`](crate::Replica::step).
    fn step(&mut self, core: &mut Core, rate: f64) -> Result<(StepReport, Agreed), Error>;

    /// Runs the first half of a step that dies in the middle: the ranks agree, and nothing is applied.
    fn half_step_for_tests(&mut self, core: &mut Core, rate: f64) -> Result<(), Error> {
        let started = core.start_step(rate)?;
        core.agree_for_tests(started)
    }

    /// Makes the next step the last one of its round.
    fn end_round(&mut self) {}

    /// Where the job stands between two steps.
    fn standing(&self) -> Standing {
        Standing::Whole
    }

    /// Adds the settings that the ranks must have alike, besides those of the core.
    ///
    /// # Errors
    ///
    /// A transform is in no table, or has no such setting.
    fn add_settings(&self, _: Option<BucketCaps>, _: &mut Stated) -> Result<(), Error> {
        Ok(())
    }

    /// Before the core's first step in `group`: agrees with the other ranks on what the core's division of
    /// shards depends on. A collective.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    fn divide(&mut self, _: &mut Core, _: &Group) -> Result<(), Error> {
        Ok(())
    }

    /// Makes what the mode has besides the core, as it is after so many steps. All ranks hold the same values
    /// then. A collective.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), a round is not over, or memory or a thread cannot be had.
    fn form(&mut self, _: &mut Core, _: u64) -> Result<(), Error> {
        Ok(())
    }

    /// The job goes on after so many steps, where a round begins.
    fn go_on_at(&mut self, _: u64) {}
}

/// The backward passes of a step.
pub(crate) trait Passes {
    /// The core whose pass is under way or comes next: it takes the gradients, and the model has its values.
    fn next<'a>(&'a self, core: &'a Core) -> &'a Core {
        core
    }

    /// The same core, to be changed.
    fn next_mut<'a>(&'a mut self, core: &'a mut Core) -> &'a mut Core {
        core
    }

    /// Begins the next pass, and returns its number.
    ///
    /// # Errors
    ///
    /// Another pass is under way, this rank has no more shards in this step, or an earlier update has failed.
    fn begin(&mut self, core: &mut Core, loss: f64, count: f64) -> Result<u64, Error> {
        core.step.begin_shard(loss, count, core.step_number())
    }

    /// Ends the pass of that number.
    ///
    /// # Errors
    ///
    /// The step that it belongs to has been given up.
    fn end(&mut self, core: &mut Core, number: u64) -> Result<(), Error> {
        core.step.end_shard(number)
    }

    /// Number of shards of every rank.
    fn shares<'a>(&'a self, core: &'a Core) -> &'a [usize] {
        core.step.shares()
    }

    /// Number of the island of [`Passes::next`], where there are islands and this rank has shards.
    fn island(&self) -> Option<usize> {
        None
    }

    /// Number of buckets of the last step for which nobody has waited yet.
    fn outstanding(&self, core: &Core) -> usize {
        core.step.outstanding()
    }

    /// With `false`, steps use this rank's own gradients only.
    fn synchronize(&mut self, core: &mut Core, synchronize: bool) {
        core.step.synchronise(synchronize);
    }
}

/// The state of a job that a checkpoint holds, besides that of its reduction.
pub(crate) struct Saved {
    /// The weights, and the optimizers' state.
    pub(crate) parts: Vec<Part>,
    /// Number of times that each tensor is expected to be used in the next step; in a job with islands by each
    /// of them.
    pub(crate) uses: Vec<u32>,
    /// The mode's own entries, by name.
    pub(crate) entries: Vec<(&'static str, serde_json::Value)>,
}

/// The mode's part of a copy to which an elastic job can go back.
#[derive(Default)]
pub(crate) struct Copied {
    /// For each shard of the core that this rank holds, values that are kept for it.
    pub(crate) own: Vec<Vec<f32>>,
    /// Number of these values for each shard.
    pub(crate) len: usize,
    /// What else is kept for each shard of the job, on all ranks.
    pub(crate) notes: Vec<ShardNotes>,
    /// Arrays that are the same on all ranks.
    pub(crate) common: Vec<Vec<f32>>,
}

/// The state that a mode has besides its core's, as checkpoints and copies hold it.
pub(crate) trait ModeState {
    /// Before rank 0 takes a checkpoint: brings there what other ranks hold. A collective.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    fn gather(&mut self, _: &mut Core) -> Result<(), Error> {
        Ok(())
    }

    /// What a checkpoint holds.
    ///
    /// # Errors
    ///
    /// A round has not ended, or the state of other ranks is not here.
    fn save(&mut self, core: &mut Core) -> Result<Saved, Error> {
        core.save()
    }

    /// Reads what a checkpoint holds, after [`Mode::form`].
    ///
    /// # Errors
    ///
    /// Names the file that is damaged or missing, or the first tensor that does not fit.
    fn load(&mut self, core: &mut Core, reader: &Reader) -> Result<(), Error> {
        core.load(reader)
    }

    /// Copies what this rank has. A collective.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    fn copy(&mut self, _: &Arc<Group>) -> Result<Copied, Error> {
        Ok(Copied::default())
    }

    /// Goes on with what a copy holds for all ranks, after [`Mode::form`].
    fn put_back(&mut self, _: &[ShardNotes], _: &[Vec<f32>], _skipped_steps: u64) {}

    /// Goes on with the values that a copy holds for a shard.
    fn put_back_shard(&mut self, _: usize, _: &[f32]) {}

    /// The ranks that need what is kept for a shard of the core.
    fn holders(&self, core: &Core, shard: usize) -> Vec<Rank> {
        core.holders(shard)
    }

    /// What the user is told where no living worker has a copy of what was kept for so many shards.
    fn loss(&self, _shards: usize) -> Option<Warning> {
        None
    }

    /// Number of steps of the job that have been skipped.
    fn skipped_steps(&self, core: &Core) -> u64 {
        core.scaler.now().skipped_steps
    }

    /// The optimizer that the program has given, where the ranks could not meet. `of_core` is the core's.
    fn into_optimizer(self: Box<Self>, of_core: Box<dyn Optimizer>) -> Box<dyn Optimizer> {
        of_core
    }
}

/// An error that says why a mode is excluded.
pub(crate) fn refused(config: &Config, problem: &str) -> Error {
    Error::Setting(format!("synchronisation `{}` {problem}", config.sync))
}

/// An optimizer with the same settings and no state.
pub(super) fn another(optimizer: &dyn Optimizer) -> Option<Box<dyn Optimizer>> {
    optimizer.another().or_else(|| named(optimizer.name(), &optimizer.settings()).ok())
}
