//! Sums over all shards of a step that are needed while their passes are running.

use std::time::Duration;

use kolo_comm::{Collective, Group, Rank};

use kolo_reduction::{Error, ShardSum};
use kolo_sampler::Assignment;
use kolo_step::timed;

/// Sums over the shards of all ranks, in the order of the tree, as the passes need them.
///
/// It has a group of its own beside the one that reduces buckets, which may be busy at the same time:
/// neither's order depends on the other's.
pub struct Exchange {
    group: Group,
    assignment: Assignment,
    /// The first rank that has samples in the current step, and true if some rank has none. That rank cannot
    /// know which sums are needed, so each of them is announced to it.
    leader: Option<Rank>,
    followed: bool,
    waited: Duration,
}

kolo_comm::opaque_debug!(Exchange { followed, waited });

impl Exchange {
    /// Connects ranks with these numbers of shards, which are the same on all of them. All ranks of `group`
    /// call it.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), or the ranks cannot be connected once more.
    pub fn new(group: &Group, shares: &[usize]) -> Result<Self, Error> {
        let own = group.split(Some(0), 0)?;
        Ok(Exchange {
            group: own.ok_or_else(|| Error::Setting("a color gives a group".into()))?,
            assignment: Assignment::new(shares, group.rank()),
            leader: None,
            followed: false,
            waited: Duration::ZERO,
        })
    }

    /// Begins a step. `busy` is true if any of this rank's shards has samples. All ranks call it. Fails if a
    /// collective fails (naming the rank).
    pub fn begin(&mut self, busy: bool) -> Result<(), Error> {
        let mut all = vec![0u8; self.group.world_size()];
        timed(&mut self.waited, "other shards", || self.group.all_gather(&[u8::from(busy)], &mut all))?;
        self.leader = all.iter().position(|busy| *busy == 1).map(Rank);
        self.followed = all.contains(&0);
        Ok(())
    }

    /// Sums `len` numbers over all shards of all ranks; `own` has those of this rank's shards, `None` for a
    /// shard without samples. All busy ranks call it with the same `len`.
    pub(super) fn sum(&mut self, len: usize, own: &[Option<Vec<f64>>]) -> Result<Vec<f64>, Error> {
        self.announce(len)?;
        self.add(len, own)
    }

    /// Ends the sums of this step, and announces that to ranks without samples. All busy ranks call it.
    pub(super) fn end(&mut self) -> Result<(), Error> {
        self.announce(0).map(drop)
    }

    /// Takes part in the other ranks' sums until they need no more, in a step in which no shard of this rank
    /// has samples. Fails if a collective fails (naming the rank).
    pub fn follow(&mut self) -> Result<(), Error> {
        let nothing = vec![None; self.assignment.shards.len()];
        // Ends with the leader's step, or with the group.
        while self.leader.is_some() {
            match self.announce(0)? {
                0 => break,
                len => drop(self.add(len, &nothing)?),
            }
        }
        Ok(())
    }

    /// Time that this rank's thread has spent in it since the last call.
    pub fn take_waited(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }

    /// Broadcasts the length of the leader's next sum, if any rank has no samples.
    fn announce(&mut self, len: usize) -> Result<usize, Error> {
        let (Some(leader), true) = (self.leader, self.followed) else { return Ok(len) };
        let mut len = [len as i64];
        timed(&mut self.waited, "other shards", || self.group.broadcast(&mut len, leader))?;
        Ok(len[0] as usize)
    }

    fn add(&mut self, len: usize, own: &[Option<Vec<f64>>]) -> Result<Vec<f64>, Error> {
        let mut sum = ShardSum::<f64>::new(&self.group, len, self.assignment.shards.clone())?;
        for (shard, own) in self.assignment.shards.clone().zip(own) {
            match own {
                Some(own) => sum.put(0, own, true),
                None => sum.put_zeros(0, len),
            }
            sum.end_shard(shard);
        }
        let collective = Collective::tree_sum(self.assignment.contributions.clone(), len);
        let buffer = timed(&mut self.waited, "other shards", || self.group.run(&collective, sum.take()))?;
        Ok(buffer[..len].to_vec())
    }
}
