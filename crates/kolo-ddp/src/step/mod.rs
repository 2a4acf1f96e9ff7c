//! One step, as a state machine: `Collecting(shard i) → Reducing → Applying(bucket by bucket) → Idle`.
//!
//! **The way there.** The thread that runs a backward pass calls [`Step::add`] for every gradient that it has
//! computed, which is copied into its place in a bucket. In the last of this rank's shards a bucket to which
//! nothing is owed any more is handed to the group's communication thread, which reduces it while the
//! backward pass goes on. All ranks hand over the same collectives in the same order ([`launch_order`]),
//! whatever happened in their passes: the loss first, so that the divisor is known, then the buckets and the
//! agreement.
//!
//! **The way back.** Nobody is called when a bucket is back. Its buffer waits in the bucket until the
//! *training thread* wants a value: the next forward pass asks for a parameter
//! ([`Replica::latest`](crate::Replica::latest)), waits for that parameter's buckets only
//! ([`Step::collect`]), runs the optimizer on them in place, and says so ([`Step::applied`]). What nobody has
//! asked for when the next backward pass or [`Replica::step`](crate::Replica::step) begins is applied then,
//! in the order of launches. The last bucket that is applied ends the step ([`Step::prepare_next`]).
//!
//! | phase | entered by | thread | then |
//! |---|---|---|---|
//! | `Idle` | [`Step::prepare_next`] | training | shards may move ([`Step::rebalance`]) |
//! | `Collecting` | [`Step::begin_shard`], each shard | backward pass | [`Step::add`], [`Step::end_shard`] |
//! | `Reducing` | [`Step::start_rest`] | training, in `Replica::step` | all is on its way; [`Step::agree`] |
//! | `Applying` | [`Step::begin_applying`] | training | [`Step::collect`], [`Step::applied`] |
//! | `GivenUp` | [`Step::give_up`] | training, after a death | another group has another [`Step`] |
//!
//! Where updates are one step late (`replica/delayed.rs`) two of these take turns: one is in `Reducing` while
//! the other collects the gradients of the next step.
//!
//! What watches steps from outside (who takes part, who is slow) rides on the agreement as a [`Piggyback`],
//! of which the step knows no more than its size.

mod agreement;
mod between_steps;
mod bucket_state;
mod late;
mod launch_order;
mod outside;
mod piggyback;
mod profile;
mod scaled;
mod shard_squares;
mod state_before;
mod use_counts;

use std::sync::Arc;
use std::time::Duration;

use kolo_comm::Group;

use self::agreement::{Agreement, Seen};
pub use self::bucket_state::BucketTiming;
use self::bucket_state::Buckets;
use self::launch_order::{LaunchOrder, LaunchSlot};
pub(crate) use self::piggyback::{FLAGS, Heard, Piggyback};
use self::profile::{Lesson, Profile};
pub(crate) use self::scaled::StepNumber;
use self::scaled::Unscaling;
use self::shard_squares::ShardSquares;
use self::use_counts::UseCounts;
use crate::buckets::{Bucket, BucketCaps, plan, reversed};
use crate::error::Error;
use crate::last_step::LastStep;
use crate::losses::ShardLosses;
use crate::reduction::{FinishedShard, Reducer};
use crate::shard_loss::ShardLoss;
use crate::shares::Assignment;
use kolo_optim::{Kind, Layout, Span, SpanId};

/// Where a step stands. A call in another phase than it belongs to is refused.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// No step runs.
    Idle,
    /// The passes of this rank's first `done` shards are over; `pass` is the number of the one that is under
    /// way.
    Collecting { done: usize, pass: Option<u64> },
    /// All passes are over, and everything is on its way. A step that fails here stays here: its gradients
    /// are lost.
    Reducing,
    /// Gradients change values: `left` buckets are still to be applied of the step that ends as `ends`.
    Applying { left: usize, ends: LastStep },
    /// It has failed, and what it had applied has been taken back.
    GivenUp,
}

/// What is known when the ranks have agreed.
pub(crate) struct Totals {
    /// Sum of the loss over all samples.
    pub(crate) loss: f64,
    /// Number of samples (or whatever the loss counts).
    pub(crate) count: f64,
    /// Buckets whose reduction had been started before the last backward pass was over.
    pub(crate) started_early: usize,
    /// For each span whether no shard of any rank has used it.
    pub(crate) unused: Vec<bool>,
    /// Whether a gradient has overflowed before the reduction saw it.
    pub(crate) overflowed: bool,
    /// What observers have told.
    pub(crate) heard: Heard,
}

/// The steps of one rank of a group, one after another; what survives a change of the group is the replica's.
pub(crate) struct Step {
    group: Arc<Group>,
    layout: Arc<Layout>,
    /// Which ranks are summation servers.
    servers: Arc<[bool]>,
    assignment: Assignment,
    reducer: Arc<dyn Reducer>,
    caps: BucketCaps,
    synchronise: bool,
    /// Whether a step may be without any sample: then nothing changes.
    may_be_empty: bool,
    phase: Phase,
    /// Passes begun so far.
    passes: u64,
    /// The shard whose pass is under way, or was the last one.
    shard: FinishedShard,
    buckets: Buckets,
    launches: LaunchOrder,
    losses: ShardLosses,
    uses: UseCounts,
    unscaling: Unscaling,
    /// For the noise scale; `None` where it is not measured.
    squares: Option<ShardSquares>,
    agreement: Agreement,
    /// Buckets whose reduction had been started before the last backward pass was over.
    started_early: usize,
    profile: Profile,
    /// Time in which this rank's thread waited for communication, not yet reported.
    exposed: Duration,
}

impl Step {
    /// The steps of one rank of `group`, whose ranks have so many shards each and are `servers` or not, the
    /// same on all of them.
    ///
    /// # Errors
    ///
    /// There is not one number for each rank, all are 0, or memory cannot be had.
    pub(crate) fn new(
        group: Arc<Group>,
        layout: Arc<Layout>,
        shares: &[usize],
        servers: Arc<[bool]>,
        reducer: Arc<dyn Reducer>,
        caps: BucketCaps,
    ) -> Result<Self, Error> {
        if shares.len() != group.world_size() {
            let (given, ranks) = (shares.len(), group.world_size());
            return Err(Error::Setting(format!("{given} shares for {ranks} ranks; give one for each")));
        }
        if shares.iter().all(|share| *share == 0) {
            return Err(Error::Setting("shards is 0; a step needs at least 1".into()));
        }
        let assignment = Assignment::new(shares, group.rank()).with_servers(&servers);
        let plan = plan(&layout, &reversed(&layout), caps, reducer.needs_whole_tensors());
        let buckets = Buckets::new(plan, &*reducer, &layout, &group, &assignment)?;
        Ok(Step {
            launches: LaunchOrder::new(launch_order::by_readiness(buckets.states.len())),
            uses: UseCounts::new(layout.spans().len()),
            group,
            layout,
            servers,
            assignment,
            reducer,
            caps,
            synchronise: true,
            may_be_empty: false,
            phase: Phase::Idle,
            passes: 0,
            shard: FinishedShard { number: 0, step: 0, count: 0.0 },
            buckets,
            losses: ShardLosses::default(),
            unscaling: Unscaling::default(),
            squares: None,
            agreement: Agreement::default(),
            started_early: 0,
            profile: Profile::new(),
            exposed: Duration::ZERO,
        })
    }

    // Collecting.

    /// `Idle` or `Collecting` → `Collecting`: a shard's backward pass begins; its loss is summed over `count`
    /// samples. Returns the number of the pass, by which its later calls are known.
    ///
    /// # Errors
    ///
    /// A pass is under way, this rank has no more shards in this step, a step has failed, or memory cannot be
    /// had.
    pub(crate) fn begin_shard(&mut self, loss: f64, count: f64, step: StepNumber) -> Result<u64, Error> {
        let (done, due) = (self.passes_done("begin_shard")?, self.shards().len());
        if done == due {
            return Err(Error::NoShardLeft { due });
        }
        if done == 0 {
            self.begin(step);
        }
        self.losses.push(loss, count);
        self.shard = FinishedShard { number: self.shards().start + done, step: step.updates, count };
        self.uses.begin_shard();
        if let Some(squares) = &mut self.squares {
            squares.begin_shard(count);
        }
        self.buckets.begin_shard(&self.uses.expected);
        self.passes += 1;
        self.phase = Phase::Collecting { done, pass: Some(self.passes) };
        if done + 1 == due {
            self.profile.begin(self.buckets.states.len());
            self.start_losses()?;
            self.launch_complete();
        }
        Ok(self.passes)
    }

    /// One contribution to a span's gradient has been computed. It is ignored if the pass is not under way
    /// any more, as after a change of the group.
    ///
    /// # Panics
    ///
    /// If its length is not the span's.
    pub(crate) fn add(&mut self, pass: u64, id: SpanId, gradient: &[f32]) {
        let Some(done) = self.shard_of(pass) else { return };
        let span = self.layout.span(id);
        assert_eq!(gradient.len(), span.len, "gradient of {}", span.spec.name);
        let is_scaled = span.spec.kind != Kind::Statistic;
        match is_scaled.then(|| self.unscaling.take(gradient)).flatten() {
            Some(unscaled) => {
                self.contribute(done, id, &unscaled);
                self.unscaling.give_back(unscaled);
            }
            None => self.contribute(done, id, gradient),
        }
    }

    /// Puts a contribution to a span into its buckets, in the pass of this rank's shard `done`.
    fn contribute(&mut self, done: usize, id: SpanId, gradient: &[f32]) {
        let (last, (before, expected)) = (done + 1 == self.shards().len(), self.uses.count(id));
        if let Some(squares) = &mut self.squares {
            squares.add(&self.layout, id, gradient, before, expected);
        }
        if before >= expected {
            return self.uses.keep_late(id, gradient, done, self.shards().len());
        }
        if last && before + 1 == expected {
            self.profile.span_complete(id);
        }
        for place in 0..self.buckets.places[id.0].len() {
            let (bucket, slice) = self.buckets.places[id.0][place];
            let state = &mut self.buckets.states[bucket];
            state.add(slice, gradient, before == 0);
            let complete = state.owed == 0;
            if last {
                if complete {
                    self.profile.bucket_complete(bucket);
                }
                self.launch_complete();
            }
        }
    }

    /// A shard's backward pass is over: what has not come is zero.
    ///
    /// # Errors
    ///
    /// It is not under way any more, as after a change of the group.
    pub(crate) fn end_shard(&mut self, pass: u64) -> Result<(), Error> {
        let Some(done) = self.shard_of(pass) else {
            let phase = "after its step has been given up";
            return Err(Error::OutOfOrder { call: "finish", phase, remedy: "begin the step anew" });
        };
        self.buckets.end_shard(&self.uses, self.shard);
        self.uses.end_shard();
        if let Some(squares) = &mut self.squares {
            squares.end_shard();
        }
        self.phase = Phase::Collecting { done: done + 1, pass: None };
        Ok(())
    }

    /// Which of this rank's shards a pass is of, if it is the one that is under way.
    fn shard_of(&self, pass: u64) -> Option<usize> {
        match self.phase {
            Phase::Collecting { done, pass: Some(open) } if open == pass => Some(done),
            _ => None,
        }
    }

    /// How many of this rank's shards are complete, for a call that needs no pass to be under way.
    fn passes_done(&self, call: &'static str) -> Result<usize, Error> {
        match self.phase {
            Phase::Idle => Ok(0),
            Phase::Collecting { done, pass: None } => Ok(done),
            Phase::Collecting { pass: Some(_), .. } => {
                let phase = "while a shard's pass is under way";
                Err(Error::OutOfOrder {
                    call,
                    phase,
                    remedy: "call `ShardPass::finish` at the end of each pass",
                })
            }
            Phase::Reducing | Phase::Applying { .. } | Phase::GivenUp => Err(Error::Lost),
        }
    }

    /// In the pass of the last shard: starts every bucket that is complete and whose turn it is.
    fn launch_complete(&mut self) {
        while let Some(LaunchSlot::Bucket(bucket)) = self.launches.next() {
            let state = &mut self.buckets.states[bucket];
            if state.owed > 0 {
                break;
            }
            state.end_shard(&self.uses, self.shard);
            self.launch(bucket, self.shard.step);
        }
    }

    fn launch(&mut self, bucket: usize, step: u64) {
        let group = self.synchronise.then_some(&*self.group);
        self.buckets.states[bucket].launch(group, &self.assignment, step);
        self.launches.advance();
    }

    fn start_losses(&mut self) -> Result<(), Error> {
        if self.synchronise { self.losses.start(&self.group, &self.assignment) } else { Ok(()) }
    }

    // Reducing.

    /// `Collecting` → `Reducing`: all backward passes of this rank are over. Starts what has not been
    /// started. No collective of this step is started later but by [`Step::agree`] and
    /// [`Step::prepare_next`], so that it does not matter when each rank asks for which bucket.
    ///
    /// # Errors
    ///
    /// A backward pass is missing or under way, memory cannot be had, or a step has failed before.
    pub(crate) fn start_rest(&mut self, step: StepNumber, told: &Piggyback) -> Result<(), Error> {
        let updates = step.updates;
        let (done, due) = (self.passes_done("step")?, self.shards().len());
        if done != due {
            return Err(Error::ShardsMissing { due, done });
        }
        self.phase = Phase::Reducing;
        self.profile.pass_over();
        if due == 0 {
            self.begin(step);
            self.start_losses()?;
        }
        self.started_early = self.buckets.states.iter().filter(|state| state.is_launched).count();
        while let Some(slot) = self.launches.next() {
            match slot {
                LaunchSlot::Bucket(bucket) => self.launch(bucket, updates),
                LaunchSlot::Agreement => {
                    if self.synchronise {
                        let by_shard = self.by_shard();
                        self.agreement.start(&self.group, self.seen(), told, &by_shard)?;
                    }
                    self.launches.advance();
                }
            }
        }
        Ok(())
    }

    /// In `Reducing`: waits until the ranks agree on the step.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), no rank had a sample, the loss is not finite though it may not
    /// overflow, or no parameter has got a gradient.
    pub(crate) fn agree(&mut self, step: StepNumber) -> Result<Totals, Error> {
        let StepNumber { number, may_overflow, .. } = step;
        let [loss, count] = self.losses.finish(&mut self.exposed)?;
        let is_empty = count <= 0.0;
        if is_empty && !self.may_be_empty {
            return Err(Error::NoSamples { step: number });
        }
        let agreed = self.agreement.finish(&mut self.exposed)?;
        let (seen, heard) = agreed.unwrap_or_else(|| (self.seen(), Heard::default()));
        if !loss.is_finite() && !may_overflow {
            return Err(self.not_finite(number, loss)?);
        }
        if seen.surprise {
            self.add_late()?;
        }
        let unused = self.uses.unused();
        let mut spans = self.layout.spans().iter().zip(&unused);
        let is_trained = |span: &Span| span.spec.kind != Kind::Statistic;
        let is_used = spans.any(|(span, unused)| is_trained(span) && !unused);
        if !is_used && !is_empty && self.layout.spans().iter().any(is_trained) {
            return Err(Error::NoGradient { step: number });
        }
        let started_early = self.started_early;
        Ok(Totals { loss, count, started_early, unused, overflowed: seen.overflow, heard })
    }

    /// What this rank has seen in its passes.
    fn seen(&self) -> Seen {
        let surprise = !self.shards().is_empty() && self.uses.is_surprising();
        Seen { surprise, overflow: self.unscaling.has_overflowed() }
    }

    /// The error of a step whose loss, summed over all shards, is not finite; it names the shards.
    fn not_finite(&self, step: u64, loss: f64) -> Result<Error, Error> {
        let (rank, own) = (self.group.rank(), self.losses.not_finite());
        let named = |(shard, loss)| ShardLoss { rank, shard: self.shards().start + shard, loss };
        let mut shards: Vec<ShardLoss> = own.into_iter().map(named).collect();
        if self.synchronise {
            shards = self.group.all_gather_value::<_, Vec<ShardLoss>>(&shards)?.concat();
        }
        Ok(Error::LossNotFinite { step, loss, shards })
    }

    // Applying.

    /// `Reducing` → `Applying`: every bucket's update is due, of a step that ends as `ends`.
    pub(crate) fn begin_applying(&mut self, ends: LastStep) {
        self.buckets.states.iter_mut().for_each(|state| state.is_due = true);
        self.phase = Phase::Applying { left: self.buckets.states.len(), ends };
    }

    /// Waits for a bucket; gives it and its reduced gradient. Belongs to `Reducing`, for who looks at all of
    /// the gradient first, and to `Applying`.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    pub(crate) fn collect(&mut self, bucket: usize) -> Result<(&Bucket, &mut [f32]), Error> {
        let state = &mut self.buckets.states[bucket];
        state.wait(&mut self.exposed)?;
        Ok(state.result())
    }

    /// Whether a bucket's update is still to be made.
    pub(crate) fn is_due(&self, bucket: usize) -> bool {
        self.buckets.states[bucket].is_due
    }

    /// Updates that are still to be made.
    pub(crate) fn outstanding(&self) -> usize {
        match self.phase {
            Phase::Applying { left, .. } => left,
            _ => 0,
        }
    }

    /// A bucket has changed the values.
    pub(crate) fn applied(&mut self, bucket: usize) {
        let state = &mut self.buckets.states[bucket];
        if let Phase::Applying { left, .. } = &mut self.phase
            && std::mem::take(&mut state.is_due)
        {
            *left -= 1;
        }
    }

    /// The step ends without its updates, all buckets of which have been collected.
    pub(crate) fn skip_updates(&mut self) {
        (0..self.buckets.states.len()).for_each(|bucket| self.applied(bucket));
    }

    /// What the step has ended as, when all of its updates are made and [`Step::prepare_next`] is to be
    /// called.
    pub(crate) fn ended(&self) -> Option<LastStep> {
        match self.phase {
            Phase::Applying { left: 0, ends } => Some(ends),
            _ => None,
        }
    }

    /// `Applying` → `Idle`, when all updates are made. After the first step buckets are rebuilt in the order
    /// in which gradients really became ready, and a few steps later they get their places in the order of
    /// launches.
    ///
    /// # Errors
    ///
    /// A collective failed, or memory cannot be had.
    pub(crate) fn prepare_next(&mut self) -> Result<(), Error> {
        self.uses.end_step();
        // Without the others there is nothing to learn that all would follow.
        if self.synchronise && !self.profile.is_over() {
            match self.profile.end_step(&self.buckets.timings()) {
                Lesson::Wait => {}
                Lesson::Order(order) => self.rebuild(order)?,
                Lesson::Times(times) => self.reorder(times)?,
            }
        }
        self.launches.restart();
        self.losses.reset();
        if let Some(squares) = &mut self.squares {
            squares.reset();
        }
        self.buckets.reset();
        self.phase = Phase::Idle;
        Ok(())
    }

    /// Any phase → `GivenUp`, if updates are still to be made; says whether they were.
    pub(crate) fn give_up(&mut self) -> bool {
        let gives_up = self.outstanding() > 0;
        if gives_up {
            self.phase = Phase::GivenUp;
        }
        gives_up
    }

    /// Before the first step: the squared norm of each shard's gradient is measured in all of them, and told.
    pub(crate) fn measure_shards(&mut self) {
        self.squares = Some(ShardSquares::new(&self.layout));
    }

    /// A place for each of the job's shards, in which this rank's are filled; nothing where they are not
    /// measured.
    fn by_shard(&self) -> Vec<f64> {
        let Some(squares) = &self.squares else { return Vec::new() };
        let mut all = vec![0.0; self.shares().iter().sum()];
        all[self.shards()].copy_from_slice(squares.done());
        all
    }

    /// With `false`, steps use this rank's own gradients only and ranks drift apart.
    pub(crate) fn synchronise(&mut self, synchronise: bool) {
        self.synchronise = synchronise;
    }

    /// A step without any sample is none that fails: it changes nothing.
    pub(crate) fn allow_no_samples(&mut self) {
        self.may_be_empty = true;
    }

    /// Whether the passes of all of this rank's shards are over in the step that runs.
    pub(crate) fn has_all_passes(&self) -> bool {
        matches!(self.phase, Phase::Collecting { done, pass: None } if done == self.shards().len())
    }

    /// How often each span is expected to be used in the step that runs or comes next.
    pub(crate) fn expected_uses(&self) -> &[u32] {
        &self.uses.expected
    }

    /// Before the first step: how often it is expected to use each span.
    pub(crate) fn expect_uses(&mut self, expected: Vec<u32>) {
        self.uses.expected = expected;
    }

    /// Before the first step of a group: goes on where `last`, that of the group before, has ended, with so
    /// many uses expected.
    pub(crate) fn follow(&mut self, last: &Step, expected: Vec<u32>) {
        self.uses.expected = expected;
        // So that a pass that is still held from then is known to be none of this group's.
        self.passes = last.passes;
        self.may_be_empty = last.may_be_empty;
    }

    /// Passes from now on have other numbers than those of `other`.
    pub(crate) fn count_passes_after(&mut self, other: &Step) {
        self.passes = self.passes.max(other.passes);
    }

    /// Takes the place of `other`, with which it takes turns: goes on with its numbers of passes, and with
    /// the time for which this rank's thread has waited.
    pub(crate) fn take_turn(&mut self, other: &mut Step) {
        self.passes = self.passes.max(other.passes);
        self.exposed += other.take_exposed();
    }
}
