//! What the ranks agree on in every step: whether any of them used a parameter more or less often than expected, whether
//! one wants the members of the job to change, and whether one stays. It costs three bytes; only where uses differ do the ranks
//! exchange how often.

use kolo_comm::{Collective, Op, Rank};

use super::{Reducer, timed};
use crate::error::Error;
use crate::layout::{Kind, SpanId};
use crate::shard_sum::ShardSum;

/// What is so on any rank.
pub(super) struct Agreement {
    /// A parameter was used more or less often than expected.
    pub(super) surprise: bool,
    /// The members of the job are to change.
    pub(super) change: bool,
    /// Not all of them leave.
    pub(super) stays: bool,
}

impl Reducer {
    /// Tells the others whether this rank saw another number of uses than expected, whether it wants a change, and what else there is
    /// to tell.
    pub(super) fn start_agreement(&mut self) -> Result<(), Error> {
        if self.synchronise {
            self.told.start(&self.group)?;
            let mut flags = self.group.alloc::<u8>(3)?;
            flags[0] = u8::from(!self.shards.is_empty() && self.uses.surprising());
            flags[1] = u8::from(self.wants_change);
            flags[2] = u8::from(!self.leaves);
            self.agreement = Some(self.group.start(Collective::AllReduce(Op::Max), flags));
        }
        Ok(())
    }

    pub(super) fn agree(&mut self) -> Result<Agreement, Error> {
        self.told.finish(&mut self.exposed)?;
        match self.agreement.take() {
            Some(pending) => {
                let flags = timed(&mut self.exposed, || pending.wait())?;
                Ok(Agreement { surprise: flags[0] != 0, change: flags[1] != 0, stays: flags[2] != 0 })
            }
            None => Ok(Agreement { surprise: self.uses.surprising(), change: false, stays: true }),
        }
    }

    /// Finds out how often each span was used on any rank, reduces what came late, and expects that from now on.
    pub(super) fn exchange_uses(&mut self) -> Result<(), Error> {
        let mut uses: Vec<i32> = self.uses.most.iter().map(|&uses| uses as i32).collect();
        if self.synchronise {
            timed(&mut self.exposed, || self.group.all_reduce(&mut uses, Op::Max))?;
        }
        let uses: Vec<u32> = uses.into_iter().map(|uses| uses as u32).collect();
        for (index, &uses) in uses.iter().enumerate() {
            if uses > self.uses.expected[index] {
                self.add_remainder(SpanId(index))?;
            }
            let span = &self.layout.spans()[index];
            let unused = uses == 0 && span.spec.kind != Kind::Statistic;
            if unused && !std::mem::replace(&mut self.warned[index], true) && self.group.rank() == Rank(0) {
                log::warn!("parameter `{}` had no gradient in this step: taken as zero", span.spec.name);
            }
        }
        self.uses.expected = uses;
        Ok(())
    }

    fn add_remainder(&mut self, id: SpanId) -> Result<(), Error> {
        let len = self.layout.span(id).len;
        let mut sum = ShardSum::new(&self.group, len, self.shards.clone())?;
        for (shard, late) in self.shards.clone().zip(self.uses.take_late(id, self.shards.len())) {
            match late {
                Some(gradient) => sum.put(0, &gradient, true),
                None => sum.put_zeros(0, len),
            }
            sum.end_shard(shard);
        }
        if self.synchronise {
            let collective = Collective::TreeSum { contributions: self.contributions.clone(), len };
            let buffer = timed(&mut self.exposed, || self.group.run(&collective, sum.take()))?;
            sum.give_back(buffer);
        } else {
            sum.fold();
        }
        for place in 0..self.places[id.0].len() {
            let (bucket, slice) = self.places[id.0][place];
            let (bucket, total) = self.collect(bucket)?;
            let slice = &bucket.slices[slice];
            let late = &sum.result()[slice.elements.clone()];
            total[slice.range()].iter_mut().zip(late).for_each(|(total, late)| *total += *late);
        }
        Ok(())
    }
}
