//! A copy of the model that is trained together with those of other ranks: what a binding talks to.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use kolo_comm::{Group, Rank};

use super::assignment;
use super::core::Core;
use super::report::StepReport;
use crate::buckets::Bucket;
use crate::config::Config;
use crate::error::Error;
use crate::last_step::LastStep;
use crate::loss_scaling::LossScale;
use crate::noise_scale::NoiseScale;
use crate::sync::mode::{Made, Mode, Standing};
use crate::sync::{self, SyncTraits};
use crate::transform::GradientTransform;
use crate::warning::Warning;
use kolo_optim::{Layout, Optimizer, ParamSpec, SpanId};

/// A copy of the model that is trained together with those of other ranks.
///
/// A step's updates are made when somebody asks for the values: [`Replica::latest`] waits for one bucket
/// only, so that the next forward pass can begin while the gradients of later layers are still on the wire.
/// Everything else here waits for all.
pub struct Replica {
    /// The way to synchronize, which ends before the core's group does.
    pub(crate) mode: Box<dyn Mode>,
    pub(crate) core: Core,
}

impl Replica {
    /// A replica of the model with these tensors, whose `values` follow one another in the same order,
    /// stepped by an optimizer of the table ([`named`](kolo_optim::named)) or by the caller's own.
    /// Afterwards all ranks have the values of rank 0; or, where some of them have trained before
    /// ([`Replica::regroup`]), theirs.
    ///
    /// # Errors
    ///
    /// The ranks hold different models (naming the parameter), a setting is wrong, a group of parameters
    /// selects none (naming it), or a collective failed.
    pub fn new(
        group: Arc<Group>,
        specs: Vec<ParamSpec>,
        values: Vec<f32>,
        config: &Config,
        optimizer: impl Optimizer,
    ) -> Result<Self, Error> {
        let mut replica = Self::apart(&group, specs, values, config, Box::new(optimizer))?;
        replica.join(group)?;
        Ok(replica)
    }

    /// A replica before it has come to one state with the other ranks.
    pub(super) fn apart(
        group: &Arc<Group>,
        specs: Vec<ParamSpec>,
        values: Vec<f32>,
        config: &Config,
        optimizer: Box<dyn Optimizer>,
    ) -> Result<Self, Error> {
        assignment::check(config)?;
        let Made { config, optimizer, mode } = sync::make(config, group.world_size(), optimizer)?;
        Ok(Replica { mode, core: Core::new(group, specs, values, config, optimizer)? })
    }

    /// Goes on with other ranks: those of the last group that are left, and new ones, which call
    /// [`Replica::new`]. A step that has not come to its end on any of them is forgotten, so that it can be
    /// done again; where one has, all get what it has. Where a rank has something that dies with it, all go
    /// back to the newest copy of that ([`Config::backup_every`]). The values go on in the same bits as if
    /// nothing had happened.
    ///
    /// To be called after an error, or between two steps. Shards are divided anew.
    ///
    /// # Errors
    ///
    /// As [`Replica::new`]; then it can be called again, with another group. The replica is not elastic.
    pub fn regroup(&mut self, group: Arc<Group>) -> Result<(), Error> {
        if !self.core.config.elastic {
            return Err(Error::Setting("only a replica with `Config::elastic` can regroup".into()));
        }
        self.roll_back();
        // Nobody is to take over such values.
        self.core.weights.overflow.refuse()?;
        // Ranks may be others now, and fewer.
        self.core.observers.members.take_reason();
        self.join(group)
    }

    /// Makes the updates of the last step whose gradients are back; forgets the step if some are not. Of a round
    /// that has failed no step counts.
    pub(super) fn roll_back(&mut self) {
        self.core.roll_back();
        if let Standing::InRound { began } = self.mode.standing() {
            // A step of all ranks may have come to its end, and something have failed after it.
            let ended = self.core.progress.last.map_or(0, |last| last.step + 1);
            self.core.progress.steps = began.max(ended);
            self.mode.go_on_at(self.core.progress.steps);
        }
    }

    /// The ranks that train together.
    pub fn group(&self) -> &Arc<Group> {
        &self.core.ranks.group
    }

    /// Returns true if this rank is a summation server ([`Group::is_server`]): it has no shards and adds for
    /// the others, so that they send less. It gets no sums, so its values are not kept up: after its first step
    /// they are NaN, which shows where somebody takes them for the model's.
    pub fn is_server(&self) -> bool {
        self.core.ranks.server
    }

    /// The ranks that train: all but summation servers, among them rank 0.
    pub fn workers(&self) -> Vec<Rank> {
        self.core.workers()
    }

    /// Where each tensor lives.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.core.weights.layout
    }

    /// All values of the model, in the order of the layout, after all steps so far; between two outer steps
    /// of islands, after the last of them; within a round of `stale`, what this rank last got; where updates
    /// are one step late, without the gradient that is on its way.
    ///
    /// # Errors
    ///
    /// The last step's reduction failed (naming the rank).
    pub fn values(&mut self) -> Result<&[f32], Error> {
        self.core.values()
    }

    /// The values of one tensor after all steps so far: waits for the buckets it is in, not for the others.
    /// Where its reduction has failed they are those before the step, and the next call that can fail says
    /// why. Where islands synchronise rarely they are those of [`Replica::island`].
    pub fn latest(&mut self, id: SpanId) -> &[f32] {
        self.next_mut().latest(id)
    }

    /// Number of buckets of the last step for which nobody has waited yet; where updates are one step late, of
    /// the step before.
    pub fn outstanding(&self) -> usize {
        self.mode.outstanding(&self.core)
    }

    /// The shards of each step that are this rank's: each of them has a pass ([`Replica::begin_shard`]), in
    /// order.
    pub fn shards(&self) -> Range<usize> {
        let (shares, rank) = (self.shares(), self.core.ranks.group.rank().0);
        let first: usize = shares[..rank].iter().sum();
        first..first + shares[rank]
    }

    /// Number of shards of every rank.
    pub fn shares(&self) -> &[usize] {
        self.mode.shares(&self.core)
    }

    /// What is reduced together, in the order in which it becomes ready; of islands, in their outer step.
    pub fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.core.step.buckets()
    }

    /// Returns true if a bucket's reduction is over, and its update is still to be made.
    pub fn is_back(&mut self, bucket: usize) -> bool {
        self.core.step.is_back(bucket)
    }

    /// With `false`, steps use this rank's own gradients only and ranks drift apart: for measuring what
    /// synchronisation costs. Where updates are one step late, to be called when all are made
    /// ([`Replica::end_round`]).
    pub fn synchronise(&mut self, synchronise: bool) {
        self.mode.synchronize(&mut self.core, synchronise);
    }

    /// Makes the next step the last one of its round: where islands synchronise rarely, an outer step ends it;
    /// where updates are one step late, that step's are made at its end, too; where servers hold the weights
    /// (`stale`), all workers have all updates after it. Does nothing where each step ends with all of its
    /// updates. All ranks call it before the same step, such as the last one before a checkpoint or an
    /// evaluation.
    pub fn end_round(&mut self) {
        self.mode.end_round();
    }

    /// Returns true if all ranks hold the values of one model, which lack nothing: always, except between two
    /// outer steps of islands, within a round where servers hold the weights, and while a gradient is on its
    /// way where updates are one step late.
    pub fn is_synchronised(&self) -> bool {
        self.mode.standing() == Standing::Whole
    }

    /// Refuses what would lose a gradient that is on its way.
    pub(crate) fn expect_nothing_on_its_way(&self) -> Result<(), Error> {
        match self.mode.standing() {
            Standing::OnItsWay => self.expect_whole(),
            _ => Ok(()),
        }
    }

    /// Refuses to take a checkpoint where the ranks hold different values, or lack some.
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

    /// Refuses sums over the global batch where the way to synchronize has none.
    pub(crate) fn expect_global_batch(&self) -> Result<(), Error> {
        let sync = &self.core.config.sync;
        match sync.exclusion(&[sync::JobSetting::GlobalBatch]) {
            None => Ok(()),
            Some(exclusion) => Err(sync::mode::refused(&self.core.config, &exclusion.problem())),
        }
    }

    /// The island whose values [`Replica::latest`] gives: the one whose pass is under way or comes next. A
    /// binding fills the model anew when it is another one. `None` where there are no islands, or this rank
    /// has no shards.
    pub fn island(&self) -> Option<usize> {
        self.mode.island()
    }

    /// The core whose pass is under way or comes next.
    pub(crate) fn next_mut(&mut self) -> &mut Core {
        self.mode.next_mut(&mut self.core)
    }

    /// Begins the backward pass of the next shard and returns its number.
    pub(crate) fn begin_pass(&mut self, loss: f64, count: f64) -> Result<u64, Error> {
        let shards = self.shares().iter().sum();
        let core = &mut self.core;
        core.apply_outstanding()?;
        core.observers.verifier.begin(
            &core.ranks.group,
            &core.weights.layout,
            &core.weights.values,
            shards,
        )?;
        self.mode.begin(core, loss, count)
    }

    /// Ends a pass.
    pub(crate) fn end_pass(&mut self, number: u64) -> Result<(), Error> {
        self.mode.end(&mut self.core, number)
    }

    /// Ends a step: whoever asks for values from now on gets them with its updates made.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), a backward pass is missing or not finished, no rank had a
    /// sample, the loss is not finite (naming shards and ranks) or the gradient (naming parameter, shard and
    /// rank) and a smaller loss scale would not help, no parameter has got a gradient, or the ranks were given
    /// different learning rates, samplers or transforms ([`Error::SettingsDiffer`], on all of them). No
    /// parameter has changed then. Or the updates of the step before have overflowed
    /// ([`Error::ValuesNotFinite`]).
    pub fn step(&mut self, learning_rate: f64) -> Result<StepReport, Error> {
        let (mut report, agreed) = self.mode.step(&mut self.core, learning_rate)?;
        if self.is_backup_due() {
            self.back_up()?;
        }
        report.change = self.change_members(agreed)?;
        report.warnings.extend(self.core.notices.warnings.take());
        if self.is_synchronised()
            && let Some(folder) = self.core.observers.verifier.resumes_from()
        {
            self.restart(&folder)?;
        }
        Ok(report)
    }

    /// The first half of a step that dies in the middle: the ranks agree, and nothing is applied. Of islands
    /// it is their own step, and the beginning of the outer one if that is due.
    #[doc(hidden)]
    pub fn reduce_for_tests(&mut self, learning_rate: f64) -> Result<(), Error> {
        self.mode.half_step_for_tests(&mut self.core, learning_rate)
    }

    /// Number of steps so far, also the last one if its updates are still to be made.
    pub fn steps(&self) -> u64 {
        self.core.progress.steps
    }

    /// The last step all of whose updates this rank has, also if [`Replica::step`] failed after it was
    /// complete, or if this rank has it from another one ([`Replica::regroup`]). While updates of a step are
    /// still to be made it is the one before. `None` before the first step and right after a checkpoint has
    /// been loaded.
    pub fn last_step(&self) -> Option<LastStep> {
        self.core.progress.last
    }

    /// The steps that became known with [`Replica::last_step`], in order: that one alone; where islands
    /// synchronise rarely all of the round that it ended; where updates are one step late and all have been
    /// made, the one before it, too.
    pub fn last_steps(&self) -> Vec<LastStep> {
        self.core.last_steps()
    }

    /// The factor that the loss of each shard is to be multiplied by before the backward pass of the step that
    /// runs or comes next ([`Config::loss_scaling`]): its gradients are given to [`ShardPass::ready`] so
    /// scaled. The loss itself and changes of statistics are not. 1 where losses are not scaled.
    /// [`Ddp`](crate::Ddp) does it by itself.
    ///
    /// [`ShardPass::ready`]: crate::ShardPass::ready
    pub fn loss_scale(&self) -> f32 {
        self.loss_scaling().scale
    }

    /// The scale of losses, and how many steps have been skipped. Where islands synchronise rarely each has a
    /// scale of its own, and this is that of [`Replica::island`].
    pub fn loss_scaling(&self) -> LossScale {
        self.mode.next(&self.core).scaler.now()
    }

    /// Number of steps of the job that have been skipped because they overflowed; where islands synchronise
    /// rarely, the steps of each of them that were until the last outer step. The same on all ranks.
    pub fn skipped_steps(&self) -> u64 {
        self.mode.skipped_steps(&self.core)
    }

    /// The noise scale of the gradient after all steps so far; `None` where it is not measured
    /// ([`Config::noise_scale`]).
    ///
    /// # Errors
    ///
    /// The last step's reduction failed (naming the rank).
    pub fn noise_scale(&mut self) -> Result<Option<NoiseScale>, Error> {
        self.core.noise_scale()
    }

    /// Notes what the program has given besides the configuration and must be the same on all ranks, such as
    /// the precision of its model: the next step ends with [`Error::SettingsDiffer`] where it is not. It
    /// replaces what was noted of that name.
    pub fn note_setting(&mut self, name: &str, value: String) {
        self.core.notices.stated.set(name, value);
    }

    /// Adds a gradient transform of the caller's own behind those of [`Config::transforms`]; all ranks must.
    /// To be called between two steps; where the job has begun it goes on from what the others' knows, or a
    /// checkpoint ([`GradientTransform::state`]). Islands that synchronise rarely cannot have one each, and
    /// servers that hold the weights see no gradient of all shards: then the next call says so.
    pub fn add_transform(&mut self, transform: impl GradientTransform) {
        let traits = self.traits();
        let obstacle = if traits.rounds.is_some() {
            Some("cannot be each island's; synchronise every step, or take one of the table")
        } else if traits.staleness_bound.is_some() {
            Some("needs the gradient of all shards, which `stale` has nowhere; synchronise every step")
        } else {
            None
        };
        let core = &mut self.core;
        if let Some(obstacle) = obstacle {
            let problem = format!("the transform `{}` of the program's own {obstacle}", transform.name());
            core.progress.failure.get_or_insert(Error::Setting(problem));
            return;
        }
        core.notices.stated.add("a transform of the program's own", transform.name());
        for (name, value) in transform.settings() {
            core.notices.stated.add(name, value.to_string());
        }
        if let Err(error) = core.transforms.add(Box::new(transform), &core.weights.layout) {
            core.progress.failure.get_or_insert(error);
        }
    }

    /// Sets a statistic to what this rank alone has made of it in the pass that is under way
    /// ([`Statistics::Local`](crate::Statistics::Local)). Where that is not finite the step fails.
    ///
    /// # Panics
    ///
    /// If its length is not the span's.
    pub fn keep_statistic(&mut self, id: SpanId, values: &[f32]) {
        self.next_mut().step.look_at_statistic(id, values);
        let core = &mut self.core;
        core.weights.values[core.weights.layout.span(id).range()].copy_from_slice(values);
    }

    /// Tells the user what concerns the job; rank 0 speaks.
    pub(crate) fn warn(&mut self, warning: Warning) {
        self.core.warn(warning);
    }

    /// What the user must know and no report has told yet: what has come up since the last step, or in one
    /// that has failed.
    pub fn take_warnings(&mut self) -> Vec<Warning> {
        self.core.notices.warnings.take()
    }

    /// The training thread has waited so long for data since the last step: for [`StepReport::straggler`],
    /// which else takes that time for computing.
    pub fn data_waited(&mut self, time: Duration) {
        self.core.observers.stragglers.data_waited(time);
    }

    /// The training thread has waited so long for other ranks in the middle of its passes
    /// ([`cross_shard`](crate::cross_shard)).
    pub fn exchange_waited(&mut self, time: Duration) {
        self.core.step.add_exposed(time);
    }

    /// From now on every step of a job that is tuned is run by another setting, so that few steps go through
    /// many; before the first step of a group, on all of its ranks.
    #[doc(hidden)]
    pub fn tune_hastily_for_tests(&mut self) {
        self.core.tune_hastily();
    }
}
