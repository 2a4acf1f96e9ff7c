//! Division of a bucket among its owners, and the exchange of the values that they have stepped.

use std::ops::Range;
use std::sync::Arc;

use kolo_comm::schedule::Chunks;
use kolo_comm::{Buffer, Collective, Group, Pending, Rank, Readers};

use kolo_optim::Layout;
use kolo_reduction::reduction::Reduction;
use kolo_reduction::{Bucket, Error, Owners, Slice};

/// Division of a bucket among its owners.
pub(super) struct OwnedBucket {
    /// Slices that the first owner of each sends to all ranks, by its rank: the message's elements, one after
    /// another.
    slices: Vec<Slice>,
    /// Number of elements that each rank sends.
    lens: Arc<[usize]>,
    /// Elements of the message that this rank sends.
    sent: Range<usize>,
    /// Slices that this rank steps.
    own: Vec<Slice>,
    /// Owners of the bucket's elements.
    readers: Readers,
    pub(super) gather: Gather,
}

/// Progress of the exchange of new values in the current step.
pub(super) enum Gather {
    NotStarted,
    /// Without other ranks there is nothing to exchange.
    Nothing,
    UnderWay(Pending<Buffer<f32>>, Room),
}

/// Memory in which new values travel.
#[derive(Clone, Copy)]
pub(super) enum Room {
    /// The buffer of the reduction's result, which nobody reads any more.
    Lent,
    Own,
}

impl OwnedBucket {
    pub(super) fn new(bucket: &Bucket, owners: &Owners, layout: &Layout, group: &Group) -> Self {
        let (world, rank) = (group.world_size(), group.rank());
        let parts: Vec<(Slice, &[Rank])> =
            bucket.slices.iter().flat_map(|slice| owners.cut(layout, slice)).collect();
        let of = |sender: Rank| parts.iter().filter(move |(_, owners)| owners.first() == Some(&sender));
        let len = |sender| of(sender).map(|(slice, _)| slice.elements.len()).sum();
        let lens: Arc<[usize]> = (0..world).map(|sender| len(Rank(sender))).collect();
        let first: usize = lens[..rank.0].iter().sum();
        let own = parts.iter().filter(|(_, owners)| owners.contains(&rank));
        OwnedBucket {
            slices: (0..world).flat_map(|sender| of(Rank(sender))).map(|(slice, _)| slice.clone()).collect(),
            sent: first..first + lens[rank.0],
            own: own.map(|(slice, _)| slice.clone()).collect(),
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
    ///
    /// # Errors
    ///
    /// Out of memory.
    pub(super) fn start(
        &mut self,
        group: &Group,
        layout: &Layout,
        reduction: &mut dyn Reduction,
        values: &[f32],
    ) -> Result<(), Error> {
        let (mut buffer, room) = match reduction.lend() {
            Some(buffer) => (buffer, Room::Lent),
            None => (group.alloc(self.lens.iter().sum())?, Room::Own),
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
