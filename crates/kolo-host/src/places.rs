//! Places of everything in the file.

use std::ops::Range;

use kolo_comm::Error;

/// Most workers of a host.
pub const MOST_WORKERS: usize = 256;

/// Size of a page: regions begin at one.
const PAGE: usize = 4096;

/// Number of a word of 8 bytes at the beginning of the file.
pub(crate) mod word {
    use super::MOST_WORKERS;

    /// Fingerprint of the places.
    pub(crate) const KIND: usize = 0;
    /// Number of the last update that has begun.
    pub(crate) const BEGUN: usize = 1;
    /// Number of the last update that has left a value that is not finite.
    pub(crate) const NOT_FINITE: usize = 2;
    /// Two words for each worker: its process, and the time at which that began.
    pub(crate) const MEMBERS: usize = 3;
    /// Two words for each journal: the update, and the block.
    pub(crate) const JOURNALS: usize = MEMBERS + 2 * MOST_WORKERS;
    /// A word for each block: the last update that it has taken.
    pub(crate) const BLOCKS: usize = JOURNALS + 2 * MOST_WORKERS;
}

/// Places in the file, in bytes. A page takes memory when it is first written, so journals of workers that do
/// not exist take none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// Number of elements of the model.
    pub(crate) len: usize,
    /// Number of arrays of state.
    pub(crate) arrays: usize,
    /// Elements of the longest block.
    pub(crate) longest: usize,
    /// Number of blocks.
    pub(crate) blocks: usize,
    /// Bytes of a journal.
    journal: usize,
    /// First byte of the journals, of the state and of the two versions of the values, and the end.
    starts: [usize; 5],
}

impl Places {
    pub(crate) fn new(blocks: &[Range<usize>], arrays: usize) -> Self {
        let len = blocks.last().map_or(0, |block| block.end);
        let longest = blocks.iter().map(Range::len).max().unwrap_or(0);
        let bytes = |values: usize| (values * size_of::<f32>()).next_multiple_of(PAGE);
        let journal = bytes((arrays + 1) * longest);
        let words = ((word::BLOCKS + blocks.len()) * size_of::<u64>()).next_multiple_of(PAGE);
        let lens = [words, journal * MOST_WORKERS, bytes(arrays * len), bytes(len).max(PAGE)];
        let mut end = 0;
        let [a, b, c, d] = lens.map(|len| {
            end += len;
            end
        });
        Places { len, arrays, longest, blocks: blocks.len(), journal, starts: [a, b, c, d, end + lens[3]] }
    }

    /// Number of bytes of the file.
    pub(crate) fn total(&self) -> usize {
        self.starts[4]
    }

    /// Bytes of everything before the values.
    pub(crate) fn control(&self) -> Range<usize> {
        0..self.starts[2]
    }

    /// Bytes of a version of the values.
    pub(crate) fn version(&self, number: usize) -> Range<usize> {
        self.starts[2 + number]..self.starts[3 + number]
    }

    /// First byte of an array of the state.
    pub(crate) fn array(&self, array: usize) -> usize {
        self.starts[1] + array * self.len * size_of::<f32>()
    }

    /// First byte of an array in a worker's journal; the sums are behind the last one.
    pub(crate) fn journal(&self, slot: usize, array: usize) -> usize {
        self.starts[0] + slot * self.journal + array * self.longest * size_of::<f32>()
    }

    /// Error of a process that the operating system gives no room for the file: says what needs its bytes.
    pub(crate) fn no_room(&self, cause: &Error) -> Error {
        let [_, journals, state, values] = self.lens();
        let what = format!(
            "one copy of the state for all workers of this host needs {} bytes of shared memory ({} for two versions of the values, \
             {state} for the optimizer's state, {journals} for the journals of up to {MOST_WORKERS} workers)",
            self.total(),
            2 * values
        );
        Error::system(what, format!("{cause}; allow more, or take sharding `optimizer`"))
    }

    /// Bytes of the words, of the journals, of the state and of a version of the values.
    fn lens(&self) -> [usize; 4] {
        let [journals, state, first, second, _] = self.starts;
        [journals, state - journals, first - state, second - first]
    }

    /// Fingerprint, by which a worker knows that it has the same places.
    pub(crate) fn kind(&self) -> u64 {
        let words = [self.len, self.arrays, self.longest, self.blocks].map(|word| word as u64);
        words.into_iter().fold(1, |kind: u64, word| (kind ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_room_is_named_with_its_bytes() {
        let places = Places::new(&[0..16_384, 16_384..20_000], 2);
        let cause = Error::system("cannot allocate it", "no memory");
        let words = places.no_room(&cause).to_string();
        let journals = 256 * 3 * 4 * 16_384;
        for part in
            ["163840 for two versions", "163840 for the optimizer", &format!("{journals} for the jour")]
        {
            assert!(words.contains(part), "{words}");
        }
        let total = 12_288 + 2 * 163_840 + journals;
        assert!(words.contains(&format!("needs {total} bytes")), "{words}");
        assert!(words.ends_with("cannot allocate it: no memory; allow more, or take sharding `optimizer`"));
    }

    #[test]
    fn regions_follow_one_another_from_page_to_page() {
        for (blocks, arrays) in [(vec![0..16_384, 16_384..16_389], 2), (vec![0..2, 2..7], 0), (Vec::new(), 1)]
        {
            let places = Places::new(&blocks, arrays);
            let (len, longest) = (places.len, places.longest);
            assert!((word::BLOCKS + blocks.len()) * 8 <= places.journal(0, 0));
            let end = places.journal(MOST_WORKERS - 1, arrays) + 4 * longest;
            assert!(end <= places.array(0) && places.array(arrays) <= places.control().end);
            assert!(places.journal(3, arrays) + 4 * longest <= places.journal(4, 0));
            assert_eq!(places.control().end, places.version(0).start);
            assert_eq!(places.version(0).end, places.version(1).start);
            assert_eq!(places.version(1).end, places.total());
            for version in [0, 1] {
                assert!(places.version(version).len() >= (4 * len).max(1));
                assert_eq!(places.version(version).start % PAGE, 0);
            }
        }
        let kinds =
            [Places::new(&[0..2, 2..7], 1), Places::new(&[0..2, 2..7], 2), Places::new(&[0..3, 3..7], 1)];
        assert!(kinds[0].kind() != kinds[1].kind() && kinds[0].kind() != kinds[2].kind());
    }
}
