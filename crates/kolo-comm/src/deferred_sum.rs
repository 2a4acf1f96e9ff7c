//! A sum that is added when somebody reads it: all contributions lie where every rank of the host can read
//! them, so that no rank writes a sum for another one to read.
//!
//! That moves the least memory where the sum is read once: every rank reads all contributions, and nothing
//! is written but what the reader wants. An all-reduce reads each of them once, too, but then writes the sum
//! and copies it to all ranks.

use std::ops::Range;
use std::sync::Arc;

use crate::backend::OpenedWindow;
use crate::element::Element;
use crate::kernel;
use crate::memory::{Buffer, Lending, PeerMemory};
use kolo_schedule::tree::{Contributions, Fold};
use kolo_schedule::{Op, Rank};

/// The sum of all parts of all ranks in tree order, as [`Collective::TreeSum`](crate::Collective::TreeSum)
/// makes it, which is added piece by piece when it is read ([`Group::defer_sums`]).
///
/// While this lives its contributions stay as they are on all ranks, whatever becomes of those.
///
/// [`Group::defer_sums`]: crate::Group::defer_sums
pub struct DeferredSum<T: Element> {
    /// This rank's parts; taken when they are lent.
    own: Option<Buffer<T>>,
    /// What the sources lie in.
    _peers: Vec<Option<PeerMemory>>,
    window: u64,
    lending: Arc<Lending>,
    len: usize,
    /// Where each contribution begins, in tree order, and how they are added.
    sources: Vec<*const T>,
    program: Vec<Fold>,
    /// Where each of them goes on, for a piece.
    addresses: Vec<*const T>,
}

// SAFETY: the addresses are of memory that this value owns or keeps mapped, and that nobody writes.
unsafe impl<T: Element> Send for DeferredSum<T> {}

impl<T: Element> DeferredSum<T> {
    /// The sum of what all ranks show in a window: of parts of `len` elements.
    pub(crate) fn new(
        own: Buffer<T>,
        opened: OpenedWindow,
        (window, lending): (u64, Arc<Lending>),
        contributions: &Contributions,
        len: usize,
    ) -> Self {
        let OpenedWindow { peers, .. } = opened;
        let source = |(Rank(rank), part): (Rank, usize)| {
            let start = peers[rank]
                .as_ref()
                .map_or(own.as_ptr(), |peer| peer.start().as_ptr().cast::<T>().cast_const());
            // SAFETY: every rank shows as many parts as it contributes.
            unsafe { start.add(part * len) }
        };
        let sources: Vec<*const T> = contributions.sources().into_iter().map(source).collect();
        let (program, addresses) = (contributions.program(), Vec::with_capacity(sources.len()));
        DeferredSum { own: Some(own), _peers: peers, window, lending, len, sources, program, addresses }
    }

    /// Elements of the sum.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds some of its elements; the same bits as a [`TreeSum`](crate::Collective::TreeSum) gives.
    ///
    /// # Panics
    ///
    /// If they are not inside the sum, or not as many as `into` takes.
    pub fn add_into(&mut self, elements: Range<usize>, into: &mut [T]) {
        assert!(elements.end <= self.len, "{elements:?} of a sum of {} elements", self.len);
        assert_eq!(elements.len(), into.len());
        self.addresses.clear();
        // SAFETY: every source has `len` elements.
        self.addresses.extend(self.sources.iter().map(|source| unsafe { source.add(elements.start) }));
        // SAFETY: `into` is borrowed exclusively, so it overlaps no source; those have as many elements from
        // there on, and nobody writes them.
        unsafe {
            kernel::fold(into.as_mut_ptr(), &self.addresses, into.len(), &self.program, Op::Sum, None);
        }
    }
}

impl<T: Element> Drop for DeferredSum<T> {
    fn drop(&mut self) {
        if let Some(own) = self.own.take() {
            let (block, pool) = own.into_parts();
            self.lending.close(self.window, block, pool);
        }
    }
}

impl<T: Element> std::fmt::Debug for DeferredSum<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DeferredSum({} {} of {} contributions)", self.len, T::DTYPE, self.sources.len())
    }
}
