//! A Burn model trained by many workers as if by one.

mod in_step;

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use burn::module::Module;
use burn::tensor::Tensor;

use kolo_comm::{Group, JobMembership, Rank};
use kolo_ddp::cross_shard::Exchange;
use kolo_ddp::optimizer::Optimizer;
use kolo_ddp::{Access, Change, Config, Kind, Layout, Replica, ShardPass, SpanId, Statistics, StepReport};

use crate::Error;
use crate::hook::{self, Sink};
use crate::tensors::{self, Mappers, Which};

/// A shard's loss: a sum, and what it is a sum over. Kolo divides by the count of the whole batch, so a short
/// shard weighs what it should.
#[derive(Debug)]
pub struct Loss {
    sum: Tensor<1>,
    count: f64,
}

impl Loss {
    /// A loss that is the mean over `count` samples, as Burn's losses are by default. Shape `[1]`.
    pub fn mean(mean: Tensor<1>, count: usize) -> Self {
        Loss { sum: mean.mul_scalar(count as f32), count: count as f64 }
    }

    /// A loss that is the sum over `count` samples (or tokens, or whatever it counts). Shape `[1]`.
    pub fn sum(sum: Tensor<1>, count: usize) -> Self {
        Loss { sum, count: count as f64 }
    }
}

/// A model of which every worker holds a replica.
///
/// Every step, each rank calls [`Ddp::backward`] once for each of its [`Ddp::shards`], or [`Ddp::in_step`]
/// once for all of them, and then [`Ddp::step`]. With one worker it trains like any other loop.
///
/// After a step the model's parameters are lazy, as Burn's are before their first use: whoever uses one first
/// waits until its gradient is back. So the first layers compute while the gradients of the last ones are
/// still on the wire.
pub struct Ddp<M> {
    /// Always there; taken only while it is being rewritten.
    model: Option<M>,
    /// Shared with the hook, which runs inside the backward pass.
    replica: Arc<Mutex<Replica>>,
    group: Arc<Group>,
    layout: Arc<Layout>,
    shards: Range<usize>,
    /// The statistics among the model's tensors.
    statistics: Vec<SpanId>,
    policy: Statistics,
    mappers: Mappers,
    /// For steps in which shards go together: made for the first one, and again when the group or its shares
    /// are others.
    exchange: Option<Exchange>,
}

impl<M: Module> Ddp<M> {
    /// Joins the replicas: checks that all ranks hold the same model and gives all of them rank 0's values. The optimizer is one
    /// of the table ([`named`](kolo_ddp::optimizer::named)) or the caller's own.
    ///
    /// # Errors
    ///
    /// The models differ (naming the parameter and the rank), the model is not on a backend whose gradients Kolo
    /// can see, or a collective failed.
    pub fn new(group: Group, model: M, config: &Config, optimizer: impl Optimizer) -> Result<Self, Error> {
        let exact = tensors::check_devices(&model)?;
        let inventory = tensors::inventory(&model, Which::All)?;
        let replica = Replica::new(Arc::new(group), inventory.specs, inventory.values, config, optimizer)?;
        Ok(Self::of(model, exact, replica, config.statistics))
    }

    /// As [`Ddp::new`], as a member of a job whose workers may come and go: see [`Replica::elastic`]. Where
    /// the others have trained already this one takes their state, and [`Replica::steps`] says how many steps
    /// that were.
    ///
    /// # Errors
    ///
    /// As [`Ddp::new`]; or too few workers are there.
    pub fn elastic(
        member: impl JobMembership + 'static,
        model: M,
        config: &Config,
        optimizer: impl Optimizer,
    ) -> Result<Self, Error> {
        let exact = tensors::check_devices(&model)?;
        let inventory = tensors::inventory(&model, Which::All)?;
        let replica = Replica::elastic(member, &inventory.specs, &inventory.values, config, optimizer)?;
        Ok(Self::of(model, exact, replica, config.statistics))
    }

    fn of(model: M, exact: bool, replica: Replica, policy: Statistics) -> Self {
        if !exact && replica.group().rank() == Rank(0) {
            log::warn!(
                "the model's device may add in another order with every launch: the same bits are not \
                 promised on it"
            );
        }
        let shards = replica.shards();
        let (group, layout) = (replica.group().clone(), replica.layout().clone());
        let spans = layout.spans().iter().enumerate();
        let statistics =
            spans.filter(|(_, span)| span.spec.kind == Kind::Statistic).map(|(i, _)| SpanId(i)).collect();
        let replica = Arc::new(Mutex::new(replica));
        let mappers = Mappers::of(&model);
        let model = Some(model);
        let mut ddp =
            Ddp { model, replica, group, layout, shards, statistics, policy, mappers, exchange: None };
        ddp.write(Which::All);
        ddp
    }

    /// The model. Run its forward pass here; for evaluation take [`Ddp::evaluated`].
    pub fn model(&self) -> &M {
        self.model.as_ref().expect("the model is away only inside `write`")
    }

    /// The model, trained. It has nothing to do with the other ranks any more.
    ///
    /// # Errors
    ///
    /// The last step's reduction failed (naming the rank).
    pub fn into_model(mut self) -> Result<M, Error> {
        self.with_replica(|replica| replica.values().map(drop))?;
        Ok(self.model.take().expect("the model is away only inside `write`"))
    }

    /// This worker's rank.
    pub fn rank(&self) -> Rank {
        self.group.rank()
    }

    /// The ranks that train together.
    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// The model's tensors, in the order of flat memory.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// A copy of the model for evaluation: no gradients, running statistics instead of the batch's.
    pub fn evaluated(&self) -> M {
        self.model().valid()
    }

    /// The shards of each step that are this rank's: call [`Ddp::backward`] once for each, in order. They
    /// stay the same until a step's report says that they have changed, or the ranks do ([`Ddp::regroup`]).
    pub fn shards(&self) -> Range<usize> {
        self.shards.clone()
    }

    /// The flat side: values, checkpoints, the step.
    pub fn with_replica<R>(&self, look: impl FnOnce(&mut Replica) -> R) -> R {
        // A lazy parameter waits for the replica: `look` could not use the model.
        tensors::settle(self.model());
        look(&mut lock(&self.replica))
    }

    /// Runs one shard's backward pass. Gradients are reduced while it runs, during the last of this rank's
    /// shards. A loss over no samples counts as [`Ddp::skip_shard`].
    ///
    /// # Errors
    ///
    /// This rank has no more shards in this step, or the loss does not come from a model on `flex` with
    /// autodiff.
    pub fn backward(&mut self, loss: Loss) -> Result<(), Error> {
        if loss.count == 0.0 {
            return self.skip_shard();
        }
        let sum: f32 = loss.sum.clone().into_scalar();
        // Looks at every parameter, so none is lazy after it.
        let nodes = tensors::nodes(self.model());
        let pass = ShardPass::begin(self.replica.clone(), f64::from(sum), loss.count)?;
        let sink = Arc::new(ToPass(Mutex::new(Some(pass))));
        hook::backward(loss.sum, nodes, sink.clone())?;
        let pass = lock(&sink.0).take();
        let mut pass = pass.expect("the hook leaves the pass where it is");
        self.report_statistics(&mut pass, loss.count)?;
        Ok(pass.finish()?)
    }

    /// In place of [`Ddp::backward`] for a shard without samples, as in a short last batch.
    ///
    /// # Errors
    ///
    /// This rank has no more shards in this step.
    pub fn skip_shard(&mut self) -> Result<(), Error> {
        self.with_replica(|replica| Ok(replica.begin_shard(0.0, 0.0)?.finish()?))
    }

    /// Ends the step: from now on the model has its new parameters.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), a shard's backward pass is missing, or no rank had a sample. A
    /// reduction that fails while the next forward pass waits for it leaves that parameter as it was, and the
    /// next call here says why.
    pub fn step(&mut self, learning_rate: f64) -> Result<StepReport, Error> {
        let report = self.with_replica(|replica| replica.step(learning_rate))?;
        if report.change == Change::Regrouped || report.shards_changed {
            self.follow();
        }
        self.write(Which::All);
        Ok(report)
    }

    /// After an error of any call here: goes on with those that are left where it is another worker's death
    /// and the job is elastic, else returns it. See [`Replica::recover`].
    ///
    /// # Errors
    ///
    /// `error` itself, or what stands in the way of going on.
    pub fn recover(&mut self, error: Error) -> Result<(), Error> {
        let Error::Ddp(error) = error else { return Err(error) };
        self.with_replica(|replica| replica.recover(error))?;
        self.follow();
        self.write(Which::All);
        Ok(())
    }

    /// After the replica has got another group, or its shards have moved.
    fn follow(&mut self) {
        self.exchange = None;
        (self.group, self.shards) = self.with_replica(|replica| (replica.group().clone(), replica.shards()));
    }

    /// The loop has waited so long for its next batch: so a rank whose data comes slowly is not taken for one
    /// that computes slowly ([`Replica::data_waited`]).
    pub fn data_waited(&self, time: Duration) {
        lock(&self.replica).data_waited(time);
    }

    /// Continues from a checkpoint of the same model and optimizer; every rank calls it.
    ///
    /// # Errors
    ///
    /// Names the file and the first tensor that does not fit.
    pub fn load(&mut self, checkpoint: &std::path::Path) -> Result<kolo_ddp::checkpoint::Position, Error> {
        let position = self.with_replica(|replica| kolo_ddp::checkpoint::load(checkpoint, replica))?;
        self.write(Which::All);
        Ok(position)
    }

    /// Goes on with other ranks, after an error or between two steps: see [`Replica::regroup`]. Shards are
    /// divided anew, and a step that has not come to its end is to be done again: [`Replica::steps`] says
    /// which is the next one.
    ///
    /// # Errors
    ///
    /// As [`Replica::regroup`].
    pub fn regroup(&mut self, group: Group) -> Result<(), Error> {
        self.with_replica(|replica| replica.regroup(Arc::new(group)))?;
        self.follow();
        self.write(Which::All);
        Ok(())
    }

    /// Every shard starts from the same statistics and tells how far its forward pass moved them; the step
    /// moves them by the weighted mean. Or, by [`Statistics::Local`], the next shard of this rank goes on
    /// where this one ended.
    fn report_statistics(&mut self, pass: &mut ShardPass<impl Access>, count: f64) -> Result<(), Error> {
        if self.statistics.is_empty() {
            return Ok(());
        }
        let moved = tensors::inventory(self.model(), Which::Statistics)?.values;
        self.report(pass, &moved, count);
        self.write(Which::Statistics);
        Ok(())
    }

    fn report(&self, pass: &mut ShardPass<impl Access>, mut moved: &[f32], count: f64) {
        for &id in &self.statistics {
            let span = self.layout.span(id);
            let (end, rest) = moved.split_at(span.len);
            moved = rest;
            let change: Option<Vec<f32>> = pass.with_replica(|replica| {
                let start = replica.latest(id);
                if end == start {
                    return None;
                }
                if self.policy == Statistics::Local {
                    replica.keep_statistic(id, end);
                    return None;
                }
                Some(end.iter().zip(start).map(|(end, start)| (end - start) * count as f32).collect())
            });
            if let Some(change) = change {
                pass.ready(id, &change);
            }
        }
    }

    fn write(&mut self, which: Which) {
        let source = |id| {
            let replica = self.replica.clone();
            move || lock(&replica).latest(id).to_vec()
        };
        let model = self.model.take();
        self.model = model.map(|model| tensors::write(model, &self.layout, which, &self.mappers, source));
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands gradients to the pass that is under way. The graph may keep the sink longer than that.
struct ToPass(Mutex<Option<ShardPass<Arc<Mutex<Replica>>>>>);

impl Sink for ToPass {
    fn ready(&self, span: SpanId, gradient: &[f32]) {
        if let Some(pass) = &mut *lock(&self.0) {
            pass.ready(span, gradient);
        }
    }
}

#[cfg(test)]
#[path = "ddp_tests.rs"]
mod tests;
