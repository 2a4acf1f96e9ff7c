//! Traits of a way to synchronize, which runs the steps of a core.

use kolo_comm::{Group, Rank};

use crate::config::Config;
use crate::replica::core::Core;
use crate::replica::notes::{JobNotes, Notes};
use crate::replica::report::StepReport;
use crate::same_settings::Stated;
use crate::warning::Warning;
use kolo_optim::{Optimizer, named};
use kolo_reduction::state::Visit;
use kolo_reduction::{BucketCaps, Error};
use kolo_step::Agreed;

/// A mode before its ranks have met, with the configuration and the optimizer for its core.
pub struct Made {
    /// Settings of the core.
    pub config: Config,
    /// Optimizer of the core.
    pub optimizer: Box<dyn Optimizer>,
    /// The mode.
    pub mode: Box<dyn Mode>,
}

kolo_comm::opaque_debug!(Made { config });

/// State of a job between two steps of its program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Standing {
    /// All ranks hold the same, complete values.
    Whole,
    /// The ranks hold different values, in a round that began after `began` steps.
    InRound {
        /// Number of steps done when the round began.
        began: u64,
    },
    /// All ranks hold the same values, which lack the gradient of the last step.
    OnItsWay,
}

/// A way to synchronize: runs the steps of a [`Core`].
pub trait Mode: Passes + ModeState + Send {
    /// Runs a step, whose passes on this rank are over. Returns its report and what the ranks have agreed on.
    ///
    /// # Errors
    ///
    /// Same as `Replica::step`.
    fn step(&mut self, core: &mut Core, rate: f64) -> Result<(StepReport, Agreed), Error>;

    /// Runs the first half of a step that dies in the middle: the ranks agree, and nothing is applied.
    fn half_step_for_tests(&mut self, core: &mut Core, rate: f64) -> Result<(), Error> {
        let started = core.start_step(rate)?;
        core.agree_for_tests(started)
    }

    /// Makes the next step the last one of its round.
    fn end_round(&mut self) {}

    /// Returns the state of the job between two steps.
    fn standing(&self) -> Standing {
        Standing::Whole
    }

    /// Adds the settings that must be the same on all ranks, besides those of the core.
    ///
    /// # Errors
    ///
    /// A transform is in no table, or has no such setting.
    fn add_settings(&self, _: Option<BucketCaps>, _: &mut Stated) -> Result<(), Error> {
        Ok(())
    }

    /// Agrees with the other ranks on everything that the core's division of shards depends on, before the
    /// core's first step in `group`. A collective. Fails if a collective fails (naming the rank).
    fn divide(&mut self, _: &mut Core, _: &Group) -> Result<(), Error> {
        Ok(())
    }

    /// Creates the mode's state besides the core, as it is after that number of steps. All ranks hold the
    /// same values at that point. A collective.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), a round is not over, or memory or a thread is not available.
    fn form(&mut self, _: &mut Core, _: u64) -> Result<(), Error> {
        Ok(())
    }

    /// Makes the job continue after that number of steps, where a round begins.
    fn go_on_at(&mut self, _: u64) {}
}

/// The backward passes of a step.
pub trait Passes {
    /// Core whose pass is under way or comes next: it takes the gradients, and the model has its values.
    fn next<'a>(&'a self, core: &'a Core) -> &'a Core {
        core
    }

    /// Mutable reference to the same core.
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

    /// Ends the pass with that number.
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

    /// Number of the island of [`Passes::next`]; `None` without islands, or if this rank has no shards.
    fn island(&self) -> Option<usize> {
        None
    }

    /// Number of buckets of the last step that no caller has waited for yet.
    fn outstanding(&self, core: &Core) -> usize {
        core.step.outstanding()
    }

    /// With `false`, steps use this rank's own gradients only.
    fn synchronize(&mut self, core: &mut Core, synchronize: bool) {
        core.step.synchronize(synchronize);
    }
}

/// The state that a way to synchronize keeps from step to step, besides that of its core.
pub trait ModeState {
    /// Visits what this rank has of the job's values and of the state of optimizers.
    fn visit_weights(&mut self, core: &mut Core, visit: &mut Visit<'_>) {
        core.weights.visit_state(visit);
    }

    /// Returns the job's notes, as far as this rank has them. Applies all pending updates first. Fails if the
    /// last step's reduction failed (naming the rank).
    fn notes(&mut self, core: &mut Core) -> Result<JobNotes, Error> {
        core.apply_outstanding()?;
        Ok(JobNotes::of_core(core.notes()))
    }

    /// Makes room for arrays that only a job with these notes has, after [`Mode::form`] and before the arrays
    /// are filled.
    fn make_room(&mut self, _: &Core, _: &JobNotes) {}

    /// Continues from the job's notes, after [`Mode::form`] and when the arrays are there. Fails as
    /// [`Core::set_notes`] does.
    fn set_notes(&mut self, core: &mut Core, notes: JobNotes) -> Result<(), Error> {
        core.set_notes(notes.core)
    }

    /// Returns an error if this rank lacks a part of the job's state.
    ///
    /// # Errors
    ///
    /// The error that names the part.
    fn expect_all(&self, core: &Core) -> Result<(), Error> {
        core.expect_all_shards()
    }

    /// Returns an error if an optimizer's state that is in a file is lost.
    ///
    /// # Errors
    ///
    /// [`Error::Offload`].
    fn check_stores(&mut self, core: &mut Core) -> Result<(), Error> {
        core.check_store()
    }

    /// Returns the notes on all islands of the job when they begin; empty without islands.
    fn first_notes(&self, _: &Core) -> Vec<Notes> {
        Vec::new()
    }

    /// Returns the ranks that need the state of a shard of the core.
    fn holders(&self, core: &Core, shard: usize) -> Vec<Rank> {
        core.holders(shard)
    }

    /// Returns the warning that no living worker has a copy of the state of so many shards.
    fn loss(&self, _shards: usize) -> Option<Warning> {
        None
    }

    /// Number of steps of the job that have been skipped.
    fn skipped_steps(&self, core: &Core) -> u64 {
        core.scaler.now().skipped_steps
    }

    /// Returns the optimizer that the program passed, when the ranks could not meet. `of_core` is the
    /// core's.
    fn into_optimizer(self: Box<Self>, of_core: Box<dyn Optimizer>) -> Box<dyn Optimizer> {
        of_core
    }
}

/// Returns an error that says why a mode is excluded.
pub fn refused(config: &Config, problem: &str) -> Error {
    Error::Setting(format!("synchronization `{}` {problem}", config.sync))
}

/// Returns an optimizer with the same settings and no state.
pub(super) fn another(optimizer: &dyn Optimizer) -> Option<Box<dyn Optimizer>> {
    optimizer.another().or_else(|| named(optimizer.name(), &optimizer.settings()).ok())
}
