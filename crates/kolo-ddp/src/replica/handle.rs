//! The replica, through which a binding trains one rank's copy of the model.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use kolo_comm::{Group, Rank};

use kolo_optim::{Layout, Optimizer, ParamSpec, SpanId};
use kolo_reduction::transform::GradientTransform;
use kolo_reduction::{Bucket, Error};
use kolo_step::NoiseScale;
use kolo_sync::sync::mode::{Made, Mode, Standing};
use kolo_sync::{Config, Core, FirstParts, Warning, assignment, sync};
use kolo_values::Loan;

/// One rank's copy of the model, trained together with those of the other ranks.
///
/// A step's updates are applied when the values are read. [`Replica::latest`] waits for the buckets of one
/// tensor, so the next forward pass can begin while gradients of later layers are still on the wire. All
/// other methods wait for every bucket.
pub struct Replica {
    /// Way to synchronize. Declared before `core`, so that it is dropped before the core's group.
    pub(crate) mode: Box<dyn Mode>,
    pub(crate) core: Core,
}

impl fmt::Debug for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replica").field("steps", &self.core.progress.steps).finish_non_exhaustive()
    }
}

impl Replica {
    /// Creates a replica of the model with these tensors; `values` holds their values in the same order. The
    /// optimizer comes from the table ([`named`](kolo_optim::named)) or is the caller's own. Afterwards all
    /// ranks have the values of rank 0; if some ranks have trained before ([`Replica::regroup`]), all ranks
    /// have theirs.
    ///
    /// # Errors
    ///
    /// The ranks hold different models (naming the parameter), a setting is invalid, a parameter group
    /// selects no parameter (naming the group), or a collective failed.
    pub fn new(
        group: Arc<Group>,
        specs: Vec<ParamSpec>,
        values: Vec<f32>,
        config: &Config,
        optimizer: impl Optimizer,
    ) -> Result<Self, Error> {
        let mut replica = Self::apart(&group, specs, Arc::new(values), config, Box::new(optimizer))?;
        replica.join(group)?;
        Ok(replica)
    }

    /// Creates a replica that does not share its state with the other ranks yet.
    pub(super) fn apart(
        group: &Arc<Group>,
        specs: Vec<ParamSpec>,
        values: Arc<Vec<f32>>,
        config: &Config,
        optimizer: Box<dyn Optimizer>,
    ) -> Result<Self, Error> {
        assignment::check(config)?;
        let Made { config, optimizer, mode } = sync::make(config, group.world_size(), optimizer)?;
        Ok(Replica { mode, core: Core::new(group, specs, values, config, optimizer)? })
    }

    /// Does the same as [`Replica::new`] where values are divided among all ranks. `hand_over` gives each
    /// tensor's values to the struct that divides them, and returns the tensors.
    pub(crate) fn divided(
        group: Arc<Group>,
        hand_over: impl FnOnce(&mut FirstParts) -> Result<Vec<ParamSpec>, Error>,
        config: &Config,
        optimizer: impl Optimizer,
    ) -> Result<Self, Error> {
        assignment::check(config)?;
        let made = sync::make(config, group.world_size(), Box::new(optimizer))?;
        let Made { config, optimizer, mode } = made;
        let mut parts = FirstParts::new(&group, &config, optimizer.scope());
        let specs = hand_over(&mut parts)?;
        let core = Core::new(&group, specs, parts.end()?, config, optimizer)?;
        let mut replica = Replica { mode, core };
        replica.join(group)?;
        Ok(replica)
    }

    /// Continues with other ranks: the survivors of the last group, and newcomers, which call
    /// [`Replica::new`]. A step that no rank has completed is discarded and can be repeated; if a rank has
    /// completed it, all ranks take its state. If a rank keeps state that dies with it, all ranks go back to
    /// the newest copy of that state ([`Config::backup_every`]). The values continue in the same bits as if
    /// nothing had happened.
    ///
    /// Call it after an error, or between two steps. Shards are divided anew.
    ///
    /// # Errors
    ///
    /// The replica is not elastic, or as [`Replica::new`]; the call can then be repeated with another
    /// group.
    pub fn regroup(&mut self, group: Arc<Group>) -> Result<(), Error> {
        if !self.core.config.elastic {
            return Err(Error::Setting("only a replica with `Config::elastic` can regroup".into()));
        }
        self.roll_back();
        // No rank may take over values that are not finite.
        self.core.weights.overflow.refuse()?;
        // A rank number may mean another rank now, and there may be fewer ranks.
        self.core.observers.members.take_reason();
        self.join(group)
    }

    /// Applies the last step's updates whose gradients are back; discards the step if some are missing. No
    /// step of a failed round counts.
    pub(super) fn roll_back(&mut self) {
        self.core.roll_back();
        if let Standing::InRound { began } = self.mode.standing() {
            // A step of all ranks may have completed before something failed.
            let ended = self.core.progress.last.map_or(0, |last| last.step + 1);
            self.core.progress.steps = began.max(ended);
            self.mode.go_on_at(self.core.progress.steps);
        }
    }

    /// Ranks that train together.
    pub fn group(&self) -> &Arc<Group> {
        &self.core.ranks.group
    }

    /// Returns true if this rank is a summation server ([`Group::is_server`]). A server has no shards and
    /// adds gradients for the workers, so that they send less. It receives no sums, so its values are not
    /// updated: after its first step they are NaN, which reveals any use of them as the model's.
    pub fn is_server(&self) -> bool {
        self.core.ranks.server
    }

    /// Workers: all ranks but summation servers, among them rank 0.
    pub fn workers(&self) -> Vec<Rank> {
        self.core.workers()
    }

    /// Layout: the place of each tensor in flat memory.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.core.weights.layout
    }

    /// All values of the model in the order of the layout, after all steps so far. Between two outer steps of
    /// islands they are those after the last outer step; within a round of `stale`, those that this rank last
    /// received; where updates are one step late, they lack the gradient that is in flight. Where values are
    /// divided ([`Config::sharding`]) it is a collective, which gathers them all; [`Replica::tensor`] gathers
    /// one. Fails if the last step's reduction failed (naming the rank).
    pub fn values(&mut self) -> Result<&[f32], Error> {
        self.core.values()
    }

    /// Averages of all values after all steps so far, in the order of the layout; `None` if the optimizer is
    /// not [`Averaged`](crate::optimizer::Averaged). A collective if the optimizer's state is divided
    /// ([`Config::sharding`]). Fails if the last step's reduction failed (naming the rank).
    pub fn averages(&mut self) -> Result<Option<Vec<f32>>, Error> {
        self.core.averages()
    }

    /// Values of one tensor after all steps so far. Waits only for the buckets that hold the tensor. If
    /// their reduction failed, the values are those before the step, and the next fallible call returns the
    /// error. Where islands synchronize rarely, the values are those of [`Replica::island`].
    pub fn latest(&mut self, id: SpanId) -> &[f32] {
        self.next_mut().latest(id)
    }

    /// Values of one tensor after all steps so far. Where values are divided ([`Config::sharding`]), they are
    /// gathered from their owners.
    ///
    /// # Errors
    ///
    /// The last step's reduction failed, or an owner died, left or did not answer (naming the rank).
    pub fn tensor(&mut self, id: SpanId) -> Result<&[f32], Error> {
        self.core.tensor(id)
    }

    /// Lends the values that [`Replica::latest`] returns, to be read where they lie. They never change; so if
    /// the loan still lives when the optimizer writes that tensor, all values move to other memory, which
    /// costs a copy. Returns `None` if the values are to be copied.
    pub fn lend(&mut self, id: SpanId) -> Option<Loan> {
        self.next_mut().lend(id)
    }

    /// Number of buckets of the last step that no caller has waited for yet; where updates are one step
    /// late, of the step before.
    pub fn outstanding(&self) -> usize {
        self.mode.outstanding(&self.core)
    }

    /// Shards of this rank in each step. Each needs one pass ([`Replica::begin_shard`]), in order.
    pub fn shards(&self) -> Range<usize> {
        let (shares, rank) = (self.shares(), self.core.ranks.group.rank().0);
        let first: usize = shares[..rank].iter().sum();
        first..first + shares[rank]
    }

    /// Number of shards of every rank.
    pub fn shares(&self) -> &[usize] {
        self.mode.shares(&self.core)
    }

    /// Buckets, in the order in which they become ready; with islands, those of the outer step.
    pub fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.core.step.buckets()
    }

    /// Returns true if a bucket's reduction has completed and its update is still to be applied.
    pub fn is_back(&mut self, bucket: usize) -> bool {
        self.core.step.is_back(bucket)
    }

    /// Noise scale of the gradient after all steps so far; `None` if it is not measured
    /// ([`Config::noise_scale`]). Fails if the last step's reduction failed (naming the rank).
    pub fn noise_scale(&mut self) -> Result<Option<NoiseScale>, Error> {
        self.core.noise_scale()
    }

    /// Records a setting outside the configuration that must be the same on all ranks, such as the model's
    /// precision. If it differs, the next step returns [`Error::SettingsDiffer`]. Replaces an earlier value
    /// of that name.
    pub fn note_setting(&mut self, name: &str, value: String) {
        self.core.notices.stated.set(name, value);
    }

    /// Adds a custom gradient transform behind those of [`Config::transforms`]; all ranks must add it. Call
    /// it between two steps. If the job has begun, the transform continues from the state of the other ranks
    /// or of a checkpoint ([`GradientTransform::state`]). Islands that synchronize rarely cannot have one
    /// each, servers that hold the weights see no gradient of all shards, and where gradients are divided
    /// each worker sees a part ([`GradientTransform::partial_sums`]); in these cases the next call fails.
    pub fn add_transform(&mut self, mut transform: impl GradientTransform) {
        let traits = self.traits();
        let obstacle = if traits.rounds.is_some() {
            Some("cannot be each island's; synchronize every step, or take one of the table")
        } else if traits.staleness_bound.is_some() {
            Some("needs the gradient of all shards, which `stale` has nowhere; synchronize every step")
        } else if self.core.config.sharding.divides_gradients() && transform.partial_sums().is_none() {
            Some(
                "needs the whole gradient, of which this sharding gives each worker a part; implement \
                 `partial_sums`, or take sharding `optimizer`",
            )
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

    /// Sets a statistic to the value that this rank alone computed in the current pass
    /// ([`Statistics::Local`](crate::Statistics::Local)). If it is not finite, the step fails.
    ///
    /// # Panics
    ///
    /// If its length is not the span's.
    pub fn keep_statistic(&mut self, id: SpanId, values: &[f32]) {
        self.next_mut().step.look_at_statistic(id, values);
        let core = &mut self.core;
        let place = core.weights.layout.span(id).range();
        core.weights.values.of_tensor_mut(id, place).copy_from_slice(values);
    }

    /// Adds a warning about the job to the next report, on rank 0 only.
    pub(crate) fn warn(&mut self, warning: Warning) {
        self.core.warn(warning);
    }

    /// Takes the warnings that no report contains yet: those since the last step, or from one that failed.
    pub fn take_warnings(&mut self) -> Vec<Warning> {
        self.core.notices.warnings.take()
    }

    /// Adds time that the training thread waited for data since the last step. Otherwise
    /// [`StepReport::straggler`](crate::StepReport::straggler) counts that time as computation.
    pub fn data_waited(&mut self, time: Duration) {
        self.core.observers.stragglers.data_waited(time);
    }

    /// Adds time that the training thread waited for other ranks within its passes
    /// ([`cross_shard`](crate::cross_shard)).
    pub fn exchange_waited(&mut self, time: Duration) {
        self.core.step.add_exposed(time);
    }

    /// Declares that the passes of this step meet those of other ranks, so that none waits for a sum.
    pub(crate) fn never_wait_in_passes(&mut self) {
        self.core.step.never_wait_in_passes();
    }

    /// Makes every later step of a tuned job use another setting, so that few steps go through many. Call it
    /// before the first step of a group, on all of its ranks.
    #[doc(hidden)]
    pub fn tune_hastily_for_tests(&mut self) {
        self.core.tune_hastily();
    }
}
