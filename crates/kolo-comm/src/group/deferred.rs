//! Sums that are added when they are read ([`DeferredSum`]).

use std::mem::ManuallyDrop;
use std::sync::Arc;

use super::{Group, Shared};
use crate::backend::{NewWindow, OpenedWindow};
use crate::collective::Collective;
use crate::deferred_sum::DeferredSum;
use crate::element::Element;
use crate::memory::{Buffer, Lending};
use crate::pending::Pending;
use crate::wait::WaitMode;
use kolo_rendezvous::Error;
use kolo_schedule::Rank;
use kolo_schedule::tree::Contributions;

impl Group {
    /// Whether sums can be deferred: whether there are other ranks, all of them can read each other's memory,
    /// and no algorithm has been asked for by name.
    pub fn defers_sums(&self) -> bool {
        self.world_size() > 1 && self.with_backend(|backend| backend.opens_windows())
    }

    /// Starts a sum in tree order that is added when it is read. Part p of a rank's buffer is its node p, as
    /// in [`Collective::TreeSum`].
    ///
    /// When it is over all contributions are there. It gives the sum, and in the place of the buffer, which
    /// others may still read, another one of the same length, whose content is unspecified. The memory of the
    /// first one is used again when sums that are started later show that all ranks have dropped this one.
    ///
    /// # Errors
    ///
    /// [`Group::defers_sums`] is false, or the buffer is too short for this rank's parts; otherwise as
    /// [`Group::run`].
    pub fn start_deferred_sum<T: Element>(
        &self,
        contributions: Arc<Contributions>,
        len: usize,
        buffer: Buffer<T>,
    ) -> Pending<(DeferredSum<T>, Buffer<T>)> {
        let (world, rank, elements) = (self.world_size(), self.rank(), buffer.len());
        let sum = Collective::TreeSum { contributions: contributions.clone(), len };
        let admitted = sum.check(rank, world, elements).map_err(Error::from);
        let admitted = admitted.and_then(|()| self.admit(&buffer));
        let lending = self.lending.clone();
        self.start_stages(move |stages| {
            admitted?;
            let parts: Vec<usize> = (0..world).map(|rank| contributions.parts(Rank(rank))).collect();
            let part = len * size_of::<T>();
            let (own, number, opened) = stages.shared.open_window(buffer, part, &parts, &lending)?;
            let sum = DeferredSum::new(own, opened, (number, lending), &contributions, len);
            // The others have the sum, and would wait for this rank.
            let another = stages.unspecified(elements).map_err(|error| stages.shared.failed(error))?;
            Ok((sum, another))
        })
    }
}

impl Shared {
    /// Shows a buffer to all ranks, in a window of the number that it gives.
    fn open_window<T: Element>(
        &self,
        buffer: Buffer<T>,
        part: usize,
        parts: &[usize],
        lending: &Lending,
    ) -> Result<(Buffer<T>, u64, OpenedWindow), Error> {
        if let Some(error) = self.liveness.failure() {
            return Err(error);
        }
        // A peer may be reading it from now on, also where this ends in a panic.
        let mut buffer = ManuallyDrop::new(buffer);
        let (number, reads_from) = lending.begin();
        let window = NewWindow { part, parts, reads_from };
        let result = self.backend.lock().open_window(&buffer.erased(), &window, WaitMode::Background);
        match result {
            Ok(opened) => {
                lending.none_is_read_before(opened.reads_from);
                Ok((ManuallyDrop::into_inner(buffer), number, opened))
            }
            Err(error) => {
                let (block, pool) = ManuallyDrop::into_inner(buffer).into_parts();
                lending.close(number, block, pool);
                Err(self.failed(error))
            }
        }
    }
}
