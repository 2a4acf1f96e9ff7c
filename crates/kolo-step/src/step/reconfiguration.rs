//! Changes between two steps: the cuts of buckets, the order of launches, the distribution of shards, and
//! with them the reduction's state of each shard.

use std::sync::Arc;

use kolo_comm::tree::Contributions;
use kolo_comm::{Collective, Op, Rank};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Step;
use super::buckets::Buckets;
use super::launch_order::{self, LaunchOrder};
use super::parts::Ranks;
use crate::tune::{Space, TunedSetting};
use kolo_optim::SpanId;
use kolo_reduction::state::{Holdings, StateCopy, StateKind, StateName, Visit, redistribute, transfer};
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
    /// with the same setting; none waits for another one. Fails if memory runs out.
    pub fn tune(&mut self, setting: &TunedSetting) -> Result<(), Error> {
        let is_cut_alike = (setting.caps(), setting.slice_bytes) == (self.cuts.caps, self.cuts.slice);
        (self.cuts.caps, self.cuts.slice) = (setting.caps(), setting.slice_bytes);
        let ownership = setting.ownership.as_deref().unwrap_or_default();
        let contributions = Arc::unwrap_or_clone(self.ranks.assignment.contributions.clone());
        self.ranks.assignment.contributions = Arc::new(contributions.with_ownership(ownership));
        if is_cut_alike {
            return Ok(());
        }
        self.cut()
    }

    /// Returns the settings that can be tried in this group ([`Space`]), with these values of the caller.
    pub fn space(&self, algorithms: Vec<&'static str>, ownership: Option<Vec<u32>>, streams: usize) -> Space {
        let (layout, order) = (self.layout.clone(), self.cuts.order.clone());
        Space { layout, order, whole: self.cuts.whole, algorithms, ownership, streams }
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
        let (caps, whole) = (self.cuts.caps, self.cuts.whole);
        let plan = plan_sliced(&self.layout, &self.cuts.order, caps, self.cuts.slice, whole);
        let slots = self.profile.launch_order(plan.iter()).filter(|_| !self.divides_gradients());
        self.launches = LaunchOrder::new(slots.unwrap_or_else(|| launch_order::by_readiness(plan.len())));
        let kept = StateCopy::of(self.layout.len(), |visit| self.visit_state(visit));
        self.replace_buckets(plan, &self.ranks.assignment.clone())?;
        kept.fill(|visit| self.visit_state(visit));
        Ok(())
    }

    /// Launches buckets, on all ranks, in the order that follows from the measured times, and reads reduced
    /// gradients as one of the ranks does: adding can be left to the reader only if it is on all ranks.
    pub(super) fn reorder(&mut self, mut times: Vec<f64>, reads_once: bool) -> Result<(), Error> {
        self.ranks.group.all_reduce(&mut times, Op::Max)?;
        self.profile.agree(times);
        // A bucket that waits for its turn holds memory, so divided gradients go as they come.
        let slots = self.profile.launch_order(self.buckets.plan());
        if let Some(slots) = slots.filter(|_| !self.divides_gradients()) {
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
        match self.try_sum(&assignment) {
            Err(Error::Comm(error)) if error.is_refusal() => return Ok(Err(error.to_string())),
            tried => tried?,
        }
        let mut kept = StateCopy::of(self.layout.len(), |visit| self.visit_state(visit));
        let transfers = redistribute(&self.holdings(&self.ranks.assignment), &self.holdings(&assignment))?;
        transfer(&self.ranks.group, &transfers, &mut kept)?;
        let timings = self.buckets.timings();
        self.replace_buckets(self.buckets.plan().cloned().collect(), &assignment)?;
        self.buckets.keep_timings(&timings);
        // This rank may see no backward pass in the next step, and then has no times.
        self.profile.forget_ready();
        self.ranks.assignment = assignment;
        kept.fill(|visit| self.visit_state(visit));
        Ok(Ok(()))
    }

    /// Tests by a small sum if the configured algorithm can add the step's shares. All ranks call it.
    ///
    /// # Errors
    ///
    /// The algorithm cannot, on any rank; or the collective failed.
    pub fn check_algorithm(&self) -> Result<(), Error> {
        self.try_sum(&self.ranks.assignment)
    }

    fn try_sum(&self, assignment: &Assignment) -> Result<(), Error> {
        let (group, contributions) = (&self.ranks.group, assignment.contributions.clone());
        let trial = group.alloc::<f32>(contributions.parts(group.rank()))?;
        group.run(&Collective::tree_sum(contributions, 1), trial)?;
        Ok(())
    }

    /// Replaces the buckets. The old ones are freed first, so that gradients never take twice their memory.
    fn replace_buckets(&mut self, plan: Vec<Bucket>, assignment: &Assignment) -> Result<(), Error> {
        self.buckets = Buckets::none(&self.layout);
        let Ranks { group, division, .. } = &self.ranks;
        self.buckets =
            Buckets::new(plan, &*self.reducer, &self.layout, group, assignment, division.as_ref())?;
        // Blocks of the old buckets that no new one fits.
        group.forget_memory();
        if self.options.reads_once {
            self.buckets.will_be_read_once();
        }
        Ok(())
    }

    /// Returns what each rank holds for its shards in an assignment.
    fn holdings(&self, assignment: &Assignment) -> Vec<Holdings> {
        let mut all = vec![Holdings::default(); assignment.shares.len()];
        for (shard, Rank(owner)) in assignment.owners().enumerate() {
            let names = self.reducer.shard_state().iter();
            let names = names.map(|name| StateName::of_shard(StateKind::Reduction, *name, shard));
            all[owner].0.extend(names.map(|name| (name, 0..self.layout.len())));
        }
        all
    }

    /// Visits what the reduction keeps from step to step: the state of this rank's shards, and of the job.
    pub fn visit_state(&mut self, visit: &mut Visit<'_>) {
        let shards = self.ranks.assignment.shards.clone();
        self.buckets.visit_state(&self.layout, &*self.reducer, shards, visit);
    }
}
