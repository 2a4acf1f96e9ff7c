//! Values of a model in memory that all workers of a host share, in two versions: the current one, which
//! passes read, and the next one, which an update writes. When all blocks are written, all workers switch.
//!
//! Tensors of another library may show the current version where it lies ([`HostValues::lend`]). Another
//! worker writes that place two updates later. So before a worker lets the others write it, it ends its loans
//! there ([`HostValues::end_loans_of_next`]). If somebody has kept one, this process gets a private copy of
//! the pages at the same addresses, which the loan shows from then on, and maps the shared pages anew.

use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Weak};

use kolo_comm::Error;
use kolo_optim::{Layout, SpanId};
use kolo_transport::HostPages;

use crate::flat_memory::FlatMemory;
use crate::lendable::{LentPlace, Loan};

/// Function that maps the pages of a version, 0 or 1.
pub type MapVersion = Box<dyn Fn(usize) -> Result<HostPages, Error> + Send>;

/// Values in the memory of a host.
pub struct HostValues {
    layout: Arc<Layout>,
    map: MapVersion,
    versions: [Version; 2],
    /// Version that passes read.
    current: usize,
    /// For each tensor a loan in private pages, if somebody still has it. The tensor is not lent meanwhile,
    /// so at most one kept version of it takes memory.
    left: Vec<Weak<LentPlace>>,
}

struct Version {
    memory: Arc<FlatMemory>,
    /// Loan of each tensor.
    loans: Vec<Option<Loan>>,
}

kolo_comm::opaque_debug!(HostValues { current });

impl HostValues {
    /// Maps the values of the tensors of `layout`, of which version `current` is the current one.
    ///
    /// # Errors
    ///
    /// The pages cannot be mapped.
    pub fn new(layout: Arc<Layout>, current: usize, map: MapVersion) -> Result<Self, Error> {
        let tensors = layout.spans().len();
        let version = |number| -> Result<Version, Error> {
            let memory = Arc::new(FlatMemory::within(map(number)?, layout.len()));
            Ok(Version { memory, loans: vec![None; tensors] })
        };
        let versions = [version(0)?, version(1)?];
        let left = (0..tensors).map(|_| Weak::new()).collect();
        Ok(HostValues { layout, map, versions, current, left })
    }

    /// Lends the current values of a tensor, to be read where they lie. Returns `None` if they are to be
    /// copied: somebody still has an older version of them.
    pub fn lend(&mut self, id: SpanId) -> Option<Loan> {
        if self.left[id.0].strong_count() > 0 {
            return None;
        }
        let Version { memory, loans } = &mut self.versions[self.current];
        let loan = loans[id.0].get_or_insert_with(|| Loan::of(memory, self.layout.span(id).range()));
        Some(loan.clone())
    }

    /// Ends this process's loans of the version that the next update writes.
    ///
    /// # Errors
    ///
    /// Somebody has kept one, and there is no memory for a copy.
    pub fn end_loans_of_next(&mut self) -> Result<(), Error> {
        self.end_loans(1 - self.current)
    }

    /// Ends this process's loans of the version that passes read, before another one writes it between steps.
    ///
    /// # Errors
    ///
    /// Somebody has kept one, and there is no memory for a copy.
    pub fn end_loans_of_current(&mut self) -> Result<(), Error> {
        self.end_loans(self.current)
    }

    /// Makes the next version the current one, or the other way around.
    pub fn set_current(&mut self, current: usize) {
        self.current = current;
    }

    /// Returns a part of the next version.
    pub fn next(&self, range: Range<usize>) -> &[f32] {
        // SAFETY: parts of the next version are written by their owner, this process, through an exclusive
        // reference to `self`. Others read it when all have been written.
        unsafe { self.versions[1 - self.current].memory.read(range) }
    }

    /// Returns a part of the next version, which this process owns, to be changed.
    pub fn next_mut(&mut self, range: Range<usize>) -> &mut [f32] {
        // SAFETY: as above; no loan of this version lives since `end_loans_of_next`.
        unsafe { self.versions[1 - self.current].memory.write(range) }
    }

    /// Copies a part of the current version to the next one.
    pub fn copy_to_next(&mut self, range: Range<usize>) {
        let [first, second] = &self.versions;
        let (now, next) = if self.current == 0 { (first, second) } else { (second, first) };
        // SAFETY: the two versions are different memory. The first one is only read while an update runs;
        // of the second one this process owns the part, and no loan of it lives.
        unsafe { next.memory.write(range.clone()).copy_from_slice(now.memory.read(range)) };
    }

    fn end_loans(&mut self, version: usize) -> Result<(), Error> {
        let mut is_kept = false;
        for (loan, left) in self.versions[version].loans.iter_mut().zip(&mut self.left) {
            let Some(Loan(place)) = loan.take() else { continue };
            if let Err(kept) = Arc::try_unwrap(place) {
                *left = Arc::downgrade(&kept);
                is_kept = true;
            }
        }
        if is_kept {
            let pages = (self.map)(version)?;
            let failed = |cause: io::Error| Error::io("cannot copy values that a tensor still shows", cause);
            self.versions[version].memory.detach().map_err(failed)?;
            self.versions[version].memory = Arc::new(FlatMemory::within(pages, self.layout.len()));
        }
        Ok(())
    }
}

impl Deref for HostValues {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        // SAFETY: the current version changes between steps only, through an exclusive reference to `self`;
        // all workers then write the same bits.
        unsafe { self.versions[self.current].memory.read(0..self.layout.len()) }
    }
}

/// Ends all loans of the current version.
impl DerefMut for HostValues {
    fn deref_mut(&mut self) -> &mut [f32] {
        if let Err(error) = self.end_loans_of_current() {
            // As without memory for a vector.
            log::error!("{error}");
            std::alloc::handle_alloc_error(std::alloc::Layout::new::<f32>());
        }
        // SAFETY: no loan of this version lives, and `self` is borrowed for as long as the result.
        unsafe { self.versions[self.current].memory.write(0..self.layout.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kolo_optim::{Kind, ParamSpec};
    use kolo_transport::HostFile;

    const PAGES: usize = 8192;

    fn layout() -> Arc<Layout> {
        let spec = |len: usize| ParamSpec::new(len.to_string(), vec![len], Kind::Parameter { decay: true });
        Arc::new(Layout::new([3, 70, 1200].map(spec).to_vec()))
    }

    fn values(file: &Arc<HostFile>) -> HostValues {
        let file = file.clone();
        HostValues::new(layout(), 0, Box::new(move |version| file.map(version * PAGES, PAGES))).unwrap()
    }

    /// An update by `owner` that makes all values `value`, after which all switch.
    fn update(all: &mut [HostValues; 2], owner: usize, value: f32) {
        all.iter_mut().for_each(|values| values.end_loans_of_next().unwrap());
        let len = all[owner].len();
        all[owner].copy_to_next(0..len);
        assert_eq!(all[owner].next(0..len), &*all[owner]);
        all[owner].next_mut(0..len).fill(value);
        for values in all {
            values.set_current(1 - values.current);
        }
    }

    #[test]
    fn workers_see_the_version_that_one_of_them_has_written() {
        let file = Arc::new(HostFile::create(2 * PAGES).unwrap());
        let mut all = [values(&file), values(&file)];
        for step in 0..5 {
            update(&mut all, step % 2, step as f32);
            assert!(all.iter().all(|values| values.iter().all(|value| *value == step as f32)), "{step}");
            let loan = all[0].lend(SpanId(1)).unwrap();
            assert_eq!(
                (loan.values(), loan.values().as_ptr()),
                (&[step as f32; 70][..], &raw const all[0][3])
            );
        }
        all[1].fill(f32::NAN);
        assert!(all[0].iter().all(|value| value.is_nan()));
    }

    #[test]
    fn a_kept_loan_never_changes_and_its_tensor_is_not_lent_meanwhile() {
        let file = Arc::new(HostFile::create(2 * PAGES).unwrap());
        let mut all = [values(&file), values(&file)];
        update(&mut all, 0, 1.0);
        let (kept, other) = (all[1].lend(SpanId(2)).unwrap(), all[1].lend(SpanId(0)).unwrap());
        let place = kept.values().as_ptr();
        drop(other);
        (2..6).for_each(|step| update(&mut all, 0, step as f32));
        assert_eq!((kept.values(), kept.values().as_ptr()), (&[1.0; 1200][..], place));
        assert!(all[1].lend(SpanId(2)).is_none() && all[0].lend(SpanId(2)).is_some());
        assert_eq!(all[1].lend(SpanId(0)).unwrap().values(), [5.0; 3]);
        drop(all);
        assert_eq!(kept.values(), [1.0; 1200], "it outlives the values");
        let mut all = [values(&file), values(&file)];
        drop(kept);
        assert!(all[1].lend(SpanId(2)).is_some());
    }
}
