//! The reducer: takes gradients as they become ready, sums them over all shards of all ranks, and gives them back
//! bucket by bucket.
//!
//! All ranks start the same collectives in the same order, whatever happened in their backward passes: the loss, then
//! the turns of [`sequence`], which are the buckets and the agreement. *The agreement* says whether any
//! rank used a parameter more or less often than expected; only then the ranks exchange how often.
//!
//! A parameter used k times is announced k times; reduction is linear, so contributions are added as they come. Up to
//! the expected number they go into the bucket. What comes later (a parameter used more often than in the step
//! before) goes into a remainder that is reduced when the pass is over. Which contribution counts as late does not
//! depend on the number of ranks, so neither does the sum.

mod agreement;
mod rebuild;
mod rehearsal;
mod reshare;
mod sequence;
mod told;
mod uses;
mod working;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kolo_comm::tree::Contributions;
use kolo_comm::{Group, Op, Pending};

use self::agreement::Agreement;
use self::rehearsal::{Lesson, Rehearsal};
use self::sequence::Turn;
use self::told::Told;
use self::uses::Uses;
use self::working::Working;
use crate::buckets::{Bucket, BucketCaps, reversed};
use crate::error::Error;
use crate::layout::{Layout, SpanId};
use crate::losses::ShardLosses;
use crate::shares;

/// How long one bucket's reduction took.
#[derive(Clone, Copy, Debug)]
pub struct BucketTiming {
    /// Bytes of gradient.
    pub bytes: usize,
    /// From its first message until it was back.
    pub seconds: f64,
}

/// What is known when all backward passes are over.
#[derive(Clone, Copy, Debug)]
pub struct Totals {
    /// Sum of the loss over all samples.
    pub loss: f64,
    /// Number of samples (or whatever the loss counts).
    pub count: f64,
    /// Buckets whose reduction had been started before the last backward pass was over.
    pub started_early: usize,
    /// Whether some rank wants the members of the job to change after this step.
    pub change: bool,
    /// Whether some rank stays in the job.
    pub stays: bool,
}

/// See the module's text.
pub struct Reducer {
    group: Arc<Group>,
    layout: Arc<Layout>,
    contributions: Arc<Contributions>,
    /// Shards of every rank, and which are this one's.
    shares: Vec<usize>,
    shards: Range<usize>,
    caps: BucketCaps,
    synchronise: bool,
    buckets: Vec<Working>,
    /// Where every span's slices are, in the span's order: bucket, and which of the bucket's slices.
    places: Vec<Vec<(usize, usize)>>,
    /// What goes onto the wire, in the same order on all ranks, and how much of it has been started in this step.
    sequence: Vec<Turn>,
    started: usize,
    agreement: Option<Pending<u8>>,
    /// Whether this rank wants the members of the job to change, and whether it leaves.
    wants_change: bool,
    leaves: bool,
    /// What all ranks tell one another in this step.
    told: Told,
    rehearsal: Rehearsal,
    uses: Uses,
    warned: Vec<bool>,
    losses: ShardLosses,
    /// Shards of this step whose backward pass is over.
    done: usize,
    /// Each bucket's last reduction that is over.
    timings: Vec<BucketTiming>,
    /// Time in which this rank's thread waited for communication, not yet reported.
    exposed: Duration,
}

impl Reducer {
    /// A reducer for one rank of `group`, which divides `shards` shards equally among its ranks.
    ///
    /// # Errors
    ///
    /// `shards` is 0, or memory cannot be had.
    pub fn new(
        group: Arc<Group>,
        layout: Arc<Layout>,
        shards: usize,
        caps: BucketCaps,
    ) -> Result<Self, Error> {
        let shares = shares::equal(shards, group.world_size());
        Reducer::with_shares(group, layout, &shares, caps)
    }

    /// A reducer for one rank of `group`, whose ranks have so many shards each, the same numbers on all of them.
    ///
    /// # Errors
    ///
    /// There is not one number for each rank, all are 0, or memory cannot be had.
    pub fn with_shares(
        group: Arc<Group>,
        layout: Arc<Layout>,
        shares: &[usize],
        caps: BucketCaps,
    ) -> Result<Self, Error> {
        if shares.len() != group.world_size() {
            let (given, ranks) = (shares.len(), group.world_size());
            return Err(Error::Setting(format!("{given} shares for {ranks} ranks; give one for each")));
        }
        if shares.iter().all(|share| *share == 0) {
            return Err(Error::Setting("shards is 0; a step needs at least 1".into()));
        }
        let spans = layout.spans().len();
        let mut reducer = Reducer {
            contributions: Arc::new(Contributions::of_shares(shares)),
            shards: shares::range(shares, group.rank()),
            shares: shares.to_vec(),
            group,
            layout,
            caps,
            synchronise: true,
            buckets: Vec::new(),
            places: vec![Vec::new(); spans],
            sequence: Vec::new(),
            started: 0,
            agreement: None,
            wants_change: false,
            leaves: false,
            told: Told::default(),
            rehearsal: Rehearsal::new(),
            uses: Uses::new(spans),
            warned: vec![false; spans],
            losses: ShardLosses::default(),
            done: 0,
            timings: Vec::new(),
            exposed: Duration::ZERO,
        };
        reducer.rebuild(&reversed(&reducer.layout.clone()))?;
        Ok(reducer)
    }

    /// This rank's shards.
    pub fn shards(&self) -> Range<usize> {
        self.shards.clone()
    }

    /// Shards of every rank.
    pub fn shares(&self) -> &[usize] {
        &self.shares
    }

    /// The buckets, in the order in which they become ready.
    pub fn buckets(&self) -> impl Iterator<Item = &Bucket> {
        self.buckets.iter().map(|working| &working.bucket)
    }

    /// With `false`, steps use this rank's own gradients only and ranks drift apart: for measuring what
    /// synchronisation costs.
    pub fn synchronise(&mut self, synchronise: bool) {
        self.synchronise = synchronise;
    }

    /// Whether a bucket's reduction is over.
    pub fn is_back(&mut self, bucket: usize) -> bool {
        self.buckets[bucket].pending.as_mut().is_some_and(Pending::is_over)
    }

    /// Before a shard's backward pass: its loss, summed over `count` samples.
    ///
    /// # Errors
    ///
    /// This rank has no more shards in this step, or memory cannot be had.
    pub fn begin_shard(&mut self, loss: f64, count: f64) -> Result<(), Error> {
        if self.done == self.shards.len() {
            let due = self.shards.len();
            let problem =
                format!("this rank holds {due} shards a step; call `step` before the next backward pass");
            return Err(Error::Setting(problem));
        }
        self.losses.values.push([loss, count]);
        self.uses.begin_shard();
        for working in &mut self.buckets {
            working.missing =
                working.bucket.slices.iter().map(|slice| self.uses.expected[slice.span.0]).sum();
        }
        if self.on_last_shard() {
            self.rehearsal.begin(self.buckets.len());
            self.start_losses()?;
            self.start_complete();
        }
        Ok(())
    }

    /// One contribution to a span's gradient has been computed.
    ///
    /// # Panics
    ///
    /// If its length is not the span's.
    pub fn ready(&mut self, id: SpanId, gradient: &[f32]) {
        let span = self.layout.span(id);
        assert_eq!(gradient.len(), span.len, "gradient of {}", span.spec.name);
        let (before, expected) = (self.uses.now[id.0], self.uses.expected[id.0]);
        self.uses.now[id.0] += 1;
        if before >= expected {
            return self.uses.keep_late(id, gradient, self.done, self.shards.len());
        }
        if self.on_last_shard() && before + 1 == expected {
            self.rehearsal.span_complete(id);
        }
        for place in 0..self.places[id.0].len() {
            let (bucket, slice) = self.places[id.0][place];
            let working = &mut self.buckets[bucket];
            let slice = &working.bucket.slices[slice];
            working.sum.put(slice.offset, &gradient[slice.elements.clone()], before == 0);
            working.missing -= 1;
            let complete = working.missing == 0;
            if self.on_last_shard() {
                if complete {
                    self.rehearsal.bucket_complete(bucket);
                }
                self.start_complete();
            }
        }
    }

    /// A shard's backward pass is over: what has not come is zero.
    pub fn end_shard(&mut self) {
        let shard = self.shards.start + self.done;
        for working in self.buckets.iter_mut().filter(|working| !working.started) {
            working.complete_shard(&self.uses.now, shard);
        }
        self.uses.end_shard();
        self.done += 1;
    }

    fn on_last_shard(&self) -> bool {
        self.done + 1 == self.shards.len()
    }

    /// Starts every bucket that is complete and whose turn it is.
    fn start_complete(&mut self) {
        let shard = self.shards.start + self.done;
        while let Some(Turn::Bucket(bucket)) = self.sequence.get(self.started) {
            let working = &mut self.buckets[*bucket];
            if working.missing > 0 {
                break;
            }
            working.complete_shard(&self.uses.now, shard);
            working.start(&self.group, self.synchronise.then_some(&self.contributions));
            self.started += 1;
        }
    }

    fn start_losses(&mut self) -> Result<(), Error> {
        self.losses.start(&self.group, &self.contributions, self.shards.clone(), self.synchronise)
    }

    /// All backward passes of this rank are over: starts what has not been started, and waits until the ranks know whether
    /// they agree. No collective is started between this and the next step, so that it does not matter when each rank
    /// asks for which bucket.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), a backward pass is missing, or no rank had a sample.
    pub fn finish(&mut self, step: u64) -> Result<Totals, Error> {
        let (done, due) = (self.done, self.shards.len());
        if done != due {
            return Err(Error::ShardsMissing { due, done });
        }
        self.rehearsal.pass_over();
        if due == 0 {
            self.start_losses()?;
        }
        let started_early = self.buckets.iter().filter(|working| working.started).count();
        while let Some(turn) = self.sequence.get(self.started) {
            match *turn {
                Turn::Bucket(bucket) => {
                    self.buckets[bucket].start(&self.group, self.synchronise.then_some(&self.contributions))
                }
                Turn::Agreement => self.start_agreement()?,
            }
            self.started += 1;
        }
        let [loss, count] = self.losses.finish(&mut self.exposed)?;
        if count <= 0.0 {
            return Err(Error::NoSamples { step });
        }
        let Agreement { surprise, change, stays } = self.agree()?;
        if surprise {
            self.exchange_uses()?;
        }
        Ok(Totals { loss, count, started_early, change, stays })
    }

    /// Waits for a bucket; gives it and its summed gradient. To be called after [`Reducer::finish`] and before
    /// [`Reducer::end_step`].
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    pub fn collect(&mut self, bucket: usize) -> Result<(&Bucket, &mut [f32]), Error> {
        let working = &mut self.buckets[bucket];
        if let Some(timing) = working.collect(&mut self.exposed)? {
            self.timings[bucket] = timing;
        }
        Ok((&working.bucket, working.sum.result()))
    }

    /// The buckets that a span's elements are in.
    pub fn buckets_of(&self, id: SpanId) -> Range<usize> {
        let places = &self.places[id.0];
        let end = |place: Option<&(usize, usize)>| place.map_or(0, |(bucket, _)| *bucket);
        end(places.first())..end(places.last()) + 1
    }

    /// The order in which buckets come back.
    pub fn order(&self) -> impl Iterator<Item = usize> {
        self.sequence.iter().filter_map(|turn| match turn {
            Turn::Bucket(bucket) => Some(*bucket),
            Turn::Agreement => None,
        })
    }

    /// Whether this is one of the first steps, in which [`Reducer::end_step`] has to talk to the other ranks.
    pub fn is_rehearsing(&self) -> bool {
        !self.rehearsal.is_over()
    }

    /// Each bucket's last reduction that is over, and the time in which this rank waited for communication since this was
    /// last asked for.
    pub fn take_timings(&mut self) -> (Vec<BucketTiming>, Duration) {
        (self.timings.clone(), std::mem::take(&mut self.exposed))
    }

    /// Makes ready for the next step, when all buckets have been collected. After the first step buckets are rebuilt in the
    /// order in which gradients really became ready, and a few steps later they get their places on the wire.
    ///
    /// # Errors
    ///
    /// A collective failed, or memory cannot be had.
    pub fn end_step(&mut self) -> Result<(), Error> {
        self.uses.end_step();
        // Without the others there is nothing to learn that all would follow.
        let lesson = if self.synchronise { self.rehearsal.end_step(&self.timings) } else { Lesson::Wait };
        match lesson {
            Lesson::Wait => {}
            Lesson::Order(order) => self.rebuild_in(order)?,
            Lesson::Times(mut times) => {
                self.group.all_reduce(&mut times, Op::Max)?;
                let mut numbers = sequence::encode(&self.rehearsal.sequence(&times, &self.timings));
                self.follow_witness(&mut numbers)?;
                self.sequence = sequence::decode(&numbers);
            }
        }
        (self.done, self.started) = (0, 0);
        self.losses.values.clear();
        self.buckets.iter_mut().for_each(Working::reset);
        Ok(())
    }

    /// How often each span is expected to be used in the next step. A step that changes it has all its buckets back by then, so
    /// it is never done again.
    pub(crate) fn expected_uses(&self) -> &[u32] {
        &self.uses.expected
    }

    pub(crate) fn expect_uses(&mut self, expected: Vec<u32>) {
        self.uses.expected = expected;
    }

    /// From now on every step tells the others so, and whether this rank leaves.
    pub(crate) fn want_change(&mut self, leaves: bool) {
        (self.wants_change, self.leaves) = (true, leaves);
    }
}

/// Runs `work` and adds its time to `total`.
pub(crate) fn timed<R>(total: &mut Duration, work: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = work();
    *total += start.elapsed();
    result
}
