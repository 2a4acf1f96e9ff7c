//! Memory of `f32` that several owners refer to. Its users keep readers and writers apart.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::io;
use std::ops::Range;
use std::ptr::NonNull;

use kolo_transport::HostPages;

/// Alignment of the first value: a cache line, and the longest vector.
const ALIGNMENT: usize = 64;

/// A fixed number of `f32`.
pub(crate) struct FlatMemory {
    start: NonNull<f32>,
    len: usize,
    /// Pages that the workers of a host share and in which the memory lies; `None` on the heap.
    pages: Option<HostPages>,
}

// SAFETY: plain memory, of which references are given out by unsafe functions only.
unsafe impl Send for FlatMemory {}
// SAFETY: as above.
unsafe impl Sync for FlatMemory {}

impl FlatMemory {
    /// Allocates a copy of `values`.
    pub(crate) fn copied(values: &[f32]) -> Self {
        let layout = layout_of(values.len());
        // SAFETY: the layout has a size greater than zero.
        let Some(start) = NonNull::new(unsafe { alloc(layout) }) else { handle_alloc_error(layout) };
        let start = start.cast::<f32>();
        // SAFETY: the memory is new, aligned and at least as long as `values`.
        unsafe { start.copy_from_nonoverlapping(NonNull::from(values).cast(), values.len()) };
        FlatMemory { start, len: values.len(), pages: None }
    }

    /// Makes pages the memory of `len` values, which other processes may change.
    ///
    /// # Panics
    ///
    /// Panics if the pages are too short.
    pub(crate) fn within(pages: HostPages, len: usize) -> Self {
        assert!(len * size_of::<f32>() <= pages.len(), "{len} values in {} bytes", pages.len());
        FlatMemory { start: pages.start().cast(), len, pages: Some(pages) }
    }

    /// Makes the memory this process's own, with the same values at the same addresses. Nobody may write it
    /// meanwhile. Errors: there is no memory for a copy.
    pub(crate) fn detach(&self) -> io::Result<()> {
        self.pages.as_ref().map_or(Ok(()), HostPages::detach)
    }

    /// Returns the values of `range`.
    ///
    /// # Safety
    ///
    /// Nobody writes one of them while the result lives.
    pub(crate) unsafe fn read(&self, range: Range<usize>) -> &[f32] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: inside the memory, which is initialized; nobody writes there, as the caller promises.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(range.start), range.len()) }
    }

    /// Returns the values of `range`, to be changed.
    ///
    /// # Safety
    ///
    /// Nobody else reads or writes one of them while the result lives.
    #[allow(clippy::mut_from_ref)] // The caller holds the place exclusively, not the memory.
    pub(crate) unsafe fn write(&self, range: Range<usize>) -> &mut [f32] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: inside the memory, which is initialized; the caller promises exclusive access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr().add(range.start), range.len()) }
    }
}

impl Drop for FlatMemory {
    fn drop(&mut self) {
        if self.pages.is_none() {
            // SAFETY: allocated with the same layout.
            unsafe { dealloc(self.start.as_ptr().cast(), layout_of(self.len)) }
        }
    }
}

/// Layout of `len` values; at least one, because memory of no size cannot be allocated.
fn layout_of(len: usize) -> Layout {
    let bytes = size_of::<f32>() * len.max(1);
    Layout::from_size_align(bytes, ALIGNMENT).expect("values that lie in memory fit into memory")
}
