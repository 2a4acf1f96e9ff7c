//! Reads of what other processes of this host hold, from their memory: no message, and one copy.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use kolo_comm::{Error, Group, Rank};
use kolo_transport::{HostFile, HostPages};
use rustix::param::page_size;

use crate::region::{MemoryPlace, Region, word_after, word_of};

/// Values of other ranks that this rank can read.
#[derive(Default)]
pub(crate) struct Neighbors {
    /// For each rank its values, if this rank can read them.
    of: Vec<Option<Neighbor>>,
}

/// Values of another process, which may change at any time. Whoever reads them looks at the word behind them,
/// before and after.
struct Neighbor {
    file: HostFile,
    /// Page of the word.
    page: HostPages,
}

impl Neighbors {
    /// Opens the memory of all ranks of `near`, where ranks of a host share memory. A collective.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    pub(crate) fn meet(group: &Group, near: &[bool], own: Option<Arc<Region>>) -> Result<Self, Error> {
        if group.world_size() == 1 {
            return Ok(Neighbors::default());
        }
        // `KOLO_TRANSPORT=tcp` is for hosts that forbid shared memory, too. Of a rank alone on its host the
        // transport is the same, so all ranks meet.
        let own = own.filter(|_| group.transport() != "tcp");
        let place = own.as_ref().map(|region| region.place());
        let len = own.as_ref().map_or(0, |region| region.len());
        let places: Vec<Option<MemoryPlace>> = group.all_gather_value(&place)?;
        let open = |(rank, place): (usize, Option<MemoryPlace>)| {
            let is_near = own.is_some() && near[rank] && rank != group.rank().0;
            let opened = Neighbor::open(place.filter(|_| is_near)?, len);
            // Messages do the same.
            let note = |error| log::info!("{}: its values come by messages: {error}", Rank(rank));
            opened.map_err(note).ok()
        };
        Ok(Neighbors { of: places.into_iter().enumerate().map(open).collect() })
    }

    /// Returns true if this rank can read the values of another one.
    pub(crate) fn can_read(&self, rank: Rank) -> bool {
        self.of.get(rank.0).is_some_and(Option::is_some)
    }

    /// Appends elements of a rank's values to `to`. Returns `None` if the rank does not show this version, or
    /// shows it no more when they are read; then `to` is as before.
    pub(crate) fn append(
        &self,
        rank: Rank,
        version: u64,
        start: usize,
        len: usize,
        to: &mut Vec<f32>,
    ) -> Option<()> {
        let Neighbor { file, page } = self.of.get(rank.0)?.as_ref()?;
        // SAFETY: the mapping begins with the word, and all access to it is atomic.
        let word: &AtomicU64 = unsafe { page.start().cast().as_ref() };
        (word.load(Ordering::Acquire) == word_of(version)).then_some(())?;
        to.reserve(len);
        let place = &mut to.spare_capacity_mut()[..len];
        // SAFETY: bytes of the same memory; bytes may lie anywhere, and these need not be initialized.
        let bytes = unsafe {
            let bytes = place.as_mut_ptr().cast::<MaybeUninit<u8>>();
            std::slice::from_raw_parts_mut(bytes, size_of_val(place))
        };
        file.read(start * size_of::<f32>(), bytes).ok()?;
        // Bytes that were read before the word changed are those of the version.
        fence(Ordering::Acquire);
        (word.load(Ordering::Relaxed) == word_of(version)).then_some(())?;
        // SAFETY: `read` has filled all of them, and four bytes are a number.
        unsafe { to.set_len(to.len() + len) };
        Some(())
    }
}

impl Neighbor {
    /// Opens the file of a region of `len` numbers.
    fn open(place: MemoryPlace, len: usize) -> Result<Self, Error> {
        let word = word_after(len);
        let file = HostFile::open(place.pid, place.file, word + page_size())?;
        let page = file.map(word, page_size())?;
        Ok(Neighbor { file, page })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// A neighbor that steps while its values are read gives no mixture of two versions.
    #[test]
    fn values_that_change_while_they_are_read_are_not_taken() {
        const LEN: usize = 40_000;
        let mut region = Region::new(LEN).unwrap();
        let neighbor = Neighbor::open(region.place(), LEN).unwrap();
        let neighbors = Neighbors { of: vec![None, Some(neighbor)] };
        assert!(neighbors.can_read(Rank(1)) && !neighbors.can_read(Rank(0)) && !neighbors.can_read(Rank(2)));
        let read = |version, to: &mut Vec<f32>| neighbors.append(Rank(1), version, 1, LEN - 1, to);
        let mut values = vec![0.5];
        assert_eq!((read(0, &mut values), &values[..]), (None, &[0.5][..]), "nothing is shown yet");
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let until = Instant::now() + Duration::from_secs(60);
                for version in (0..200).cycle() {
                    assert!(Instant::now() < until, "the last version is not read");
                    values.truncate(1);
                    if read(version, &mut values).is_some() {
                        assert!(values[1..].iter().all(|value| *value == version as f32), "{version}");
                        if version == 199 {
                            break;
                        }
                    }
                }
            });
            for version in 0..200 {
                region.hide();
                region.fill(version as f32);
                region.show(version);
            }
            reader.join().unwrap();
        });
        drop(region);
        assert_eq!(read(199, &mut vec![]), None, "the owner has it no more");
    }
}
