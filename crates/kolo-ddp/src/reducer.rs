//! The reducer: takes gradients as they become ready, sums them over all shards of all ranks, and gives them back
//! bucket by bucket.
//!
//! All ranks start the same collectives in the same order, whatever happened in their backward passes:
//! the loss, all buckets but the last, the agreement, the last bucket. *The agreement* is one byte that says whether any
//! rank used a parameter more or less often than expected; only then the ranks exchange how often.
//!
//! A parameter used k times is announced k times; reduction is linear, so contributions are added as they come. Up to
//! the expected number they go into the bucket. What comes later (a parameter used more often than in the step
//! before) goes into a remainder that is reduced when the pass is over. Which contribution counts as late does not
//! depend on the number of ranks, so neither does the sum.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kolo_comm::tree::{Contributions, share};
use kolo_comm::{Collective, Group, Op, Pending, Rank};

use crate::buckets::{Bucket, BucketCaps, plan, reversed};
use crate::error::Error;
use crate::layout::{Kind, Layout, SpanId};
use crate::losses::ShardLosses;
use crate::shard_sum::ShardSum;

/// A bucket at work.
struct Working {
    bucket: Bucket,
    sum: ShardSum,
    /// Contributions that the current shard still owes.
    missing: u32,
    pending: Option<Pending<f32>>,
}

/// How long one bucket's reduction took.
#[derive(Clone, Copy, Debug)]
pub struct BucketTiming {
    /// Bytes of gradient.
    pub bytes: usize,
    /// From its first message until it was back.
    pub seconds: f64,
}

/// What a step's reduction gave.
#[derive(Clone, Debug)]
pub struct Reduction {
    /// Sum of the loss over all samples.
    pub loss: f64,
    /// Number of samples (or whatever the loss counts).
    pub count: f64,
    /// The buckets, in the order of their reduction.
    pub buckets: Vec<BucketTiming>,
    /// Time in which this rank's thread waited for communication.
    pub exposed: Duration,
    /// Buckets whose reduction had been started before the last backward pass was over.
    pub started_early: usize,
}

/// See the module's text.
pub struct Reducer {
    group: Arc<Group>,
    layout: Arc<Layout>,
    contributions: Arc<Contributions>,
    /// This rank's shards.
    shards: Range<usize>,
    caps: BucketCaps,
    synchronise: bool,
    buckets: Vec<Working>,
    /// Bucket and offset of every span.
    places: Vec<(usize, usize)>,
    /// Contributions expected of every span in every shard.
    expected: Vec<u32>,
    /// Contributions in the current shard, and the most in any shard of this step.
    uses: Vec<u32>,
    most: Vec<u32>,
    late: BTreeMap<SpanId, Vec<Option<Vec<f32>>>>,
    /// Shards of this step whose backward pass is over.
    done: usize,
    /// Buckets whose reduction has been started.
    started: usize,
    /// The order in which spans became complete; recorded until buckets have been rebuilt from it.
    order: Option<Vec<SpanId>>,
    warned: Vec<bool>,
    losses: ShardLosses,
}

impl Reducer {
    /// A reducer for one rank of `group`, which divides `shards` shards among its ranks.
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
        if shards == 0 {
            return Err(Error::Setting("shards is 0; a step needs at least 1".into()));
        }
        let spans = layout.spans().len();
        let mut reducer = Reducer {
            contributions: Arc::new(Contributions::shared(shards, group.world_size())),
            shards: share(shards, group.world_size(), group.rank()),
            group,
            layout,
            caps,
            synchronise: true,
            buckets: Vec::new(),
            places: vec![(0, 0); spans],
            expected: vec![1; spans],
            uses: vec![0; spans],
            most: vec![0; spans],
            late: BTreeMap::new(),
            done: 0,
            started: 0,
            order: Some(Vec::new()),
            warned: vec![false; spans],
            losses: ShardLosses::default(),
        };
        reducer.rebuild(&reversed(&reducer.layout.clone()))?;
        Ok(reducer)
    }

    /// This rank's shards.
    pub fn shards(&self) -> Range<usize> {
        self.shards.clone()
    }

    /// The buckets, in the order of their reduction.
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
        self.uses.fill(0);
        for working in &mut self.buckets {
            working.missing = working.bucket.spans.iter().map(|(id, _)| self.expected[id.0]).sum();
        }
        if self.on_last_shard() {
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
        let (bucket, offset) = self.places[id.0];
        let before = self.uses[id.0];
        self.uses[id.0] += 1;
        if before >= self.expected[id.0] {
            return self.keep_late(id, gradient);
        }
        let working = &mut self.buckets[bucket];
        working.sum.put(offset, gradient, before == 0);
        working.missing -= 1;
        if self.on_last_shard() {
            if let (Some(order), true) = (&mut self.order, before + 1 == self.expected[id.0]) {
                order.push(id);
            }
            self.start_complete();
        }
    }

    /// A shard's backward pass is over: what has not come is zero.
    pub fn end_shard(&mut self) {
        let shard = self.shards.start + self.done;
        for working in &mut self.buckets[self.started..] {
            complete_shard(working, &self.uses, &self.layout, shard);
        }
        self.most.iter_mut().zip(&self.uses).for_each(|(most, uses)| *most = (*most).max(*uses));
        self.done += 1;
    }

    fn on_last_shard(&self) -> bool {
        self.done + 1 == self.shards.len()
    }

    fn keep_late(&mut self, id: SpanId, gradient: &[f32]) {
        let shards = self.late.entry(id).or_insert_with(|| vec![None; self.shards.len()]);
        match &mut shards[self.done] {
            Some(sum) => sum.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += g),
            none => *none = Some(gradient.to_vec()),
        }
    }

    /// Starts every bucket that is complete and whose predecessors have been started. The last one waits for the
    /// agreement, which is known when the pass is over.
    fn start_complete(&mut self) {
        let shard = self.shards.start + self.done;
        while self.started + 1 < self.buckets.len() && self.buckets[self.started].missing == 0 {
            complete_shard(&mut self.buckets[self.started], &self.uses, &self.layout, shard);
            self.start_next();
        }
    }

    fn start_next(&mut self) {
        let working = &mut self.buckets[self.started];
        if self.synchronise {
            let (contributions, len) = (self.contributions.clone(), working.bucket.len);
            let sum = Collective::TreeSum { contributions, len };
            working.pending = Some(self.group.start(sum, working.sum.take()));
        } else {
            working.sum.fold();
        }
        self.started += 1;
    }

    fn start_losses(&mut self) -> Result<(), Error> {
        self.losses.start(&self.group, &self.contributions, self.shards.clone(), self.synchronise)
    }

    /// Ends the step's reduction. `each` gets every bucket with its summed gradient as soon as it is there, and the
    /// count to divide by.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), a backward pass is missing, or no rank had a sample.
    pub fn finish(
        &mut self,
        step: u64,
        mut each: impl FnMut(&Bucket, &mut [f32], f64),
    ) -> Result<Reduction, Error> {
        let (done, due) = (self.done, self.shards.len());
        if done != due {
            return Err(Error::ShardsMissing { due, done });
        }
        if due == 0 {
            self.start_losses()?;
        }
        let started_early = self.started;
        let mut exposed = Duration::ZERO;
        while self.started + 1 < self.buckets.len() {
            self.start_next();
        }
        let agreement = self.start_agreement()?;
        if self.started < self.buckets.len() {
            self.start_next();
        }
        let [loss, count] = self.losses.finish(&mut exposed)?;
        if count <= 0.0 {
            return Err(Error::NoSamples { step });
        }
        if self.agree(agreement, &mut exposed)? {
            self.exchange_uses(&mut exposed)?;
        }
        let mut timings = Vec::with_capacity(self.buckets.len());
        for working in &mut self.buckets {
            timings.push(working.collect(&mut exposed)?);
            each(&working.bucket, working.sum.result(), count);
        }
        Ok(Reduction { loss, count, buckets: timings, exposed, started_early })
    }

    /// The summed gradients, bucket by bucket, between [`Reducer::finish`] and [`Reducer::end_step`].
    pub(crate) fn results(&mut self) -> impl Iterator<Item = (&Bucket, &mut [f32])> {
        self.buckets.iter_mut().map(|working| (&working.bucket, working.sum.result()))
    }

    /// Makes ready for the next step. After the first one, buckets are rebuilt in the order in which gradients really
    /// became ready.
    ///
    /// # Errors
    ///
    /// A collective failed, or memory cannot be had.
    pub fn end_step(&mut self) -> Result<(), Error> {
        if let Some(order) = self.order.take() {
            self.rebuild_in(order)?;
        }
        (self.done, self.started) = (0, 0);
        self.most.fill(0);
        self.late.clear();
        self.losses.values.clear();
        self.buckets.iter_mut().for_each(|working| working.sum.reset());
        Ok(())
    }

    /// Whether this rank saw another number of uses than expected.
    fn start_agreement(&mut self) -> Result<Option<Pending<u8>>, Error> {
        if !self.synchronise {
            return Ok(None);
        }
        let mut flag = self.group.alloc::<u8>(1)?;
        flag[0] = u8::from(!self.shards.is_empty() && self.most != self.expected);
        Ok(Some(self.group.start(Collective::AllReduce(Op::Max), flag)))
    }

    fn agree(&self, agreement: Option<Pending<u8>>, exposed: &mut Duration) -> Result<bool, Error> {
        match agreement {
            Some(pending) => Ok(timed(exposed, || pending.wait())?[0] != 0),
            None => Ok(self.most != self.expected),
        }
    }

    /// Finds out how often each span was used on any rank, reduces what came late, and expects that from now on.
    fn exchange_uses(&mut self, exposed: &mut Duration) -> Result<(), Error> {
        let mut uses: Vec<i32> = self.most.iter().map(|&uses| uses as i32).collect();
        if self.synchronise {
            timed(exposed, || self.group.all_reduce(&mut uses, Op::Max))?;
        }
        let uses: Vec<u32> = uses.into_iter().map(|uses| uses as u32).collect();
        for (index, &uses) in uses.iter().enumerate() {
            if uses > self.expected[index] {
                self.add_remainder(SpanId(index), exposed)?;
            }
            let span = &self.layout.spans()[index];
            let unused = uses == 0 && span.spec.kind != Kind::Statistic;
            if unused && !std::mem::replace(&mut self.warned[index], true) && self.group.rank() == Rank(0) {
                log::warn!("parameter `{}` had no gradient in this step: taken as zero", span.spec.name);
            }
        }
        self.expected = uses;
        Ok(())
    }

    fn add_remainder(&mut self, id: SpanId, exposed: &mut Duration) -> Result<(), Error> {
        let len = self.layout.span(id).len;
        let shards = self.late.remove(&id).unwrap_or_else(|| vec![None; self.shards.len()]);
        let mut sum = ShardSum::new(&self.group, len, self.shards.clone())?;
        for (shard, late) in self.shards.clone().zip(shards) {
            match late {
                Some(gradient) => sum.put(0, &gradient, true),
                None => sum.put_zeros(0, len),
            }
            sum.end_shard(shard);
        }
        if self.synchronise {
            let collective = Collective::TreeSum { contributions: self.contributions.clone(), len };
            let buffer = timed(exposed, || self.group.run(&collective, sum.take()))?;
            sum.give_back(buffer);
        } else {
            sum.fold();
        }
        let (bucket, offset) = self.places[id.0];
        let working = &mut self.buckets[bucket];
        working.collect(exposed)?;
        let target = &mut working.sum.result()[offset..offset + len];
        target.iter_mut().zip(sum.result()).for_each(|(total, late)| *total += *late);
        Ok(())
    }

    /// All ranks rebuild in the order that one of them saw.
    fn rebuild_in(&mut self, mut order: Vec<SpanId>) -> Result<(), Error> {
        let mut seen = vec![false; self.layout.spans().len()];
        order.iter().for_each(|id| seen[id.0] = true);
        order.extend(reversed(&self.layout).into_iter().filter(|id| !seen[id.0]));
        let mut ids: Vec<i32> = order.iter().map(|id| id.0 as i32).collect();
        // Rank 0 may have no shards, when there are more ranks than shards.
        let witness = (0..self.group.world_size()).find(|&r| !self.contributions.of(Rank(r)).is_empty());
        if self.synchronise {
            self.group.broadcast(&mut ids, Rank(witness.unwrap_or(0)))?;
        }
        self.rebuild(&ids.into_iter().map(|id| SpanId(id as usize)).collect::<Vec<_>>())
    }

    fn rebuild(&mut self, order: &[SpanId]) -> Result<(), Error> {
        self.buckets.clear();
        for bucket in plan(&self.layout, order, self.caps) {
            for &(id, offset) in &bucket.spans {
                self.places[id.0] = (self.buckets.len(), offset);
            }
            let sum = ShardSum::new(&self.group, bucket.len, self.shards.clone())?;
            self.buckets.push(Working { bucket, sum, missing: 0, pending: None });
        }
        Ok(())
    }
}

impl Working {
    /// Waits until the bucket is back.
    fn collect(&mut self, exposed: &mut Duration) -> Result<BucketTiming, Error> {
        let bytes = self.bucket.len * size_of::<f32>();
        let Some(pending) = self.pending.take() else { return Ok(BucketTiming { bytes, seconds: 0.0 }) };
        let (buffer, timing) = timed(exposed, || pending.wait_timed())?;
        self.sum.give_back(buffer);
        Ok(BucketTiming { bytes, seconds: (timing.ended - timing.started).as_secs_f64() })
    }
}

/// Zeros for spans without a gradient, then the shard joins the others.
fn complete_shard(working: &mut Working, uses: &[u32], layout: &Layout, shard: usize) {
    for &(id, offset) in &working.bucket.spans {
        if uses[id.0] == 0 {
            working.sum.put_zeros(offset, layout.span(id).len);
        }
    }
    working.sum.end_shard(shard);
}

/// Runs `work` and adds its time to `total`.
pub(crate) fn timed<R>(total: &mut Duration, work: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = work();
    *total += start.elapsed();
    result
}
