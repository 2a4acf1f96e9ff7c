//! The memory: words that workers read and write atomically, journals, state and values.

use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use kolo_comm::Error;
use kolo_transport::{HostFile, HostPages};
use kolo_values::{MapVersion, MemoryPlace};

use crate::places::{MOST_WORKERS, Places, word};

/// Memory of a job on one host. It exists as long as a worker has it.
#[derive(Debug)]
pub struct HostMemory {
    file: Arc<HostFile>,
    pages: HostPages,
    places: Places,
    blocks: Vec<Range<usize>>,
}

impl HostMemory {
    /// Makes the memory of a model with these blocks, whose optimizer has so many arrays of state: all zeros.
    ///
    /// # Errors
    ///
    /// The operating system refuses it: names the bytes.
    pub fn create(blocks: Vec<Range<usize>>, arrays: usize) -> Result<Arc<Self>, Error> {
        let places = Places::new(&blocks, arrays);
        let file = HostFile::create(places.total()).map_err(|cause| places.no_room(&cause))?;
        let memory = Self::of(file, places, blocks)?;
        memory.word(word::KIND).store(memory.places.kind(), Ordering::Release);
        Ok(Arc::new(memory))
    }

    /// Maps the memory of a worker that is alive, for the same model.
    ///
    /// # Errors
    ///
    /// It is not there, or may not be opened, or it is another model's.
    pub fn open(place: MemoryPlace, blocks: Vec<Range<usize>>, arrays: usize) -> Result<Arc<Self>, Error> {
        let places = Places::new(&blocks, arrays);
        let memory = Self::of(HostFile::open(place.pid, place.file, places.total())?, places, blocks)?;
        if memory.word(word::KIND).load(Ordering::Acquire) != memory.places.kind() {
            let what = format!("the memory of process {}", place.pid);
            return Err(Error::system(what, "it holds the state of another model or optimizer"));
        }
        Ok(Arc::new(memory))
    }

    fn of(file: HostFile, places: Places, blocks: Vec<Range<usize>>) -> Result<Self, Error> {
        let control = places.control();
        let pages = file.map(control.start, control.len()).map_err(|cause| places.no_room(&cause))?;
        Ok(HostMemory { file: Arc::new(file), pages, places, blocks })
    }

    /// Place at which other processes find the memory.
    pub fn place(&self) -> MemoryPlace {
        MemoryPlace { pid: std::process::id(), file: self.file.number() }
    }

    /// Function that maps the versions of the values.
    pub fn map_versions(&self) -> MapVersion {
        let (file, places) = (self.file.clone(), self.places.clone());
        Box::new(move |number| {
            let version = places.version(number);
            file.map(version.start, version.len()).map_err(|cause| places.no_room(&cause))
        })
    }

    /// Blocks of flat memory.
    pub fn blocks(&self) -> &[Range<usize>] {
        &self.blocks
    }

    /// Number of the last update that has begun, from 1.
    pub fn begun(&self) -> u64 {
        self.word(word::BEGUN).load(Ordering::Acquire)
    }

    /// Declares that an update has begun: all of its sums are in the memory.
    pub fn begin(&self, update: u64) {
        self.word(word::BEGUN).store(update, Ordering::Release);
        // Nothing changes before others can see that.
        fence(Ordering::SeqCst);
    }

    /// Returns true if a block has taken an update.
    pub fn is_done(&self, block: usize, update: u64) -> bool {
        self.word(word::BLOCKS + block).load(Ordering::Acquire) == update
    }

    /// Returns true if an update has left a value that is not finite.
    pub fn is_not_finite(&self, update: u64) -> bool {
        self.word(word::NOT_FINITE).load(Ordering::Acquire) == update
    }

    /// Declares that an update has left a value that is not finite.
    pub fn set_not_finite(&self, update: u64) {
        self.word(word::NOT_FINITE).store(update, Ordering::Release);
    }

    /// Copies the state of a block, and the sums of its gradients, to a worker's journal. Until the block is
    /// done, both can be restored from it.
    pub(crate) fn save(&self, slot: usize, block: usize, update: u64, sums: &[f32]) {
        let range = self.blocks[block].clone();
        for array in 0..self.places.arrays {
            // SAFETY: a worker writes its own journal only, and the state of a block that it owns.
            unsafe {
                let state = &*self.values(self.places.array(array), range.clone());
                (*self.in_journal(slot, array, range.len())).copy_from_slice(state);
            }
        }
        // SAFETY: as above; nobody writes this journal before the block is done.
        unsafe { (*self.in_journal(slot, self.places.arrays, range.len())).copy_from_slice(sums) };
        // An older update in the first word makes the journal void while the second one changes. So does a
        // block that is done.
        self.word(word::JOURNALS + 2 * slot + 1).store(block as u64, Ordering::Release);
        self.word(word::JOURNALS + 2 * slot).store(update, Ordering::Release);
        // The block changes only when the journal is whole.
        fence(Ordering::SeqCst);
    }

    /// Returns the sums in this worker's journal.
    pub(crate) fn saved_sums(&self, slot: usize, len: usize) -> &[f32] {
        // SAFETY: a worker writes its own journal, by `save`, when it is done with what it has read.
        unsafe { &*self.in_journal(slot, self.places.arrays, len) }
    }

    /// Declares that a block has taken an update.
    pub(crate) fn finish(&self, block: usize, update: u64) {
        self.word(word::BLOCKS + block).store(update, Ordering::Release);
    }

    /// Returns the journals of blocks that an update was changing when it was interrupted: each with its
    /// block.
    pub(crate) fn interrupted(&self, update: u64) -> Vec<(usize, usize)> {
        let of = |slot: usize| {
            let words = word::JOURNALS + 2 * slot;
            let is_of_update = self.word(words).load(Ordering::Acquire) == update;
            let block = self.word(words + 1).load(Ordering::Acquire) as usize;
            let is_open = is_of_update && block < self.blocks.len() && !self.is_done(block, update);
            is_open.then_some((slot, block))
        };
        (0..MOST_WORKERS).filter_map(of).collect()
    }

    /// Restores the state of a block from a journal, and returns the sums there. Nobody else uses the memory
    /// meanwhile.
    pub(crate) fn restore(&self, slot: usize, block: usize) -> &[f32] {
        let range = self.blocks[block].clone();
        for array in 0..self.places.arrays {
            // SAFETY: nobody else uses the memory.
            unsafe {
                let saved = &*self.in_journal(slot, array, range.len());
                (*self.values(self.places.array(array), range.clone())).copy_from_slice(saved);
            }
        }
        // SAFETY: as above.
        unsafe { &*self.in_journal(slot, self.places.arrays, range.len()) }
    }

    /// Voids a journal whose block is as it was before the update.
    pub(crate) fn void(&self, slot: usize) {
        self.word(word::JOURNALS + 2 * slot).store(0, Ordering::Release);
    }

    /// Returns the state of some elements, which this worker owns.
    ///
    /// # Safety
    ///
    /// Nobody else reads or writes it while the result lives.
    #[allow(clippy::mut_from_ref)] // The caller holds the place exclusively, not the memory.
    pub(crate) unsafe fn state(&self, array: usize, elements: Range<usize>) -> &mut [f32] {
        assert!(array < self.places.arrays, "array {array} of {}", self.places.arrays);
        // SAFETY: as the caller promises.
        unsafe { &mut *self.values(self.places.array(array), elements) }
    }

    /// Number of arrays of state.
    pub(crate) fn arrays(&self) -> usize {
        self.places.arrays
    }

    /// Number of elements of the model.
    pub(crate) fn len(&self) -> usize {
        self.places.len
    }

    pub(crate) fn word(&self, number: usize) -> &AtomicU64 {
        assert!(number < word::BLOCKS + self.places.blocks, "word {number}");
        // SAFETY: inside the mapping, which is aligned to a page; all access to words is atomic.
        unsafe { &*self.pages.start().cast::<AtomicU64>().as_ptr().add(number) }
    }

    /// Values in an array that begins at a byte of the control pages.
    fn values(&self, start: usize, elements: Range<usize>) -> *mut [f32] {
        let end = start + elements.end * size_of::<f32>();
        assert!(elements.start <= elements.end && end <= self.pages.len(), "{elements:?} from {start}");
        // SAFETY: inside the mapping, as just checked.
        let first = unsafe { self.pages.start().as_ptr().add(start).cast::<f32>().add(elements.start) };
        ptr::slice_from_raw_parts_mut(first, elements.len())
    }

    fn in_journal(&self, slot: usize, array: usize, len: usize) -> *mut [f32] {
        assert!(slot < MOST_WORKERS, "journal {slot}");
        self.values(self.places.journal(slot, array), 0..len)
    }
}

/// A process without the memory writes nothing there.
impl Drop for HostMemory {
    fn drop(&mut self) {
        self.leave();
    }
}
