//! One worker's model in a job, of any tensor library: the calls of a training loop.

mod address_space;
mod cross_shard_passes;
mod islands;
mod state;
mod statistics;

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kolo_comm::Error::TooFew;
use kolo_comm::env::known_workers;
use kolo_comm::{Group, JobMembership, Rank};
use kolo_trace::What;

use self::statistics::StatisticsReport;
use crate::binding::{Binding, GradientSink, Inventory, Loss, Source, Values, Which, give_back, scaled};
use crate::checkpoint::{self, Position, Resumed};
use crate::cross_shard::Exchange;
use crate::replica::Replica;
use crate::shard_pass::{ShardPass, lock};
use kolo_optim::{Layout, Optimizer, SpanId};
use kolo_reduction::Error;
use kolo_sampler::{BatchGrowth, Sampler};
use kolo_sync::{Change, Config, FirstParts, Sharding, StepReport, Warning};

/// A model of which every worker holds a replica.
///
/// Every step, each rank calls [`Ddp::backward`] once for each of its [`Ddp::shards`], or
/// [`Ddp::cross_shard_passes`] once for all of them, and then [`Ddp::step`]. With one worker it trains like
/// any other loop.
///
/// After a step a binding may make the model's parameters wait: the first use of a parameter waits until its
/// gradient is reduced. So the first layers compute while the gradients of the last ones are still in
/// flight.
pub struct Ddp<B> {
    model: B,
    /// Shared with the hook, which runs inside the backward pass, and with parameters that wait for their
    /// values.
    replica: Arc<Mutex<Replica>>,
    group: Arc<Group>,
    layout: Arc<Layout>,
    shards: Range<usize>,
    statistics: StatisticsReport,
    /// For cross-shard sums: made for the first step that needs them, and again when the group or its shares
    /// change.
    exchange: Option<Exchange>,
    /// The island whose values the model has, where islands synchronize rarely.
    island: Option<usize>,
}

kolo_comm::opaque_debug!([B] Ddp<B> { shards, island });

impl<B: Binding> Ddp<B> {
    /// Joins the replicas: checks that all ranks hold the same model and gives all of them rank 0's values.
    ///
    /// # Errors
    ///
    /// The models differ (naming the parameter and the rank), the binding cannot train the model, a setting
    /// is wrong, or a collective failed.
    pub fn new(
        group: Group,
        model: impl Into<B>,
        config: &Config,
        optimizer: impl Optimizer,
    ) -> Result<Self, Error> {
        let (mut model, mut optimizer, group) = (model.into(), optimizer, Arc::new(group));
        address_space::check(model.count(), config, &mut optimizer, group.world_size())?;
        let are_divided = config.sharding == Sharding::Parameters && group.world_size() > 1;
        let divide: Vec<bool> = group.all_gather_value(&are_divided)?;
        if divide.contains(&false) {
            // If some ranks divide values and others do not, they find it when they meet.
            let Inventory { specs, values, warnings } = model.inventory(Which::All)?;
            let replica = Replica::new(group, specs, values, config, optimizer)?;
            return Ok(Self::of(model, replica, warnings, config));
        }
        let mut warnings = Vec::new();
        let hand_over = |parts: &mut FirstParts| {
            let inventory = model.hand_over(parts)?;
            warnings = inventory.warnings;
            Ok(inventory.specs)
        };
        let replica = Replica::divided(group, hand_over, config, optimizer)?;
        Ok(Self::of(model, replica, warnings, config))
    }

    /// Joins a job whose workers may come and go: see [`Replica::elastic`]. If the job has begun, this
    /// worker receives its state, and [`Replica::steps`] returns the number of steps done.
    ///
    /// # Errors
    ///
    /// As [`Ddp::new`]; or there are too few workers.
    pub fn elastic(
        member: impl JobMembership + 'static,
        model: impl Into<B>,
        config: &Config,
        optimizer: impl Optimizer,
    ) -> Result<Self, Error> {
        let (mut model, mut optimizer) = (model.into(), optimizer);
        // The group forms when this worker has its model.
        address_space::check(model.count(), config, &mut optimizer, known_workers()?)?;
        let inventory = match config.sharding {
            Sharding::Parameters => {
                // The first group may fail, and another one has other parts.
                let mut values = Vec::new();
                let inventory = model.hand_over(&mut values)?;
                Inventory { values, ..inventory }
            }
            _ => model.inventory(Which::All)?,
        };
        let Inventory { specs, values, warnings } = inventory;
        let replica = Replica::elastic_of(member, &specs, &Arc::new(values), config, optimizer)?;
        Ok(Self::of(model, replica, warnings, config))
    }

    fn of(model: B, mut replica: Replica, warnings: Vec<String>, config: &Config) -> Self {
        warnings.into_iter().for_each(|warning| replica.warn(Warning::Model(warning)));
        let (group, layout, shards) = (replica.group().clone(), replica.layout().clone(), replica.shards());
        let statistics = StatisticsReport::new(&layout, config.statistics);
        let replica = Arc::new(Mutex::new(replica));
        let mut ddp = Ddp { model, replica, group, layout, shards, statistics, exchange: None, island: None };
        ddp.write(Which::All);
        // The first values are in flat memory now, and no longer in the model.
        give_back();
        ddp
    }

    /// The model, for the loop's forward pass.
    pub fn model(&self) -> &B {
        &self.model
    }

    /// Returns the trained model, which has no further connection to the other ranks. A collective if values
    /// are divided ([`Config::sharding`]): each rank then gathers all of them.
    ///
    /// # Errors
    ///
    /// The last step's reduction failed (naming the rank), or the ranks' weights still differ: a round has
    /// not ended.
    pub fn into_model(mut self) -> Result<B, Error> {
        self.with_replica(|replica| replica.core.apply_outstanding())?;
        self.expect_whole_round()?;
        if self.with_replica(|replica| replica.core.divides_values()) {
            self.model.take_values();
            self.with_replica(|replica| replica.core.apply_outstanding())?;
            // Until all ranks have theirs, none leaves.
            self.group.barrier()?;
        }
        Ok(self.model)
    }

    /// Ends the job without a model. Where values are divided ([`Config::sharding`]) it waits until all ranks
    /// do, since they may need this one's values until then.
    ///
    /// # Errors
    ///
    /// The last step's reduction failed (naming the rank), or a collective failed.
    pub fn end(self) -> Result<(), Error> {
        let divides = self.with_replica(|replica| {
            replica.core.apply_outstanding().map(|()| replica.core.divides_values())
        })?;
        if divides { Ok(self.group.barrier()?) } else { Ok(()) }
    }

    /// This worker's rank.
    pub fn rank(&self) -> Rank {
        self.group.rank()
    }

    /// Returns true if this process is a summation server: see [`Replica::is_server`]. It runs the same
    /// loop, without shards; work with the model's values, such as an evaluation, is for [`Ddp::workers`].
    pub fn is_server(&self) -> bool {
        self.with_replica(|replica| replica.is_server())
    }

    /// The ranks that train and hold the model: all but summation servers.
    pub fn workers(&self) -> Vec<Rank> {
        self.with_replica(|replica| replica.workers())
    }

    /// The ranks that train together.
    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// Place of each of the model's tensors in flat memory.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The shards of each step that are this rank's: call [`Ddp::backward`] once for each, in order. They
    /// stay the same until a step's report has [`StepReport::shards_changed`], or the ranks change
    /// ([`Ddp::regroup`]).
    pub fn shards(&self) -> Range<usize> {
        self.shards.clone()
    }

    /// Divides a data set among this job's shards: see [`Replica::sampler`].
    ///
    /// # Errors
    ///
    /// A count is zero; the error names it.
    pub fn sampler(&self, samples: usize, batch: usize, seed: u64) -> Result<Sampler, Error> {
        lock(&self.replica).sampler(samples, batch, seed)
    }

    /// Divides a data set as [`Ddp::sampler`] does, for a batch that grows between epochs: see
    /// [`Replica::growing_sampler`]. Fails as [`Sampler::growing`] does.
    pub fn growing_sampler(
        &self,
        samples: usize,
        batch: usize,
        growth: &[BatchGrowth],
        seed: u64,
    ) -> Result<Sampler, Error> {
        lock(&self.replica).growing_sampler(samples, batch, growth, seed)
    }

    /// Runs `look` on the replica: values, checkpoints, timings. `look` must not use the model.
    pub fn with_replica<R>(&self, look: impl FnOnce(&mut Replica) -> R) -> R {
        self.model.wait_for_values();
        look(&mut lock(&self.replica))
    }

    /// Returns the replica itself, for access in the middle of a backward pass, as from a layer or another
    /// thread. While it is locked, parameters cannot get their values.
    pub fn shared_replica(&self) -> Arc<Mutex<Replica>> {
        self.replica.clone()
    }

    /// Runs one shard's backward pass. Gradients are reduced while it runs, during the last of this rank's
    /// shards. A loss over no samples counts as [`Ddp::skip_shard`].
    ///
    /// # Errors
    ///
    /// This rank has no more shards in this step, or the binding refuses the loss.
    pub fn backward(&mut self, loss: B::Loss) -> Result<(), Error> {
        if loss.count() == 0.0 {
            return self.skip_shard();
        }
        kolo_trace::spanned(What::Backward, || self.backward_pass(loss))
    }

    fn backward_pass(&mut self, loss: B::Loss) -> Result<(), Error> {
        let (sum, count) = (loss.sum(), loss.count());
        // `begin` locks the replica; a parameter that waits for its values would wait for that lock.
        self.model.wait_for_values();
        let mut pass = ShardPass::begin(self.replica.clone(), sum, count)?;
        let loss = scaled(loss, pass.with_replica(|replica| replica.loss_scale()));
        let sink = Arc::new(ToPass(Mutex::new(Some(pass))));
        let result = self.model.backward(loss, sink.clone());
        let pass = lock(&sink.0).take();
        result?;
        self.model.expect_frozen_unchanged()?;
        let mut pass = pass.expect("nobody else takes it");
        if !self.statistics.is_empty() {
            let moved = self.model.inventory(Which::Statistics)?.values;
            self.statistics.report(&self.layout, &mut pass, &moved, count);
            self.write(Which::Statistics);
        }
        pass.finish()?;
        self.follow_island();
        Ok(())
    }

    /// Replaces [`Ddp::backward`] for a shard without samples, as in a short last batch.
    ///
    /// # Errors
    ///
    /// This rank has no more shards in this step.
    pub fn skip_shard(&mut self) -> Result<(), Error> {
        self.with_replica(|replica| replica.begin_shard(0.0, 0.0)?.finish())?;
        self.follow_island();
        Ok(())
    }

    /// Ends the step: from now on the model has its new parameters.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), a shard's backward pass is missing, or no rank had a sample.
    /// If a reduction fails while the next forward pass waits for it, that parameter stays as it was, and
    /// the next call of `step` returns the error.
    pub fn step(&mut self, learning_rate: f64) -> Result<StepReport, Error> {
        self.model.wait_for_values();
        self.model.release(&self.newest_values());
        let report = lock(&self.replica).step(learning_rate)?;
        if report.change == Change::Regrouped || report.shards_changed {
            self.follow_replica();
        }
        self.write(Which::Changing);
        Ok(report)
    }

    /// Handles an error of any call here: after another worker's death in an elastic job, continues with the
    /// remaining workers; else returns the error. See [`Replica::recover`].
    ///
    /// # Errors
    ///
    /// `error` itself, or the reason why the job cannot continue.
    pub fn recover(&mut self, error: Error) -> Result<(), Error> {
        let recovered = self.with_replica(|replica| replica.recover(error));
        let is_grouped = match &recovered {
            Err(Error::Comm(TooFew { is_last_group, .. })) => *is_last_group,
            recovered => recovered.is_ok(),
        };
        if is_grouped {
            self.follow_replica();
            self.write(Which::All);
        }
        recovered
    }

    /// Continues with other ranks, after an error or between two steps: see [`Replica::regroup`]. Shards are
    /// divided anew, and an unfinished step is to be repeated: [`Replica::steps`] returns the number of the
    /// next one. Fails as [`Replica::regroup`] does.
    pub fn regroup(&mut self, group: Group) -> Result<(), Error> {
        self.with_replica(|replica| replica.regroup(Arc::new(group)))?;
        self.follow_replica();
        self.write(Which::All);
        Ok(())
    }

    /// Continues from a checkpoint of the same model and optimizer. A collective: see [`checkpoint::load`].
    ///
    /// # Errors
    ///
    /// As [`checkpoint::load`], the same on all ranks.
    pub fn load(&mut self, checkpoint: &Path) -> Result<Position, Error> {
        let position = self.with_replica(|replica| checkpoint::load(checkpoint, replica))?;
        self.write(Which::All);
        Ok(position)
    }

    /// Continues from the newest checkpoint in `folder` that every rank has and can read, if there is any. A
    /// collective: see [`checkpoint::resume`].
    ///
    /// # Errors
    ///
    /// As [`checkpoint::resume`], the same on all ranks.
    pub fn resume(&mut self, folder: &Path) -> Result<Option<Resumed>, Error> {
        let resumed = self.with_replica(|replica| checkpoint::resume(folder, replica))?;
        self.write(Which::All);
        Ok(resumed)
    }

    /// Reports the time that the loop has waited for its next batch, so that a rank with slow data is not
    /// mistaken for one that computes slowly ([`Replica::data_waited`]).
    pub fn data_waited(&self, time: Duration) {
        lock(&self.replica).data_waited(time);
    }

    /// Returns the warnings that no report has contained yet: see [`Replica::take_warnings`].
    pub fn take_warnings(&self) -> Vec<Warning> {
        lock(&self.replica).take_warnings()
    }

    /// Updates this struct after the replica's group or shards have changed.
    fn follow_replica(&mut self) {
        self.exchange = None;
        (self.group, self.shards) = self.with_replica(|replica| (replica.group().clone(), replica.shards()));
    }

    fn write(&mut self, which: Which) {
        self.island = lock(&self.replica).island();
        self.model.write(which, &self.newest_values());
    }

    fn newest_values(&self) -> Values {
        let divided = lock(&self.replica).core.weights.divided.clone();
        let source = Source::Newest { replica: self.replica.clone(), divided };
        Values { layout: self.layout.clone(), source }
    }
}

/// Hands gradients to the current pass. The library's graph may keep the sink longer than that.
struct ToPass(Mutex<Option<ShardPass<Arc<Mutex<Replica>>>>>);

impl GradientSink for ToPass {
    fn ready(&self, span: SpanId, gradient: &[f32]) {
        if let Some(pass) = &mut *lock(&self.0) {
            pass.ready(span, gradient);
        }
    }
}
