//! Whether the values of a file of tensors are finite, while it is read block by block.

use std::collections::HashMap;

use serde::Deserialize;

use crate::manifest::FileEntry;
use kolo_optim::Element;

/// Bytes of a safetensors file that say how long its header is.
const LENGTH: usize = 8;

/// Looks at the tensors of `f32` in a safetensors file of a checkpoint; others are finite by their type.
pub(crate) struct Finite<'a> {
    file: &'a FileEntry,
    /// The bytes until the values begin, as far as they have come.
    head: Vec<u8>,
    /// Where each of those tensors lies behind them, by its place; none before the header has come, or if it
    /// makes no sense.
    tensors: Option<Vec<Place>>,
    /// Bytes of values that have been looked at.
    seen: usize,
}

struct Place {
    name: String,
    start: usize,
    end: usize,
    is_finite: bool,
}

/// What the header says of a tensor.
#[derive(Deserialize)]
struct Described {
    dtype: String,
    data_offsets: (usize, usize),
}

impl<'a> Finite<'a> {
    pub(crate) fn new(file: &'a FileEntry) -> Self {
        Finite { file, head: Vec::new(), tensors: None, seen: 0 }
    }

    /// Takes the next block of the file.
    pub(crate) fn take(&mut self, mut block: &[u8]) {
        // The header of a file is no longer than the file, of which the manifest says how long it is.
        while self.tensors.is_none() && !block.is_empty() {
            let missing = self.head_len().saturating_sub(self.head.len());
            let (head, rest) = block.split_at(missing.min(block.len()));
            self.head.extend_from_slice(head);
            block = rest;
            if self.head.len() >= LENGTH && self.head.len() == self.head_len() {
                self.tensors = Some(self.places());
            }
        }
        let (start, end) = (self.seen, self.seen + block.len());
        self.seen = end;
        let Some(places) = &mut self.tensors else { return };
        for place in places.iter_mut().filter(|place| place.start < end && place.end > start) {
            let own = place.start.max(start) - start..place.end.min(end) - start;
            place.is_finite &= are_finite(&block[own]);
        }
    }

    /// The tensors that are not finite, though they were when training began, in the order of the manifest.
    pub(crate) fn wrong(self) -> Vec<String> {
        let places = self.tensors.unwrap_or_default();
        let wrong: HashMap<&str, bool> =
            places.iter().map(|place| (place.name.as_str(), !place.is_finite)).collect();
        let is_wrong = |key: &String| wrong.get(key.as_str()) == Some(&true);
        let known = self.file.tensors.iter().filter(|tensor| !tensor.given);
        known.map(|tensor| tensor.key()).filter(is_wrong).collect()
    }

    /// Bytes until the values begin, as far as that is known.
    fn head_len(&self) -> usize {
        match self.head.first_chunk::<LENGTH>() {
            Some(length) => LENGTH.saturating_add(u64::from_le_bytes(*length) as usize),
            None => LENGTH,
        }
    }

    fn places(&self) -> Vec<Place> {
        let header: HashMap<String, serde_json::Value> =
            serde_json::from_slice(&self.head[LENGTH..]).unwrap_or_default();
        let place = |(name, described)| {
            let Described { dtype, data_offsets: (start, end) } = serde_json::from_value(described).ok()?;
            (dtype == Element::F32.dtype()).then_some(Place { name, start, end, is_finite: true })
        };
        header.into_iter().filter_map(place).collect()
    }
}

/// Whether words of `f32` are finite. Blocks are a multiple of words long, and safetensors aligns its values,
/// those of longer elements first.
fn are_finite(bytes: &[u8]) -> bool {
    let (words, _) = bytes.as_chunks::<4>();
    let magnitude = |word: &[u8; 4]| u32::from_le_bytes(*word) & 0x7fff_ffff;
    words.iter().fold(0, |largest, word| magnitude(word).max(largest)) < f32::INFINITY.to_bits()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kolo_optim::{Kind, Layout, ParamSpec};

    use crate::{Error, Part, Position, Reader, Set, Snapshot, newest, path, verify};

    /// Longer than a block that is read at a time, so that the last value is in another one.
    const LONG: usize = 300_000;

    fn layout() -> Arc<Layout> {
        let spec = |name: &str, len| ParamSpec::new(name, vec![len], Kind::Parameter { decay: true });
        Arc::new(Layout::new(vec![spec("first", 3), spec("long", LONG), spec("last", 2)]))
    }

    fn parts(wrong: &[(usize, f32)]) -> Vec<Part> {
        let mut values = vec![1.0; LONG + 5];
        let velocity = Part::state("velocity", &values);
        wrong.iter().for_each(|(at, value)| values[*at] = *value);
        vec![Part::weights(&values), velocity]
    }

    fn at(step: u64) -> Position {
        Position { step, epoch: 0, step_in_epoch: 0, notes: "a test".into() }
    }

    /// As a program has written it that looks at nothing.
    fn unseen(step: u64, wrong: &[(usize, f32)]) -> Snapshot {
        let mut snapshot = Snapshot::new(layout(), parts(&[]), &at(step)).unwrap();
        snapshot.parts = parts(wrong);
        snapshot
    }

    #[test]
    fn none_is_made_of_what_is_not_finite() {
        for (at_element, name) in [(0, "first"), (2, "first"), (3, "long"), (LONG + 4, "last")] {
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut parts = parts(&[(at_element, value)]);
                let error = Snapshot::new(layout(), parts.clone(), &at(7)).unwrap_err().to_string();
                assert!(error.contains("after 7 steps") && error.contains(&format!("`{name}`")), "{error}");
                parts.swap(0, 1);
                let kept = Part::state("velocity", &parts[1].values);
                let error = Snapshot::new(layout(), vec![kept], &at(7)).unwrap_err().to_string();
                assert!(error.contains(&format!("`velocity/{name}`")), "{error}");
            }
        }
    }

    #[test]
    fn one_that_is_not_finite_is_not_good_and_an_older_one_is_taken() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path();
        Snapshot::new(layout(), parts(&[]), &at(1)).unwrap().write(folder).unwrap();
        let wrongs: [(&[usize], &str); 3] = [
            (&[0], "`first` is not finite"),
            (&[LONG + 2], "`long` is not finite"),
            (&[2, LONG, LONG + 4], "`first`, `long`, `last` are not finite"),
        ];
        for (wrong, words) in wrongs {
            let wrong: Vec<_> = wrong.iter().map(|at| (*at, f32::NAN)).collect();
            unseen(2, &wrong).write(folder).unwrap();
            let error = verify(&path(folder, 2)).unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("weights.safetensors"), "{error}");
            assert!(error.contains("use an older checkpoint"), "{error}");
            let found = newest(folder).unwrap().unwrap();
            assert_eq!((found.step, found.passed_over.len()), (1, 1));
            let reader = Reader::open(&path(folder, 2)).unwrap();
            let mut values = vec![0.0; LONG + 5];
            let read = reader.read(Set::Weights, "", &layout(), 0, &mut values);
            assert!(matches!(read, Err(Error::NotFinite { .. })));
        }
    }

    /// Such as a mask of −∞ that is added.
    #[test]
    fn what_was_not_finite_from_the_start_may_be_so() {
        let place = tempfile::tempdir().unwrap();
        let given = vec![false, false, true];
        let wrong = parts(&[(LONG + 3, f32::NEG_INFINITY)]);
        let snapshot = Snapshot::of_model(layout(), wrong, &at(3), given.clone()).unwrap();
        let written = snapshot.write(place.path()).unwrap();
        verify(&written).unwrap();
        let mut values = vec![0.0; LONG + 5];
        Reader::open(&written).unwrap().read(Set::Weights, "", &layout(), 0, &mut values).unwrap();
        assert_eq!(values[LONG + 3..], [f32::NEG_INFINITY, 1.0]);
        let wrong = parts(&[(0, f32::NAN)]);
        assert!(Snapshot::of_model(layout(), wrong, &at(3), given).is_err());
    }
}
