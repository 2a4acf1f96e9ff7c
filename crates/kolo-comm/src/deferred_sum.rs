//! A sum that is added when it is read. All contributions lie where every rank of the host can read them,
//! so no rank writes a sum for another one to read.
//!
//! This moves the least memory if the sum is read once: every rank reads all contributions, and writes only
//! what its reader wants. An all-reduce also writes the sum and copies it to all ranks.

use std::ops::Range;
use std::sync::Arc;

use crate::backend::OpenedWindow;
use crate::kernel;
use kolo_schedule::tree::{Contributions, Fold};
use kolo_schedule::{Op, Rank};
use kolo_transport::{Buffer, Element, Lending, PeerMemory};

/// The sum of all parts of all ranks in tree order, equal to [`TreeSum`](crate::Collective::TreeSum)'s. It
/// is added piece by piece as it is read ([`Group::defer_sums`]).
///
/// While this value lives, the contributions of all ranks stay unchanged, even if some of the ranks end.
///
/// [`Group::defer_sums`]: crate::Group::defer_sums
pub struct DeferredSum<T: Element> {
    /// This rank's parts; `None` once `drop` has handed them over.
    own: Option<Buffer<T>>,
    /// Mappings of the memory that the sources lie in.
    _peers: Vec<Option<PeerMemory>>,
    window: u64,
    lending: Arc<Lending>,
    len: usize,
    /// Start of each contribution, in tree order, and the program that adds them.
    sources: Vec<*const T>,
    program: Vec<Fold>,
    /// Current position in each source, for one piece.
    addresses: Vec<*const T>,
}

// SAFETY: this value owns or keeps mapped the memory at these addresses, and nothing writes it.
unsafe impl<T: Element> Send for DeferredSum<T> {}

impl<T: Element> DeferredSum<T> {
    /// Creates the sum of all ranks' parts in a window, of `len` elements each.
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

    /// Number of elements of the sum.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the sum has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds some elements of the sum, with the same bits as a [`TreeSum`](crate::Collective::TreeSum).
    ///
    /// # Panics
    ///
    /// Panics if `elements` is not inside the sum or has another length than `into`.
    pub fn add_into(&mut self, elements: Range<usize>, into: &mut [T]) {
        assert!(elements.end <= self.len, "{elements:?} of a sum of {} elements", self.len);
        assert_eq!(elements.len(), into.len());
        self.addresses.clear();
        // SAFETY: every source has `len` elements.
        self.addresses.extend(self.sources.iter().map(|source| unsafe { source.add(elements.start) }));
        // SAFETY: `into` is borrowed exclusively, so it overlaps no source. Every source has as many
        // elements from its address on, and nothing writes them.
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
