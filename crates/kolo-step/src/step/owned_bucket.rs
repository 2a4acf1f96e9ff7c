//! Division of a bucket among its owners, and the exchange of the values that they have stepped.

use std::ops::Range;
use std::sync::Arc;

use kolo_comm::schedule::Chunks;
use kolo_comm::{Buffer, Collective, Group, Pending, Rank, Readers};

use crate::division::Division;
use crate::gradient_memory::{GradientMemory, Held};
use kolo_optim::Layout;
use kolo_reduction::reduction::Reduction;
use kolo_reduction::{Bucket, Error, Slice};

/// Division of a bucket among its owners.
pub(super) struct OwnedBucket {
    /// Slices that the first owner of each sends to all ranks, by its rank: the message's elements, one after
    /// another.
    slices: Vec<Slice>,
    /// Number of elements that each rank sends.
    lens: Arc<[usize]>,
    /// Elements of the message that this rank sends.
    sent: Range<usize>,
    /// Slices that this rank steps, with their offsets in the reduction's result.
    own: Vec<Slice>,
    /// The rest exists where a rank keeps only its own parts of the sum.
    kept: Option<Kept>,
    /// Owners of the bucket's elements.
    readers: Readers,
    pub(super) gather: Gather,
}

/// Parts of the sum that this rank keeps.
struct Kept {
    /// Their ranges in the bucket, in the order of the slices.
    ranges: Vec<Range<usize>>,
    /// The slices of which this rank is the first owner, which looks at them for all ranks.
    seen: Vec<Slice>,
    memory: Arc<GradientMemory>,
}

/// Progress of the exchange of new values in the current step.
pub(super) enum Gather {
    NotStarted,
    /// The values are here, or without other ranks there is nothing to exchange.
    Nothing,
    UnderWay(Pending<Buffer<f32>>, Room),
}

/// Memory in which new values travel.
pub(super) enum Room {
    /// The buffer of the reduction's result, which nobody reads any more.
    Lent,
    /// A buffer of their own, counted where gradients are divided.
    Own { _held: Option<Held> },
}

impl OwnedBucket {
    pub(super) fn new(bucket: &Bucket, division: &Division, layout: &Layout, group: &Group) -> Self {
        let Division { owners, memory, .. } = division;
        let (world, rank) = (group.world_size(), group.rank());
        let parts: Vec<(Slice, &[Rank])> =
            bucket.slices.iter().flat_map(|slice| owners.cut(layout, slice)).collect();
        let of = |sender: Rank| {
            let is_sent = move |(slice, owners): &&(Slice, &[Rank])| {
                owners.first() == Some(&sender) && division.sends(slice.span)
            };
            parts.iter().filter(is_sent)
        };
        let len = |sender| of(sender).map(|(slice, _)| slice.elements.len()).sum();
        let lens: Arc<[usize]> = (0..world).map(|sender| len(Rank(sender))).collect();
        let first: usize = lens[..rank.0].iter().sum();
        let of_this = || parts.iter().filter(|(_, owners)| owners.contains(&rank));
        let mut own: Vec<Slice> = of_this().map(|(slice, _)| slice.clone()).collect();
        let kept = memory.clone().map(|memory| {
            let ranges = own.iter().map(Slice::range).collect();
            let mut end = 0;
            for slice in &mut own {
                slice.offset = end;
                end += slice.elements.len();
            }
            let firsts = of_this().map(|(_, owners)| owners.first() == Some(&rank));
            let seen = own.iter().zip(firsts).filter(|(_, is_first)| *is_first);
            Kept { ranges, seen: seen.map(|(slice, _)| slice.clone()).collect(), memory }
        });
        OwnedBucket {
            slices: (0..world).flat_map(|sender| of(Rank(sender))).map(|(slice, _)| slice.clone()).collect(),
            sent: first..first + lens[rank.0],
            own,
            kept,
            readers: Readers::of_blocks(
                parts.iter().map(|(slice, owners)| (slice.elements.len(), owners.to_vec())),
            ),
            lens,
            gather: Gather::NotStarted,
        }
    }

    /// Slices that this rank steps.
    pub(super) fn own(&self) -> &[Slice] {
        &self.own
    }

    /// Ranges of the bucket that this rank keeps of the sum, one behind the other, and the account of their
    /// memory; `None` if it has all of the sum.
    pub(super) fn keeps(&self) -> Option<(Vec<Range<usize>>, Arc<GradientMemory>)> {
        self.kept.as_ref().map(|kept| (kept.ranges.clone(), kept.memory.clone()))
    }

    /// Slices that this rank looks at for all ranks; `None` if each rank has all of the sum.
    pub(super) fn seen(&self) -> Option<&[Slice]> {
        self.kept.as_ref().map(|kept| &kept.seen[..])
    }

    /// Ranks that read the reduced gradient if only the optimizer does.
    pub(super) fn readers(&self) -> &Readers {
        &self.readers
    }

    pub(super) fn reset(&mut self) {
        self.gather = Gather::NotStarted;
    }

    /// Calls `copy` with the place of each slice in the message and in flat memory.
    pub(super) fn places(&self, layout: &Layout, mut copy: impl FnMut(Range<usize>, Range<usize>)) {
        let mut start = 0;
        for slice in &self.slices {
            let end = start + slice.elements.len();
            copy(start..end, slice.place(layout));
            start = end;
        }
    }

    /// Starts to exchange the new values.
    pub(super) fn start(
        &mut self,
        group: &Group,
        layout: &Layout,
        reduction: &mut dyn Reduction,
        values: &[f32],
    ) -> Result<(), Error> {
        if self.slices.is_empty() {
            // The owners keep the values of all of its tensors.
            if let Some(buffer) = reduction.lend() {
                reduction.take_back(buffer);
            }
            self.gather = Gather::Nothing;
            return Ok(());
        }
        let len = self.lens.iter().sum();
        let (mut buffer, room) = match reduction.lend() {
            Some(buffer) if buffer.len() == len => (buffer, Room::Lent),
            lent => {
                // The message is shorter where owners keep some of the values.
                if let Some(buffer) = lent {
                    reduction.take_back(buffer);
                }
                let _held = self.kept.as_ref().map(|kept| kept.memory.hold(len * size_of::<f32>()));
                (group.alloc_unspecified(len)?, Room::Own { _held })
            }
        };
        self.places(layout, |message, place| {
            if self.sent.start <= message.start && message.end <= self.sent.end {
                buffer[message].copy_from_slice(&values[place]);
            }
        });
        let gather = Collective::AllGather(Chunks::Varied(self.lens.clone()));
        self.gather = Gather::UnderWay(group.start(gather, buffer), room);
        Ok(())
    }
}
