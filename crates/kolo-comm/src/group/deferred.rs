//! Sums that are added when they are read ([`DeferredSum`]).

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::shared::Shared;
use super::{Group, Stages};
use crate::backend::{NewWindow, OpenedWindow};
use crate::collective::Collective;
use crate::deferred_sum::DeferredSum;
use kolo_rendezvous::Error;
use kolo_schedule::Rank;
use kolo_schedule::tree::Contributions;
use kolo_transport::{Buffer, Element, Lending, Pool, WaitMode};

/// One rank's contribution to a deferred sum in tree order.
#[derive(Debug)]
pub struct SumParts<T: Element> {
    /// The tree nodes that each rank contributes; the same on all ranks.
    pub contributions: Arc<Contributions>,
    /// Number of elements of the sum.
    pub len: usize,
    /// Parts of this rank: part p is its node p, as in [`Collective::TreeSum`].
    pub buffer: Buffer<T>,
}

/// A deferred sum, and a buffer in place of the one that the sum keeps.
pub type Deferred<T> = (DeferredSum<T>, Buffer<T>);

impl Group {
    /// Returns true if sums can be deferred: there are other ranks, all ranks can read each other's
    /// memory, and no algorithm is forced.
    pub fn defers_sums(&self) -> bool {
        self.world_size() > 1 && self.with_backend(|backend| backend.opens_windows())
    }

    /// Creates sums in tree order that are added when they are read. The ranks notify each other once for
    /// all of the sums and send nothing else.
    ///
    /// When this returns, all contributions are there. It returns each sum with a new buffer of the same
    /// length and unspecified content, because other ranks may still read the old one. The old buffer's
    /// memory is reused once later sums show that all ranks have dropped this one.
    ///
    /// # Errors
    ///
    /// [`Group::defers_sums`] is false, or a buffer is too short; otherwise the errors of [`Group::run`].
    pub fn defer_sums<T: Element>(&self, sums: Vec<SumParts<T>>) -> Result<Vec<Deferred<T>>, Error> {
        sums.iter().try_for_each(|sum| self.admit_parts(sum))?;
        let (world, lending) = (self.world_size(), self.lending.clone());
        if self.shared.queued.load(Ordering::Acquire) == 0 {
            // Nothing is queued, so this thread can run it directly.
            return self.shared.defer(sums, &self.pool, world, &lending, WaitMode::Blocking);
        }
        let pool = self.pool.clone();
        let defer =
            move |stages: &Stages| stages.shared.defer(sums, &pool, world, &lending, WaitMode::Background);
        self.start_stages(defer).wait()
    }

    fn admit_parts<T: Element>(&self, sum: &SumParts<T>) -> Result<(), Error> {
        let SumParts { contributions, len, buffer } = sum;
        let sum = Collective::tree_sum(contributions.clone(), *len);
        sum.check(self.rank(), self.world_size(), buffer.len())?;
        self.admit(buffer)
    }
}

struct Opening<T: Element> {
    sum: SumParts<T>,
    number: u64,
    reads_from: u64,
}

impl Shared {
    /// Shows the parts of some sums to all ranks, each in its own window. New buffers come from `pool`.
    fn defer<T: Element>(
        &self,
        sums: Vec<SumParts<T>>,
        pool: &Arc<Pool>,
        world: usize,
        lending: &Arc<Lending>,
        mode: WaitMode,
    ) -> Result<Vec<Deferred<T>>, Error> {
        if let Some(error) = self.liveness.failure() {
            return Err(error);
        }
        let lens: Vec<usize> = sums.iter().map(|sum| sum.buffer.len()).collect();
        let opening = sums.into_iter().map(|sum| {
            let (number, reads_from) = lending.begin();
            Opening { sum, number, reads_from }
        });
        // From now on a peer may read the buffers, even if this function panics.
        let mut opening = ManuallyDrop::new(opening.collect::<Vec<_>>());
        let windows: Vec<NewWindow<'_>> = opening.iter_mut().map(|opening| opening.window(world)).collect();
        let result = self.backend.lock().open_windows(&windows, mode);
        drop(windows);
        let opening = ManuallyDrop::into_inner(opening).into_iter();
        match result {
            Ok(opened) => {
                // Creates all sums before any error returns: even a dropped sum lets others read it.
                let sums = opening.zip(opened).map(|(opening, opened)| opening.done(opened, lending));
                let sums = sums.collect::<Vec<_>>().into_iter();
                let others = lens.into_iter().map(|len| Buffer::unspecified(pool, len));
                let sums = sums.zip(others).map(|(sum, other)| Ok((sum, other?)));
                // The other ranks have the sums and would wait for this rank.
                sums.collect::<Result<_, _>>().map_err(|error| self.failed(error))
            }
            Err(error) => {
                opening.for_each(|opening| opening.give_up(lending));
                Err(self.failed(error))
            }
        }
    }
}

impl<T: Element> Opening<T> {
    fn window(&mut self, world: usize) -> NewWindow<'_> {
        let SumParts { contributions, len, buffer } = &mut self.sum;
        let parts = (0..world).map(|rank| contributions.parts(Rank(rank))).collect();
        let part = *len * size_of::<T>();
        NewWindow { memory: buffer.erased(), part, parts, reads_from: self.reads_from }
    }

    fn done(self, opened: OpenedWindow, lending: &Arc<Lending>) -> DeferredSum<T> {
        let SumParts { contributions, len, buffer } = self.sum;
        lending.none_is_read_before(opened.reads_from);
        DeferredSum::new(buffer, opened, (self.number, lending.clone()), &contributions, len)
    }

    fn give_up(self, lending: &Lending) {
        let (block, pool) = self.sum.buffer.into_parts();
        lending.close(self.number, block, pool);
    }
}
