//! Sums over all shards of a step that are needed while their passes are under way.

use std::time::Duration;

use kolo_comm::{Collective, Group, Rank};

use crate::error::Error;
use crate::shard_sum::ShardSum;
use crate::shares::Assignment;
use crate::timed::timed;

/// Sums over the shards of all ranks, in the order of the tree, as the passes need them.
///
/// It has a group of its own beside the one that reduces buckets, which may be under way at the same time:
/// neither's order depends on the other's.
pub struct Exchange {
    group: Group,
    assignment: Assignment,
    /// In the running step the first rank that has samples, and whether there is one that has none. That one
    /// cannot know which sums are needed, so it is told before each of them.
    leader: Option<Rank>,
    followed: bool,
    waited: Duration,
}

impl Exchange {
    /// For ranks that have so many shards each, the same numbers on all of them. All ranks of `group` call
    /// it.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank), or the ranks cannot be connected once more.
    pub fn new(group: &Group, shares: &[usize]) -> Result<Self, Error> {
        let own = group.split(Some(0), 0)?;
        Ok(Exchange {
            group: own.ok_or_else(|| Error::Setting("a colour gives a group".into()))?,
            assignment: Assignment::new(shares, group.rank()),
            leader: None,
            followed: false,
            waited: Duration::ZERO,
        })
    }

    /// Begins a step. `busy`: whether any of this rank's shards has samples. All ranks call it.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    pub fn begin(&mut self, busy: bool) -> Result<(), Error> {
        let mut all = vec![0u8; self.group.world_size()];
        timed(&mut self.waited, "other shards", || self.group.all_gather(&[u8::from(busy)], &mut all))?;
        self.leader = all.iter().position(|busy| *busy == 1).map(Rank);
        self.followed = all.contains(&0);
        Ok(())
    }

    /// The sum of `len` numbers over all shards of all ranks; `own` has those of this rank's shards, `None`
    /// where a shard has no samples. All busy ranks call it alike.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    pub(super) fn sum(&mut self, len: usize, own: &[Option<Vec<f64>>]) -> Result<Vec<f64>, Error> {
        self.announce(len)?;
        self.add(len, own)
    }

    /// No more sums in this step: those who follow are told. All busy ranks call it.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    pub(super) fn end(&mut self) -> Result<(), Error> {
        self.announce(0).map(drop)
    }

    /// In a step in which no shard of this rank has samples: takes part in the others' sums until they need
    /// no more.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
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

    /// Time in which this rank's thread was at it since this was last asked for.
    pub fn take_waited(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }

    /// What the leader says comes next, where somebody has to be told.
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
        let collective = Collective::TreeSum { contributions: self.assignment.contributions.clone(), len };
        let buffer = timed(&mut self.waited, "other shards", || self.group.run(&collective, sum.take()))?;
        Ok(buffer[..len].to_vec())
    }
}
