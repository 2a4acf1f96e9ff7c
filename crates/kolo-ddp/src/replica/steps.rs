//! Steps of a replica: passes of its shards, the end of a step, and what is known of the last ones.

use std::ops::Range;

use super::handle::Replica;
use kolo_reduction::Error;
use kolo_step::{LastStep, LossScale};
use kolo_sync::sync::mode::Standing;
use kolo_sync::sync::{self, SyncTraits};
use kolo_sync::{Core, StepReport};

impl Replica {
    /// With `false`, steps use only this rank's own gradients and the ranks drift apart: for measuring the
    /// cost of synchronization. Where updates are one step late, call it when all updates are applied
    /// ([`Replica::end_round`]).
    pub fn synchronize(&mut self, synchronize: bool) {
        self.mode.synchronize(&mut self.core, synchronize);
    }

    /// Makes the next step the last one of its round. Where islands synchronize rarely, an outer step ends
    /// it; where updates are one step late, its own update is applied at its end too; where servers hold the
    /// weights (`stale`), all workers have all updates after it. Has no effect where each step ends with all
    /// of its updates. All ranks must call it before the same step, such as the last one before a checkpoint
    /// or an evaluation.
    pub fn end_round(&mut self) {
        self.mode.end_round();
    }

    /// Returns true if all ranks hold the same, complete values. That is always so, except between two outer
    /// steps of islands, within a round where servers hold the weights, and, where updates are one step
    /// late, while a gradient is in flight.
    pub fn is_synchronized(&self) -> bool {
        self.mode.standing() == Standing::Whole
    }

    /// Returns an error if a gradient is in flight, which the caller would lose.
    pub(crate) fn expect_nothing_on_its_way(&self) -> Result<(), Error> {
        match self.mode.standing() {
            Standing::OnItsWay => self.expect_whole(),
            _ => Ok(()),
        }
    }

    /// Returns an error if the ranks hold different or incomplete values, which rules out a checkpoint.
    pub(crate) fn expect_whole(&self) -> Result<(), Error> {
        let step = self.core.progress.steps;
        match self.mode.standing() {
            Standing::Whole => Ok(()),
            Standing::InRound { began } => Err(Error::RoundNotOver { step, began }),
            Standing::OnItsWay => Err(Error::GradientOnItsWay { step: step.saturating_sub(1) }),
        }
    }

    /// Properties of the way to synchronize.
    pub(crate) fn traits(&self) -> SyncTraits {
        self.core.traits()
    }

    /// Returns an error if the way to synchronize has no global batch to sum over.
    pub(crate) fn expect_global_batch(&self) -> Result<(), Error> {
        let sync = &self.core.config.sync;
        match sync.exclusion(&[sync::JobSetting::GlobalBatch]) {
            None => Ok(()),
            Some(exclusion) => Err(sync::mode::refused(&self.core.config, &exclusion.problem())),
        }
    }

    /// Island whose values [`Replica::latest`] returns: the one whose pass is under way or comes next. A
    /// binding fills the model anew when it changes. `None` without islands, or if this rank has no shards.
    pub fn island(&self) -> Option<usize> {
        self.mode.island()
    }

    /// Core whose pass is under way or comes next.
    pub(crate) fn next_mut(&mut self) -> &mut Core {
        self.mode.next_mut(&mut self.core)
    }

    /// Begins the backward pass of the next shard and returns its number.
    pub(crate) fn begin_pass(&mut self, loss: f64, count: f64) -> Result<u64, Error> {
        let shards = self.shares().iter().sum();
        let core = &mut self.core;
        core.apply_outstanding()?;
        core.begin_trace(shards)?;
        self.mode.begin(core, loss, count)
    }

    /// Ends a pass.
    pub(crate) fn end_pass(&mut self, number: u64) -> Result<(), Error> {
        self.mode.end(&mut self.core, number)
    }

    /// Ends a step. Values read from now on include its updates.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), a backward pass is missing or unfinished, or no rank had a
    /// sample. The loss is not finite (naming shards and ranks), or the gradient is not (naming parameter,
    /// shard and rank) and a smaller loss scale would not help. No parameter received a gradient. The ranks
    /// have different learning rates, samplers or transforms ([`Error::SettingsDiffer`], on all ranks). In
    /// these cases no parameter has changed. Also if the updates of the step before overflowed
    /// ([`Error::ValuesNotFinite`]).
    pub fn step(&mut self, learning_rate: f64) -> Result<StepReport, Error> {
        if !self.core.ranks.server {
            self.core.observers.members.step_begins();
        }
        let (mut report, agreed) = self.mode.step(&mut self.core, learning_rate)?;
        if self.is_backup_due() {
            self.back_up()?;
        }
        report.change = self.change_members(agreed)?;
        report.warnings.extend(self.core.notices.warnings.take());
        if self.is_synchronized()
            && let Some(folder) = self.core.observers.verifier.resumes_from()
        {
            self.restart(&folder)?;
        }
        Ok(report)
    }

    /// Runs the first half of a step that dies in the middle: the ranks agree, and nothing is applied. With
    /// islands it is their own step, and the beginning of the outer step if that is due.
    #[doc(hidden)]
    pub fn reduce_for_tests(&mut self, learning_rate: f64) -> Result<(), Error> {
        self.mode.half_step_for_tests(&mut self.core, learning_rate)
    }

    /// Makes the next step of a job with divided state fail on this rank when all ranks have the sums of
    /// their parts.
    #[doc(hidden)]
    pub fn fail_when_ready_for_tests(&mut self) {
        self.core.fail_when_ready_for_tests();
    }

    /// Makes the next update in the memory of the host stop on this rank in the middle of a block, after so
    /// many others.
    #[doc(hidden)]
    pub fn stop_in_block_for_tests(&mut self, blocks: usize) {
        self.core.stop_in_block_for_tests(blocks);
    }

    /// Runs of flat memory whose values this rank holds.
    #[doc(hidden)]
    pub fn held_values_for_tests(&self) -> Vec<Range<usize>> {
        self.core.held_values()
    }

    /// Bytes that the values take in this process's memory where ranks hold parts of them only.
    #[doc(hidden)]
    pub fn bytes_of_parts_for_tests(&self) -> Option<u64> {
        self.core.bytes_of_parts()
    }

    /// Number of gathers of divided values so far.
    #[doc(hidden)]
    pub fn gathers_for_tests(&self) -> u64 {
        self.core.weights.divided.as_ref().map_or(0, |divided| divided.gathers())
    }

    /// Number of steps so far, including the last one if its updates are still to be applied.
    pub fn steps(&self) -> u64 {
        self.core.progress.steps
    }

    /// Last step whose updates this rank has in full. It counts even if [`Replica::step`] failed after
    /// completing it, or if this rank received it from another one ([`Replica::regroup`]). While updates of
    /// a step are pending, it is the step before. `None` before the first step and right after loading a
    /// checkpoint.
    pub fn last_step(&self) -> Option<LastStep> {
        self.core.progress.last
    }

    /// Steps that became known with [`Replica::last_step`], in order: usually that one alone. Where islands
    /// synchronize rarely, all steps of the round that it ended. Where updates are one step late and all are
    /// applied, also the step before.
    pub fn last_steps(&self) -> Vec<LastStep> {
        self.core.last_steps()
    }

    /// Factor for the loss of each shard before its backward pass, in the current or next step
    /// ([`Config::loss_scaling`](kolo_sync::Config::loss_scaling)). Pass the gradients so scaled to
    /// [`ShardPass::ready`], but the loss itself and changes of statistics unscaled. 1 where losses are not
    /// scaled. [`Ddp`](crate::Ddp) applies the factor by itself.
    ///
    /// [`ShardPass::ready`]: crate::ShardPass::ready
    pub fn loss_scale(&self) -> f32 {
        self.loss_scaling().scale
    }

    /// Loss scale and number of skipped steps. Where islands synchronize rarely, each has its own scale, and
    /// this is that of [`Replica::island`].
    pub fn loss_scaling(&self) -> LossScale {
        self.mode.next(&self.core).scaler.now()
    }

    /// Number of the job's steps skipped because of an overflow, the same on all ranks. Where islands
    /// synchronize rarely, it counts each island's skipped steps until the last outer step.
    pub fn skipped_steps(&self) -> u64 {
        self.mode.skipped_steps(&self.core)
    }
}
