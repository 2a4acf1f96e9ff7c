//! One worker's share of the model: flat parameters, the reducer and the optimizer. What a binding talks to.

mod config;
mod elastic;
mod last;
mod meet;
mod pace;
mod report;
mod undo;
mod update;

use std::sync::Arc;

use kolo_comm::{Group, Rank};
use kolo_elastic::Member;

pub use self::config::Config;
pub use self::elastic::Change;
pub use self::last::LastStep;
pub use self::report::StepReport;
use self::undo::Undo;
use self::update::Update;
use crate::buckets::BucketCaps;
use crate::clip;
use crate::error::Error;
use crate::layout::{Layout, ParamSpec, SpanId};
use crate::optimizer::Optimizer;
use crate::reducer::Reducer;
use crate::straggler::{Clock, Scout};
use crate::verify::Watch;

/// See the module's text.
///
/// A step's updates are made when somebody asks for the values: [`Replica::latest`] waits for one bucket only, so that the next
/// forward pass can begin while the gradients of later layers are still on the wire. Everything else here waits for all.
pub struct Replica {
    group: Arc<Group>,
    layout: Arc<Layout>,
    values: Vec<f32>,
    reducer: Reducer,
    optimizer: Box<dyn Optimizer>,
    config: Config,
    /// Shards of a step, which stay what they were when the job began.
    shards: usize,
    /// Whether the values are the job's.
    joined: bool,
    /// By which it finds its next group, in an elastic job; and whether it is to leave.
    member: Option<Member>,
    leaving: bool,
    /// Who is to leave after the step that runs, and why.
    parting: Option<(Rank, String)>,
    undo: Option<Undo>,
    /// Steps begun: of the last one some updates may be due.
    steps: u64,
    /// The one whose updates are due, and the last one that is complete.
    running: Option<LastStep>,
    last: Option<LastStep>,
    /// Whether each bucket's update is still to be made, and how many are.
    due: Vec<bool>,
    missing: usize,
    /// What those updates multiply the summed gradient by, and what it is clipped by besides.
    scale: f64,
    clip: f64,
    /// What went wrong when [`Replica::latest`] could not say so.
    failure: Option<Error>,
    watch: Watch,
    clock: Clock,
    scout: Scout,
}

impl Replica {
    /// A replica of the model with these tensors, whose `values` follow one another in the same order. Afterwards all
    /// ranks have the values of rank 0; or, where some of them have trained before ([`Replica::regroup`]), theirs.
    ///
    /// # Errors
    ///
    /// The ranks hold different models (naming the parameter), a setting is wrong, or a collective failed.
    pub fn new(
        group: Arc<Group>,
        specs: Vec<ParamSpec>,
        values: Vec<f32>,
        config: &Config,
        optimizer: impl FnOnce(usize) -> Box<dyn Optimizer>,
    ) -> Result<Self, Error> {
        let layout = Arc::new(Layout::new(specs));
        assert_eq!(values.len(), layout.len(), "as many values as the tensors have elements");
        if config.clip_norm.is_some_and(|norm| norm.is_nan() || norm <= 0.0) {
            return Err(Error::Setting("the norm to clip to must be greater than 0".into()));
        }
        let shards = config.shards.unwrap_or(group.world_size());
        pace::check(config, shards, group.world_size())?;
        // A reducer of nothing, until the ranks have met.
        let nothing = Arc::new(Layout::new(Vec::new()));
        let mut replica = Replica {
            reducer: Reducer::new(group.clone(), nothing, shards, BucketCaps::of_mib(25.0))?,
            optimizer: optimizer(layout.len()),
            layout,
            values,
            config: config.clone(),
            shards,
            joined: false,
            member: None,
            leaving: false,
            parting: None,
            undo: None,
            steps: 0,
            running: None,
            last: None,
            due: Vec::new(),
            missing: 0,
            scale: 0.0,
            clip: 1.0,
            failure: None,
            watch: Watch::new(config)?,
            clock: Clock::default(),
            scout: Scout::new(config.straggler, Vec::new()),
            group: group.clone(),
        };
        replica.meet(group)?;
        Ok(replica)
    }

    /// Goes on with other ranks: those of the last group that are left, and new ones, which call [`Replica::new`]. A step
    /// that has not come to its end on any of them is forgotten, so that it can be done again; where one has, all get what
    /// it has. The values go on in the same bits as if nothing had happened.
    ///
    /// To be called after an error, or between two steps. Shards are divided anew.
    ///
    /// # Errors
    ///
    /// As [`Replica::new`]; then it can be called again, with another group. The replica is not elastic.
    pub fn regroup(&mut self, group: Arc<Group>) -> Result<(), Error> {
        if !self.config.elastic {
            return Err(Error::Setting("only a replica with `Config::elastic` can regroup".into()));
        }
        self.roll_back();
        // Ranks may be others now, and fewer.
        self.parting = None;
        self.meet(group)
    }

    /// Makes the updates of the last step whose gradients are back; forgets the step if some are not.
    fn roll_back(&mut self) {
        self.failure = None;
        // What fails here has failed before.
        let _ = self.settle();
        if std::mem::take(&mut self.missing) > 0 {
            self.steps -= 1;
            if let Some(undo) = &mut self.undo {
                undo.revert(&mut self.values);
            }
        }
    }

    /// The ranks that train together.
    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// Where each tensor lives.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// All values of the model, in the order of the layout, after all steps so far.
    ///
    /// # Errors
    ///
    /// The last step's reduction failed (naming the rank).
    pub fn values(&mut self) -> Result<&[f32], Error> {
        self.settle()?;
        Ok(&self.values)
    }

    /// The values of one tensor after all steps so far: waits for the buckets it is in, not for the others. Where its
    /// reduction has failed they are those before the step, and the next call that can fail says why.
    pub fn latest(&mut self, id: SpanId) -> &[f32] {
        for bucket in self.reducer.buckets_of(id) {
            if self.missing > 0
                && let Err(error) = self.update(bucket)
            {
                self.failure.get_or_insert(error);
            }
        }
        &self.values[self.layout.span(id).range()]
    }

    /// Buckets of the last step for which nobody has waited yet.
    pub fn outstanding(&self) -> usize {
        self.missing
    }

    /// Takes gradients during a backward pass.
    pub fn reducer(&mut self) -> &mut Reducer {
        &mut self.reducer
    }

    /// Steps so far, also the last one if its updates are still to be made.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Before a shard's backward pass: its loss, summed over `count` samples.
    ///
    /// # Errors
    ///
    /// This rank has no more shards in this step, or the last step's reduction failed.
    pub fn begin_shard(&mut self, loss: f64, count: f64) -> Result<(), Error> {
        self.settle()?;
        self.watch.begin(&self.group, &self.layout, &self.values, self.shards)?;
        self.reducer.begin_shard(loss, count)
    }

    /// Ends a step: whoever asks for values from now on gets them with its updates made.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), a backward pass is missing, or no rank had a sample.
    pub fn step(&mut self, learning_rate: f64) -> Result<StepReport, Error> {
        self.passes_over();
        self.settle()?;
        // Once more for a rank without shards.
        self.watch.begin(&self.group, &self.layout, &self.values, self.shards)?;
        self.optimizer.begin(self.steps + 1, learning_rate);
        if self.wants_change() {
            self.reducer.want_change(self.leaves());
        }
        let totals = self.reducer.finish(self.steps)?;
        let scale = 1.0 / totals.count;
        // Waits for all buckets: a step that fails here has updated nothing, and is not one yet.
        let (clip, gradient_norm) = match self.config.clip_norm {
            Some(limit) => self.clip(limit, scale)?,
            None => (1.0, None),
        };
        let done = LastStep { step: self.steps, loss: totals.loss * scale, count: totals.count };
        self.steps += 1;
        self.running = Some(done);
        (self.scale, self.clip) = (scale, clip);
        self.missing = self.reducer.buckets().count();
        self.due.clear();
        self.due.resize(self.missing, true);
        if self.missing == 0 {
            // A model without tensors.
            self.complete()?;
        }
        if !self.overlaps() || self.reducer.is_rehearsing() {
            self.settle()?;
        }
        if self.watch.is_due(self.steps, self.group.world_size()) {
            self.settle()?;
            self.watch.look(&self.group, &self.layout, &self.values, &done)?;
        }
        let (straggler, shards_changed) = self.look_around()?;
        let (buckets, exposed) = self.reducer.take_timings();
        self.clock.step_over(exposed, self.reducer.ready_times(), self.group.waited());
        if let Some(member) = &self.member {
            member.step_done();
        }
        let change = if totals.change { self.change(totals.stays)? } else { Change::None };
        Ok(StepReport {
            loss: done.loss,
            count: done.count,
            gradient_norm,
            buckets,
            exposed,
            started_early: totals.started_early,
            change,
            straggler,
            shards_changed,
        })
    }

    /// Makes all updates that are still to be made.
    fn settle(&mut self) -> Result<(), Error> {
        if let Some(error) = self.failure.take() {
            return Err(error);
        }
        if self.missing > 0 {
            let order: Vec<usize> = self.reducer.order().collect();
            if self.config.elastic && self.undo.is_none() {
                // Once all is back nothing can fail halfway.
                order.iter().try_for_each(|bucket| self.reducer.collect(*bucket).map(drop))?;
            }
            order.into_iter().try_for_each(|bucket| self.update(bucket))?;
        }
        Ok(())
    }

    /// Whether reductions reach into the next forward pass. To take a step back there costs a copy of the values, which pays
    /// where the wire is slow.
    fn overlaps(&self) -> bool {
        let slow = self.group.reach() == kolo_comm::Distance::Network;
        self.config.forward_overlap && (slow || !self.config.elastic)
    }

    /// Updates the values of a bucket, if that is still to be done.
    fn update(&mut self, bucket: usize) -> Result<(), Error> {
        if !self.due[bucket] {
            return Ok(());
        }
        let (spans, gradient) = self.reducer.collect(bucket)?;
        let mut update = Update {
            layout: &self.layout,
            values: &mut self.values,
            undo: self.undo.as_mut(),
            optimizer: &mut *self.optimizer,
        };
        update.bucket(spans, gradient, self.scale, self.clip);
        self.due[bucket] = false;
        self.missing -= 1;
        if self.missing == 0 {
            self.complete()?;
        }
        Ok(())
    }

    /// All updates of a step are in.
    fn complete(&mut self) -> Result<(), Error> {
        if let Some(undo) = &mut self.undo {
            undo.commit();
        }
        self.last = self.running.take();
        self.reducer.end_step()
    }

    /// What clips the gradient to a norm, for which all of it has to be there; and the norm that it has.
    fn clip(&mut self, limit: f64, scale: f64) -> Result<(f64, Option<f64>), Error> {
        let order: Vec<usize> = self.reducer.order().collect();
        let mut squares = clip::Squares::new(&self.layout);
        for bucket in order {
            let (bucket, gradient) = self.reducer.collect(bucket)?;
            bucket.slices.iter().for_each(|slice| squares.put(slice, &gradient[slice.range()]));
        }
        let norm = scale * squares.total(&self.layout).sqrt();
        Ok((clip::factor(norm, limit), Some(norm)))
    }

    /// Sets a statistic to what this rank alone has made of it ([`Statistics::Local`](crate::Statistics::Local)).
    ///
    /// # Panics
    ///
    /// If its length is not the span's.
    pub fn keep_statistic(&mut self, id: SpanId, values: &[f32]) {
        self.values[self.layout.span(id).range()].copy_from_slice(values);
    }

    /// What a checkpoint has to hold: the values and the optimizer's state, by name.
    pub(crate) fn parts(&mut self) -> Result<(&Layout, &mut [f32], &mut dyn Optimizer), Error> {
        self.settle()?;
        if self.is_halfway() {
            let problem =
                "a step has failed when half of it was made; do it again before saving a checkpoint";
            return Err(Error::Setting(problem.into()));
        }
        Ok((&self.layout, &mut self.values, &mut *self.optimizer))
    }

    pub(crate) fn resume(&mut self, steps: u64) {
        (self.steps, self.last) = (steps, None);
    }
}
