//! Test for finite values in a file of tensors, block by block.

use std::collections::HashMap;

use crate::header::{Header, LENGTH, Stored};
use crate::manifest::FileEntry;
use kolo_optim::Element;
use kolo_optim::finite::are_finite;

/// Test of the `f32` tensors in a checkpoint's safetensors file; other types have only finite values.
pub(crate) struct Finite<'a> {
    file: &'a FileEntry,
    /// Bytes before the values, as far as they are read.
    head: Vec<u8>,
    /// Range of each `f32` tensor behind the header. `None` before the header is complete; empty if the
    /// header is invalid.
    tensors: Option<Vec<Place>>,
    /// Number of bytes of values tested so far.
    seen: usize,
}

struct Place {
    name: String,
    start: usize,
    end: usize,
    /// First bytes of a value that continues in the next block.
    cut: Vec<u8>,
    is_finite: bool,
}

impl<'a> Finite<'a> {
    pub(crate) fn new(file: &'a FileEntry) -> Self {
        Finite { file, head: Vec::new(), tensors: None, seen: 0 }
    }

    /// Tests the next block of the file.
    pub(crate) fn take(&mut self, mut block: &[u8]) {
        // The header cannot outgrow memory: it is part of the file, and the manifest limits the file's
        // length.
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
            let mut bytes = std::mem::take(&mut place.cut);
            bytes.extend_from_slice(&block[own]);
            place.is_finite &= are_finite(&Element::F32.from_bytes(&bytes));
            place.cut = bytes.split_off(bytes.len() - bytes.len() % Element::F32.bytes());
        }
    }

    /// Returns the tensors that are not finite but were when training began, in the manifest's order.
    pub(crate) fn not_finite(self) -> Vec<String> {
        let places = self.tensors.unwrap_or_default();
        let wrong: HashMap<&str, bool> =
            places.iter().map(|place| (place.name.as_str(), !place.is_finite)).collect();
        let is_wrong = |key: &String| wrong.get(key.as_str()) == Some(&true);
        let known = self.file.tensors.iter().filter(|tensor| !tensor.given);
        known.map(|tensor| tensor.key()).filter(is_wrong).collect()
    }

    /// Returns the number of bytes before the values, as far as it is known.
    fn head_len(&self) -> usize {
        match self.head.first_chunk::<LENGTH>() {
            Some(length) => LENGTH.saturating_add(u64::from_le_bytes(*length) as usize),
            None => LENGTH,
        }
    }

    fn places(&self) -> Vec<Place> {
        let Ok(header) = Header::parse(&self.head, self.file.bytes) else { return Vec::new() };
        let floats = header.tensors.into_iter().filter(|(_, stored)| stored.dtype == Element::F32.dtype());
        let place = |(name, Stored { data_offsets: (start, end), .. })| Place {
            name,
            start,
            end,
            cut: Vec::new(),
            is_finite: true,
        };
        floats.map(place).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kolo_optim::{Kind, Layout, MemoryOrder, ParamSpec};

    use super::*;
    use crate::manifest::TensorEntry;
    use crate::{Error, Part, Position, Reader, Set, Snapshot, newest, path, verify};

    /// Longer than one block, so that the last value is in another block.
    const LONG: usize = 300_000;

    fn layout() -> Arc<Layout> {
        let spec = |name: &str, len| ParamSpec::new(name, vec![len], Kind::Parameter { decay: true });
        Arc::new(Layout::new(vec![spec("first", 3), spec("long", LONG), spec("last", 2)]))
    }

    fn parts(wrong: &[(usize, f32)]) -> Vec<Part> {
        let mut values = vec![1.0; LONG + 5];
        let velocity = Part::whole(Set::Optimizer, "velocity/".into(), values.clone());
        wrong.iter().for_each(|(at, value)| values[*at] = *value);
        vec![Part::weights(&values), velocity]
    }

    fn at(step: u64) -> Position {
        Position { step, epoch: 0, step_in_epoch: 0, notes: "a test".into() }
    }

    /// Creates a snapshot that skips the test for finite values.
    fn untested(step: u64, wrong: &[(usize, f32)]) -> Snapshot {
        let mut snapshot = Snapshot::new(layout(), parts(&[]), &at(step)).unwrap();
        snapshot.values = parts(wrong).into_iter().map(|part| part.values).collect();
        snapshot
    }

    #[test]
    fn values_that_are_not_finite_make_no_checkpoint() {
        for (at_element, name) in [(0, "first"), (2, "first"), (3, "long"), (LONG + 4, "last")] {
            for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut parts = parts(&[(at_element, value)]);
                let error = Snapshot::new(layout(), parts.clone(), &at(7)).unwrap_err().to_string();
                assert!(error.contains("after 7 steps") && error.contains(&format!("`{name}`")), "{error}");
                parts.swap(0, 1);
                let kept = Part::whole(Set::Optimizer, "velocity/".into(), parts[1].values.clone());
                let error = Snapshot::new(layout(), vec![kept], &at(7)).unwrap_err().to_string();
                assert!(error.contains(&format!("`velocity/{name}`")), "{error}");
            }
        }
    }

    #[test]
    fn a_checkpoint_that_is_not_finite_is_passed_over() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path();
        Snapshot::new(layout(), parts(&[]), &at(1)).unwrap().write(folder).unwrap();
        let wrongs: [(&[usize], &str); 3] = [
            (&[0], "`first` is not finite"),
            (&[LONG + 2], "`long` is not finite"),
            (&[2, LONG, LONG + 4], "`first`, `long`, `last` are not finite"),
        ];
        for (wrong, message) in wrongs {
            let wrong: Vec<_> = wrong.iter().map(|at| (*at, f32::NAN)).collect();
            untested(2, &wrong).write(folder).unwrap();
            let error = verify(&path(folder, 2)).unwrap_err().to_string();
            assert!(error.contains(message) && error.contains("weights.safetensors"), "{error}");
            assert!(error.contains("use an older checkpoint"), "{error}");
            let found = newest(folder).unwrap().unwrap();
            assert_eq!((found.step, found.passed_over.len()), (1, 1));
            let reader = Reader::open(&path(folder, 2)).unwrap();
            let mut values = vec![0.0; LONG + 5];
            let read = reader.read(Set::Weights, "", &layout(), 0, &mut values);
            assert!(matches!(read, Err(Error::NotFinite { .. })));
        }
    }

    /// Such as an additive mask of −∞.
    #[test]
    fn tensors_not_finite_from_the_start_are_accepted() {
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

    /// Other programs write headers of any length.
    #[test]
    fn values_are_tested_wherever_the_header_and_the_blocks_end() {
        let entry = |name: &str| TensorEntry {
            name: name.into(),
            dtype: "F32".into(),
            shape: vec![3],
            elements: 0..3,
            order: MemoryOrder::row_major(),
            given: false,
        };
        let tensors = vec![entry("a"), entry("b")];
        let file = FileEntry { name: String::new(), bytes: 0, sha256: String::new(), tensors };
        let header = r#"{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},
            "b":{"dtype":"F32","shape":[3],"data_offsets":[12,24]}}"#;
        for (spaces, wrong, block) in
            (0..4).flat_map(|s| (0..6).flat_map(move |w| (1..20).map(move |b| (s, w, b))))
        {
            let header = header.to_owned() + &" ".repeat(spaces);
            let values: Vec<f32> = (0..6).map(|at| if at == wrong { f32::NAN } else { 1.0 }).collect();
            let length = (header.len() as u64).to_le_bytes();
            let bytes = [&length, header.as_bytes(), &Element::F32.to_bytes(&values)].concat();
            let mut finite = Finite::new(&file);
            bytes.chunks(block).for_each(|block| finite.take(block));
            assert_eq!(finite.not_finite(), [if wrong < 3 { "a" } else { "b" }]);
        }
    }
}
