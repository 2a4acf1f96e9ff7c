//! `Collecting`: the gradients of this rank's shards, one backward pass after another, each in its place in
//! a bucket. In the last pass every bucket that is complete is launched, unless its sum is deferred.

use std::time::Instant;

use kolo_comm::Readers;
use kolo_comm::backend::WaitMode;

use super::launch_order::LaunchSlot;
use super::unscaling::StepNumber;
use super::{Phase, Step};
use kolo_optim::SpanId;
use kolo_reduction::Error;
use kolo_reduction::reduction::{FinishedShard, ReadyStep};

impl Step {
    /// `Idle` or `Collecting` → `Collecting`: begins a shard's backward pass; its loss is summed over
    /// `count` samples. Returns the number of the pass, which identifies its later calls.
    ///
    /// # Errors
    ///
    /// Another pass is running, this rank has no more shards in this step, `count` is not a number of
    /// samples, a step has failed, or out of memory.
    pub fn begin_shard(&mut self, loss: f64, count: f64, step: StepNumber) -> Result<u64, Error> {
        let (done, due) = (self.passes_done("begin_shard")?, self.shards().len());
        if done == due {
            return Err(Error::NoShardLeft { due });
        }
        if !(count >= 0.0 && count.is_finite()) {
            let shard = self.shards().start + done;
            return Err(Error::Setting(format!(
                "the loss of shard {shard} is over {count} samples; give a number that is finite and not negative"
            )));
        }
        if done == 0 {
            self.begin(step);
        }
        self.losses.push(loss, count);
        self.pass.shard = FinishedShard { number: self.shards().start + done, step: step.updates, count };
        self.uses.begin_shard();
        if let Some(squares) = &mut self.incoming.squares {
            squares.begin_shard(count);
        }
        self.buckets.begin_shard(&self.uses.expected);
        self.pass.number += 1;
        self.phase = Phase::Collecting { done, pass: Some(self.pass.number) };
        (self.pass.began, self.pass.exposed) = (Instant::now(), self.times.exposed);
        if done + 1 == due {
            self.profile.begin(self.buckets.states.len());
            if !self.defers() {
                self.start_losses(WaitMode::Background)?;
                self.launch_complete();
            }
        }
        Ok(self.pass.number)
    }

    /// Adds one contribution to a span's gradient. It is ignored if the pass is not running any more, as
    /// after a change of the group.
    ///
    /// # Panics
    ///
    /// If its length is not the span's.
    pub fn add(&mut self, pass: u64, id: SpanId, gradient: &[f32]) {
        let Some(done) = self.shard_of(pass) else { return };
        let span = self.layout.span(id);
        assert_eq!(gradient.len(), span.len, "gradient of {}", span.spec.name);
        let is_scaled = span.spec.kind.is_trained();
        match is_scaled.then(|| self.incoming.unscaling.take(gradient)).flatten() {
            Some(unscaled) => {
                self.contribute(done, id, &unscaled);
                self.incoming.unscaling.give_back(unscaled);
            }
            None => self.contribute(done, id, gradient),
        }
    }

    /// Puts a contribution to a span into its buckets, in the pass of this rank's shard `done`.
    fn contribute(&mut self, done: usize, id: SpanId, gradient: &[f32]) {
        let (last, (before, expected)) = (done + 1 == self.shards().len(), self.uses.count(id));
        if let Some(squares) = &mut self.incoming.squares {
            squares.add(&self.layout, id, gradient, before, expected);
        }
        let (kind, shard) = (self.layout.span(id).spec.kind, self.pass.shard.number);
        let limit = self.limit(expected.max(before + 1));
        if before >= expected {
            self.incoming.watch.look(kind, id, shard, limit, gradient);
            return self.uses.keep_late(id, gradient, done, self.shards().len());
        }
        if last && before + 1 == expected {
            self.profile.span_complete(id);
        }
        for place in 0..self.buckets.places[id.0].len() {
            let (bucket, slice) = self.buckets.places[id.0][place];
            let state = &mut self.buckets.states[bucket];
            let watch = &mut self.incoming.watch;
            state.add(slice, gradient, before == 0, |part| watch.look(kind, id, shard, limit, part));
            let complete = state.is_complete();
            if last {
                if complete {
                    state.complete(self.profile.bucket_complete(bucket));
                }
                self.launch_complete();
            }
        }
    }

    /// Ends a shard's backward pass: missing gradients are zero.
    ///
    /// # Errors
    ///
    /// The pass is not running any more, as after a change of the group.
    pub fn end_shard(&mut self, pass: u64) -> Result<(), Error> {
        let waited = self.times.exposed.saturating_sub(self.pass.exposed);
        self.times.spent.backward += self.pass.began.elapsed().saturating_sub(waited);
        let Some(done) = self.shard_of(pass) else {
            let phase = "after its step has been given up";
            return Err(Error::OutOfOrder { call: "finish", phase, remedy: "begin the step anew" });
        };
        self.buckets.end_shard(&self.uses, self.pass.shard);
        self.uses.end_shard();
        if let Some(squares) = &mut self.incoming.squares {
            squares.end_shard();
        }
        self.phase = Phase::Collecting { done: done + 1, pass: None };
        Ok(())
    }

    /// Returns the index, among this rank's shards, of the shard that `pass` is of, if that pass is running.
    fn shard_of(&self, pass: u64) -> Option<usize> {
        match self.phase {
            Phase::Collecting { done, pass: Some(open) } if open == pass => Some(done),
            _ => None,
        }
    }

    /// Returns how many of this rank's shards are complete, for a call that is not permitted while a pass is
    /// running.
    pub(super) fn passes_done(&self, call: &'static str) -> Result<usize, Error> {
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

    /// Starts, in the pass of the last shard, every bucket that is complete and whose turn it is; no
    /// deferred one.
    fn launch_complete(&mut self) {
        while let Some(LaunchSlot::Bucket(bucket)) = self.launches.next() {
            let state = &mut self.buckets.states[bucket];
            if !state.is_complete() || (self.options.synchronize && state.is_deferred()) {
                break;
            }
            state.end_shard(&self.uses, self.pass.shard);
            self.launch(bucket, self.pass.shard.step);
        }
    }

    pub(super) fn launch(&mut self, bucket: usize, step: u64) {
        let divides = self.divides_gradients();
        let group = self.options.synchronize.then_some(&*self.ranks.group);
        let state = &mut self.buckets.states[bucket];
        let all_read = self.options.all_read && !divides;
        let readers = if all_read { Readers::All } else { state.readers() };
        let step = ReadyStep { number: step, samples: self.losses.samples(), readers };
        state.launch(group, &self.ranks.assignment, &step);
        self.launches.advance();
        self.sum_started(bucket);
    }

    pub(super) fn start_losses(&mut self, mode: WaitMode) -> Result<(), Error> {
        match self.options.synchronize {
            true => self.losses.start(&self.ranks.group, mode, &self.ranks.assignment),
            false => {
                self.losses.are_all();
                Ok(())
            }
        }
    }

    /// Returns true if the sums of buckets are deferred. Then nothing is sent while this rank computes: the
    /// ranks' messages are small, and sending them in a pass, bucket by bucket, would cost a percent of a
    /// step.
    pub(super) fn defers(&self) -> bool {
        self.options.synchronize && self.buckets.are_deferred()
    }
}
