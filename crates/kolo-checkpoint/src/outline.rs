//! Description of a checkpoint without its values: what its files hold, and in which order.

use std::ops::Range;
use std::sync::Arc;

use safetensors::tensor::Dtype;

use crate::error::Error;
use crate::manifest::TensorEntry;
use crate::position::Position;
use crate::set::Set;
use kolo_optim::{Element, Kind, Layout, Span};

/// Most values of a tensor that are read and written together, where its file has them as they lie in flat
/// memory.
const RUN: usize = MOST_AT_ONCE / size_of::<f32>();

/// Bytes of the longest run of values that a [`Source`](crate::Source) is asked for, but for a tensor that
/// lies in another order in memory: 4 MiB.
pub const MOST_AT_ONCE: usize = 4 << 20;

/// Place of a part: the run of flat memory, and the file.
#[derive(Clone, Debug)]
pub(crate) struct PartPlace {
    pub(crate) set: Set,
    pub(crate) file: String,
    pub(crate) prefix: String,
    /// Elements of flat memory.
    pub(crate) run: Range<usize>,
}

/// Checkpoint without its values, which come when they are written ([`Source`](crate::Source)).
#[derive(Clone, Debug)]
pub struct Outline {
    pub(crate) position: Position,
    pub(crate) layout: Arc<Layout>,
    pub(crate) parts: Vec<PartPlace>,
    /// Expected number of uses of each tensor in the next step, in the layout's order; empty if unknown.
    pub(crate) uses: Vec<u32>,
    /// Averages behind the noise scale, if the job measures it.
    pub(crate) noise_scale: Option<Vec<String>>,
    /// Other values that the replica resumes with, by name.
    pub(crate) entries: Vec<(&'static str, serde_json::Value)>,
    /// For each tensor, true if it was not finite when training began.
    given: Vec<bool>,
}

impl Outline {
    /// Creates the outline of a checkpoint with these arrays, each of which is a part: its set, and the
    /// prefix of its tensors' names. `given` is true for each tensor of the layout that was not finite when
    /// training began, such as an additive mask of −∞, or is empty.
    pub fn new(
        layout: Arc<Layout>,
        arrays: Vec<(Set, String)>,
        position: &Position,
        given: Vec<bool>,
    ) -> Self {
        let run = 0..layout.len();
        let place = |(set, prefix): (Set, String)| PartPlace {
            set,
            file: set.file().into(),
            prefix,
            run: run.clone(),
        };
        let parts = arrays.into_iter().map(place).collect();
        Self::unchecked(layout, parts, position, given)
    }

    /// Creates the outline of a checkpoint with these parts. Errors: a part reaches beyond the layout, or its
    /// file is not named after its set.
    pub(crate) fn of_parts(
        layout: Arc<Layout>,
        parts: Vec<PartPlace>,
        position: &Position,
        given: Vec<bool>,
    ) -> Result<Self, Error> {
        for PartPlace { set, file, run, .. } in &parts {
            if run.end > layout.len() {
                return Err(Error::PartTooLong { start: run.start, end: run.end, len: layout.len() });
            }
            if !set.is_in(file) || file.contains('/') {
                return Err(Error::PartFile { file: file.clone(), whole: set.file() });
            }
        }
        Ok(Self::unchecked(layout, parts, position, given))
    }

    fn unchecked(layout: Arc<Layout>, parts: Vec<PartPlace>, position: &Position, given: Vec<bool>) -> Self {
        let (position, uses, entries) = (position.clone(), Vec::new(), Vec::new());
        Outline { position, layout, parts, uses, noise_scale: None, entries, given }
    }

    /// Adds the expected number of uses of each tensor in the next step, in the layout's order. They
    /// determine which contributions come late, and so the order in which they are added.
    pub fn with_uses(self, uses: Vec<u32>) -> Self {
        Outline { uses, ..self }
    }

    /// Adds the averages behind the gradient's noise scale, if the job measures it.
    pub fn with_noise_scale(self, noise_scale: Option<Vec<String>>) -> Self {
        Outline { noise_scale, ..self }
    }

    /// Adds another value that the replica resumes with, such as its loss scale. It becomes an entry of
    /// `position.json`, which [`Reader::entry`](crate::Reader::entry) returns.
    pub fn with_entry(mut self, name: &'static str, value: serde_json::Value) -> Self {
        self.entries.push((name, value));
        self
    }

    /// Returns the files of tensors. Weights and optimizer state have a file even if it is empty.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut files: Vec<String> = self.parts.iter().map(|part| part.file.clone()).collect();
        for set in [Set::Weights, Set::Optimizer] {
            if !files.iter().any(|file| set.is_in(file)) {
                files.push(set.file().into());
            }
        }
        files.sort();
        files.dedup();
        files
    }

    /// Returns the tensors of a file.
    pub(crate) fn tensors(&self, file: &str) -> Vec<Piece<'_>> {
        let parts = (0..self.parts.len()).filter(|part| self.parts[*part].file == file);
        parts.flat_map(|part| self.pieces(part)).collect()
    }

    /// Returns the tensors of a part.
    pub(crate) fn pieces(&self, number: usize) -> impl Iterator<Item = Piece<'_>> {
        let part = &self.parts[number];
        let Range { start: first, end } = part.run;
        let is_in =
            move |(_, span): &(usize, &Span)| part.set == Set::Weights || span.spec.kind != Kind::Frozen;
        self.layout.spans().iter().enumerate().filter(is_in).filter_map(move |(tensor, span)| {
            let from = span.offset.max(first);
            let to = (span.offset + span.len).min(end);
            // A tensor without elements belongs to the part in which it begins.
            let empty =
                span.len == 0 && span.offset >= first && (span.offset < end || end == self.layout.len());
            if from >= to && !empty {
                return None;
            }
            let spec = &span.spec;
            let name = format!("{}{}", part.prefix, spec.name);
            let given = part.set == Set::Weights && self.given.get(tensor).is_some_and(|given| *given);
            let (dtype, shape) = (spec.element.dtype().into(), spec.shape.clone());
            if to - from == span.len {
                let (elements, order) = (0..span.len / spec.element.values(), Default::default());
                let entry = TensorEntry { name, dtype, shape, elements, order, given };
                let (shape, element) = (entry.shape.clone(), spec.element);
                return Some(Piece { part: number, place: from..to, shape, entry, span, element });
            }
            // A cut tensor is stored as it lies in flat memory.
            let (elements, order) = (from - span.offset..to - span.offset, spec.order.clone());
            let (dtype, shape) = (Element::F32.dtype().into(), spec.flat_shape());
            let entry = TensorEntry { name, dtype, shape, elements, order, given };
            let shape = vec![to - from];
            Some(Piece { part: number, place: from..to, shape, entry, span, element: Element::F32 })
        })
    }
}

/// Tensor, or a part of one, on its way into a file.
pub(crate) struct Piece<'a> {
    /// Number of its part.
    pub(crate) part: usize,
    /// Elements of flat memory.
    pub(crate) place: Range<usize>,
    pub(crate) entry: TensorEntry,
    span: &'a Span,
    /// Shape in the file.
    pub(crate) shape: Vec<usize>,
    element: Element,
}

impl Piece<'_> {
    pub(crate) fn dtype(&self) -> Dtype {
        dtype(self.element)
    }

    /// Returns the number of bytes in the file.
    pub(crate) fn data_len(&self) -> usize {
        self.place.len() / self.element.values() * self.element.bytes()
    }

    /// Returns the runs of flat memory whose bytes follow one another in the file. All elements are one run
    /// if the file has them in another order or another type.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let is_flat =
            self.element == Element::F32 && (!self.entry.is_whole() || self.span.spec.order.is_row_major());
        let Range { start, end } = self.place;
        let len = if is_flat { RUN } else { (end - start).max(1) };
        (start..end).step_by(len).map(move |start| start..end.min(start + len))
    }

    /// Returns the bytes of a run in the file.
    pub(crate) fn bytes(&self, values: &[f32]) -> Vec<u8> {
        match self.element {
            Element::F32 if self.entry.is_whole() && !self.span.spec.order.is_row_major() => {
                bytes(&self.span.to_row_major(values))
            }
            Element::F32 => bytes(values),
            other => other.to_bytes(values),
        }
    }
}

pub(crate) fn dtype(element: Element) -> Dtype {
    match element {
        Element::F32 => Dtype::F32,
        Element::I64 => Dtype::I64,
        Element::Bool => Dtype::BOOL,
    }
}

/// Returns the values in little-endian order, as safetensors requires.
pub(crate) fn bytes(values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; size_of_val(values)];
    bytes
        .chunks_exact_mut(4)
        .zip(values)
        .for_each(|(word, value)| word.copy_from_slice(&value.to_le_bytes()));
    bytes
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::manifest::Manifest;
    use crate::{Part, Reader, Snapshot, Source, Wanted, list};
    use kolo_optim::{MemoryOrder, ParamSpec};

    /// Longer than two runs.
    const LONG: usize = 2 * RUN + 5;

    /// A tensor of several runs, one in another memory order, and integers.
    fn layout() -> Arc<Layout> {
        let kind = Kind::Parameter { decay: true };
        let specs = vec![
            ParamSpec::new("long", vec![LONG], kind),
            ParamSpec {
                order: MemoryOrder::of_strides(&[30, 20], &[1, 30]),
                ..ParamSpec::new("permuted", vec![30, 20], kind)
            },
            ParamSpec { element: Element::I64, ..ParamSpec::new("count", vec![3], Kind::Frozen) },
            ParamSpec::new("none", vec![0], kind),
        ];
        Arc::new(Layout::new(specs))
    }

    fn value(part: usize, element: usize) -> f32 {
        // Integers are their digits.
        if element >= LONG + 600 { 0.0 } else { (part * 10 + element % 1000) as f32 / 4.0 }
    }

    /// Values that exist only when they are read; notes how many at once.
    struct Made {
        most: usize,
        left: usize,
    }

    impl Source for Made {
        fn read(&mut self, part: usize, place: Range<usize>) -> Result<Cow<'_, [f32]>, Error> {
            self.most = self.most.max(place.len());
            self.left = self.left.checked_sub(1).ok_or(Error::NoValues)?;
            Ok(Cow::Owned(place.map(|element| value(part, element)).collect()))
        }
    }

    fn outline(step: u64) -> Outline {
        let position = Position { step, epoch: 0, step_in_epoch: 0, notes: "a test".into() };
        let arrays = vec![(Set::Weights, String::new()), (Set::Optimizer, "m/".into())];
        Outline::new(layout(), arrays, &position, Vec::new())
    }

    #[test]
    fn values_that_come_when_they_are_written_make_the_same_files() {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let mut source = Made { most: 0, left: usize::MAX };
        let streamed = outline(1).write(folders[0].path(), &mut source).unwrap();
        assert_eq!(source.most, RUN);
        let values = |part| (0..layout().len()).map(|element| value(part, element)).collect::<Vec<_>>();
        let parts = vec![Part::weights(&values(0)), Part::whole(Set::Optimizer, "m/".into(), values(1))];
        let position = outline(1).position;
        let copied = Snapshot::new(layout(), parts, &position).unwrap().write(folders[1].path()).unwrap();
        assert_eq!(Manifest::read(&streamed).unwrap(), Manifest::read(&copied).unwrap());
        // Runs of the tensors, which readers get in pieces.
        let reader = Reader::open(&streamed).unwrap();
        let end = layout().len();
        let runs = [7..RUN + 3, LONG - 2..LONG + 50, LONG + 55..LONG + 56, LONG + 599..end];
        for (part, (set, prefix)) in [(Set::Weights, ""), (Set::Optimizer, "m/")].into_iter().enumerate() {
            let runs = || {
                runs.iter()
                    .map(|run| if part == 0 { run.clone() } else { run.start..run.end.min(LONG + 600) })
            };
            let wanted = [Wanted { prefix: prefix.into(), runs: runs().collect() }];
            let mut read = vec![f32::NAN; end];
            reader
                .read_runs(set, &layout(), &wanted, &mut |array, place, values| {
                    assert!(array == 0 && runs().any(|run| run.start <= place.start && place.end <= run.end));
                    assert!(read[place.clone()].iter().all(|value| value.is_nan()), "twice");
                    read[place].copy_from_slice(values);
                })
                .unwrap();
            for (element, found) in read.into_iter().enumerate() {
                match runs().any(|run| run.contains(&element)) {
                    true => assert_eq!(found, value(part, element), "{element}"),
                    false => assert!(found.is_nan(), "{element}"),
                }
            }
        }
    }

    #[test]
    fn a_source_that_fails_leaves_the_checkpoint_before_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        outline(1).write(folder.path(), &mut Made { most: 0, left: usize::MAX }).unwrap();
        for left in 0..8 {
            let error = outline(2).write(folder.path(), &mut Made { most: 0, left }).unwrap_err();
            assert!(matches!(error, Error::NoValues), "{error}");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
            assert_eq!(list(folder.path()).unwrap()[0].0, 1);
        }
    }
}
