//! Changes between two steps: the cuts of buckets, the order of launches, the distribution of shards, and
//! with them the reduction's state of each shard.

use std::sync::Arc;

use kolo_comm::tree::Contributions;
use kolo_comm::{Collective, Op, Rank};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Step;
use super::bucket_state::Buckets;
use super::launch_order::{self, LaunchOrder};
use crate::tune::{Space, TunedSetting};
use crate::wait_time::timed;
use kolo_optim::SpanId;
use kolo_reduction::{Bucket, Error, plan_sliced, reversed};
use kolo_sampler::Assignment;

impl Step {
    /// Cuts the buckets of all ranks in the order that one of them saw.
    pub(super) fn rebuild(&mut self, mut order: Vec<SpanId>) -> Result<(), Error> {
        let mut seen = vec![false; self.layout.spans().len()];
        order.iter().for_each(|id| seen[id.0] = true);
        order.extend(reversed(&self.layout).into_iter().filter(|id| !seen[id.0]));
        self.cuts.order = self.of_witness(order)?;
        self.cut()
    }

    /// Cuts buckets and adds sums by `setting` from the next step on. Belongs to `Idle`. All ranks call it
    /// with the same setting; none waits for another one.
    ///
    /// # Errors
    ///
    /// Out of memory.
    pub fn tune(&mut self, setting: &TunedSetting) -> Result<(), Error> {
        let is_cut_alike = (setting.caps(), setting.slice_bytes) == (self.cuts.caps, self.cuts.slice);
        (self.cuts.caps, self.cuts.slice) = (setting.caps(), setting.slice_bytes);
        let ownership = setting.ownership.as_deref().unwrap_or_default();
        let contributions = Arc::unwrap_or_clone(self.ranks.assignment.contributions.clone());
        self.ranks.assignment.contributions = Arc::new(contributions.with_ownership(ownership));
        if is_cut_alike {
            return Ok(());
        }
        self.cut()?;
        // Frees the memory of the old buckets: other caps need other memory.
        self.ranks.group.forget_memory();
        Ok(())
    }

    /// Returns the settings that can be tried in this group ([`Space`]), with these values of the caller.
    pub fn space(&self, algorithms: Vec<&'static str>, ownership: Option<Vec<u32>>, streams: usize) -> Space {
        let (layout, order) = (self.layout.clone(), self.cuts.order.clone());
        Space { layout, order, whole: self.reducer.needs_whole_tensors(), algorithms, ownership, streams }
    }

    /// Contributions of each rank to a bucket's sum.
    pub fn contributions(&self) -> Arc<Contributions> {
        self.ranks.assignment.contributions.clone()
    }

    /// Measures ranks and links anew in the next steps.
    pub fn profile_again(&mut self) {
        self.profile.again();
    }

    /// Cuts buckets in the order that all ranks know.
    fn cut(&mut self) -> Result<(), Error> {
        let (caps, whole) = (self.cuts.caps, self.reducer.needs_whole_tensors());
        let plan = plan_sliced(&self.layout, &self.cuts.order, caps, self.cuts.slice, whole);
        let slots = self.profile.launch_order(plan.iter());
        self.launches = LaunchOrder::new(slots.unwrap_or_else(|| launch_order::by_readiness(plan.len())));
        let (shards, common) = (self.shard_state(), self.common_state());
        self.buckets = self.build(plan, &self.ranks.assignment)?;
        self.set_shard_state(&shards);
        self.set_common_state(&common);
        Ok(())
    }

    /// Launches buckets, on all ranks, in the order that follows from the measured times, and reads reduced
    /// gradients as one of the ranks does: adding can be left to the reader only if it is on all ranks.
    pub(super) fn reorder(&mut self, mut times: Vec<f64>, reads_once: bool) -> Result<(), Error> {
        self.ranks.group.all_reduce(&mut times, Op::Max)?;
        self.profile.agree(times);
        if let Some(slots) = self.profile.launch_order(self.buckets.plan()) {
            self.launches = LaunchOrder::new(slots);
        }
        self.options.reads_once = self.of_witness(reads_once && self.ranks.group.defers_sums())?;
        if self.options.reads_once {
            self.buckets.will_be_read_once();
        }
        Ok(())
    }

    /// Gives all ranks the value of a rank that has seen a backward pass. Rank 0 may have no shards, when
    /// there are more ranks than shards.
    fn of_witness<T: Serialize + DeserializeOwned>(&self, own: T) -> Result<T, Error> {
        let witness = self.shares().iter().position(|share| *share > 0).unwrap_or(0);
        Ok(self.ranks.group.broadcast_value(own, Rank(witness))?)
    }

    /// Divides the shards anew. Belongs to `Idle`. All ranks call it with the same shares. The sum does not
    /// change, because its tree is over the shards.
    ///
    /// A first small sum tests if the configured algorithm can add such shares. If it cannot, nothing
    /// changes on any rank, and the reason is returned.
    ///
    /// # Errors
    ///
    /// A collective failed, or out of memory.
    pub fn rebalance(&mut self, shares: &[usize]) -> Result<Result<(), String>, Error> {
        let assignment = Assignment::new(shares, self.ranks.group.rank()).with_servers(&self.ranks.servers);
        let contributions = assignment.contributions.clone();
        let trial = self.ranks.group.alloc::<f32>(contributions.parts(self.ranks.group.rank()))?;
        match self.ranks.group.run(&Collective::tree_sum(contributions, 1), trial) {
            Ok(_) => {}
            Err(error) if error.is_refusal() => return Ok(Err(error.to_string())),
            Err(error) => return Err(error.into()),
        }
        let mut buckets = self.build(self.buckets.plan().cloned().collect(), &assignment)?;
        buckets.keep_timings(&self.buckets);
        if !self.reducer.shard_state().is_empty() {
            let moved = self.move_shard_state(&assignment)?;
            buckets.set_shard_state(&self.layout, &moved);
        }
        buckets.set_common_state(&self.layout, &self.buckets.common_state(&self.layout));
        self.buckets = buckets;
        // This rank may see no backward pass in the next step, and then has no times.
        self.profile.forget_ready();
        self.ranks.assignment = assignment;
        Ok(Ok(()))
    }

    fn build(&self, plan: Vec<Bucket>, assignment: &Assignment) -> Result<Buckets, Error> {
        let mut buckets = Buckets::new(plan, &*self.reducer, &self.layout, &self.ranks.group, assignment)?;
        if self.options.reads_once {
            buckets.will_be_read_once();
        }
        Ok(buckets)
    }

    /// Returns the reduction's state of each shard that is this rank's from now on. If a shard has moved,
    /// its last owner broadcasts the state.
    fn move_shard_state(&mut self, next: &Assignment) -> Result<Vec<Vec<f32>>, Error> {
        let (rank, mut own) = (self.ranks.group.rank(), self.shard_state().into_iter());
        let mut moved = Vec::new();
        for (last, next) in self.ranks.assignment.owners().zip(next.owners()) {
            let mut flat = if last == rank { own.next().unwrap_or_default() } else { Vec::new() };
            if last != next {
                flat.resize(self.shard_state_len(), 0.0);
                self.ranks.group.broadcast(&mut flat, last)?;
            }
            if next == rank {
                moved.push(flat);
            }
        }
        Ok(moved)
    }

    /// Gathers the reduction's state of all shards on rank 0, in the order of the shards; only there it is
    /// returned. All ranks call it.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    pub fn gather_shard_state(&mut self) -> Result<Vec<Vec<f32>>, Error> {
        let (rank, mut own) = (self.ranks.group.rank(), self.shard_state().into_iter());
        let mut all = Vec::new();
        for owner in self.ranks.assignment.owners().collect::<Vec<_>>() {
            let mut flat = if owner == rank { own.next().unwrap_or_default() } else { Vec::new() };
            if owner != Rank(0) && owner == rank {
                timed(&mut self.times.exposed, "residuals", || self.ranks.group.send(&flat, Rank(0)))?;
            } else if owner != Rank(0) && rank == Rank(0) {
                flat.resize(self.shard_state_len(), 0.0);
                timed(&mut self.times.exposed, "residuals", || self.ranks.group.receive(&mut flat, owner))?;
            }
            if rank == Rank(0) {
                all.push(flat);
            }
        }
        Ok(all)
    }

    /// Number of values that the reduction keeps for a shard.
    fn shard_state_len(&self) -> usize {
        self.reducer.shard_state().len() * self.layout.len()
    }

    /// The reduction's state of each of this rank's shards: for each name of `Reducer::shard_state` the
    /// values in the order of flat memory, one after another.
    pub fn shard_state(&mut self) -> Vec<Vec<f32>> {
        self.buckets.shard_state(&self.layout)
    }

    /// Replaces the reduction's state of each of this rank's shards.
    pub fn set_shard_state(&mut self, flat: &[Vec<f32>]) {
        self.buckets.set_shard_state(&self.layout, flat);
    }

    /// The reduction's state that is the same on all ranks: for each name of `Reducer::common_state` the
    /// values in the order of flat memory.
    pub fn common_state(&mut self) -> Vec<Vec<f32>> {
        self.buckets.common_state(&self.layout)
    }

    /// Replaces the reduction's state that is the same on all ranks.
    pub fn set_common_state(&mut self, flat: &[Vec<f32>]) {
        self.buckets.set_common_state(&self.layout, flat);
    }
}
