//! Reading of checkpoints: any range of flat memory, from any number of files, each verified before use.

use std::collections::{HashMap, HashSet};
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use safetensors::SafeTensors;
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::hex;
use crate::manifest::{FileEntry, MANIFEST, Manifest, TensorEntry};
use crate::position::{NOISE_SCALE, POSITION, Position, USES};
use crate::snapshot::{Set, dtype};
use kolo_optim::finite::are_finite;
use kolo_optim::{Element, Kind, Layout, Span};

const ANOTHER: &str = "this checkpoint belongs to another model or optimizer";

/// Number of bytes hashed at a time.
const BLOCK: usize = 1 << 20;

/// Checkpoint with a valid manifest.
#[derive(Clone, Debug)]
pub struct Reader {
    folder: PathBuf,
    manifest: Manifest,
    /// Contents of `position.json`, read on first use.
    position: OnceLock<serde_json::Value>,
}

/// Tensor, or a part of one, in a file.
struct Held<'a> {
    entry: &'a TensorEntry,
    span: &'a Span,
    /// Range of its elements in flat memory.
    place: Range<usize>,
    /// Index of its target in [`Reader::read_all`].
    kind: usize,
}

struct Wanted<'a> {
    /// Tensors by name.
    spans: HashMap<&'a str, &'a Span>,
    /// Index of the target and its range of flat memory, by the prefix of the tensors' names.
    kinds: HashMap<String, (usize, Range<usize>)>,
}

impl<'a> Wanted<'a> {
    /// Returns the tensor and the target for a name in a file. Prefixes are empty or end with a slash; names
    /// may contain slashes, too.
    fn find(&self, name: &str) -> Option<(&'a Span, &(usize, Range<usize>))> {
        let ends = [0].into_iter().chain(name.match_indices('/').map(|(slash, _)| slash + 1));
        ends.into_iter().find_map(|end| {
            let (prefix, rest) = name.split_at(end);
            Some((*self.spans.get(rest)?, self.kinds.get(prefix)?))
        })
    }
}

impl Reader {
    /// Reads and verifies the manifest.
    ///
    /// # Errors
    ///
    /// Returns an error with the file's name if the manifest is missing, damaged, or of a newer format.
    pub fn open(checkpoint: &Path) -> Result<Self, Error> {
        let (folder, manifest) = (checkpoint.to_path_buf(), Manifest::read(checkpoint)?);
        Ok(Reader { folder, manifest, position: OnceLock::new() })
    }

    /// Returns the contents of the checkpoint.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns names, shapes and types of a set's tensors, each once, in the order of the manifest. A tensor
    /// of integers that was cut appears as its values in flat memory.
    pub fn tensors(&self, set: Set) -> Vec<(&str, &[usize], Element)> {
        let files = self.manifest.files.iter().filter(|file| set.is_in(&file.name));
        let mut known = HashSet::new();
        let tensors = files.flat_map(|file| &file.tensors).filter(|tensor| known.insert(&tensor.name));
        let element = |tensor: &TensorEntry| Element::of_dtype(&tensor.dtype).unwrap_or_default();
        tensors.map(|tensor| (tensor.name.as_str(), tensor.shape.as_slice(), element(tensor))).collect()
    }

    /// Returns the position of the run.
    ///
    /// # Errors
    ///
    /// Returns an error if `position.json` is damaged or missing.
    pub fn position(&self) -> Result<Position, Error> {
        let position = self.position_json()?.clone();
        serde_json::from_value(position).map_err(|e| Error::file(self.folder.join(POSITION), e))
    }

    /// Returns how often the next step is expected to use each tensor, if the checkpoint has it.
    ///
    /// # Errors
    ///
    /// Same as [`Reader::entry`].
    pub fn uses(&self) -> Result<Option<Vec<u32>>, Error> {
        self.entry(USES)
    }

    /// Returns the averages behind the gradient's noise scale, if the checkpoint has them.
    ///
    /// # Errors
    ///
    /// Same as [`Reader::entry`].
    pub fn noise_scale(&self) -> Result<Option<Vec<String>>, Error> {
        self.entry(NOISE_SCALE)
    }

    /// Returns the entry that the replica saved under this name ([`Snapshot::with_entry`](crate::Snapshot)),
    /// if the checkpoint has it.
    ///
    /// # Errors
    ///
    /// Returns an error if `position.json` is damaged or missing, or if the entry is not a `T`.
    pub fn entry<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Error> {
        let fail = |e| Error::file(self.folder.join(POSITION), format!("`{name}`: {e}"));
        serde_json::from_value(self.position_json()?[name].clone()).map_err(fail)
    }

    fn position_json(&self) -> Result<&serde_json::Value, Error> {
        if let Some(position) = self.position.get() {
            return Ok(position);
        }
        let path = self.folder.join(POSITION);
        let entry = self.manifest.files.iter().find(|entry| entry.name == POSITION);
        let entry = entry.ok_or_else(|| Error::file(self.folder.join(MANIFEST), "lists no position.json"))?;
        let position = serde_json::from_slice(&self.file(entry)?).map_err(|e| Error::file(&path, e))?;
        Ok(self.position.get_or_init(|| position))
    }

    /// Reads a set of tensors into `values`, which are the elements of flat memory from `start` on. Opens
    /// only files that hold some of them.
    ///
    /// # Errors
    ///
    /// Returns an error with the file that is damaged or missing, or the first tensor that does not fit or is
    /// not finite.
    pub fn read(
        &self,
        set: Set,
        prefix: &str,
        layout: &Layout,
        start: usize,
        values: &mut [f32],
    ) -> Result<(), Error> {
        self.read_all(set, layout, start, vec![(prefix.into(), values)])
    }

    /// Reads several kinds of tensors of a set, such as all states of an optimizer or the residuals of all
    /// shards. Each prefix has its own values, filled as by [`Reader::read`]. Each file is read once.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Reader::read`].
    pub fn read_all(
        &self,
        set: Set,
        layout: &Layout,
        start: usize,
        mut targets: Vec<(String, &mut [f32])>,
    ) -> Result<(), Error> {
        let spans = layout.spans().iter().map(|span| (span.spec.name.as_str(), span)).collect();
        let kinds = targets.iter().enumerate();
        let kinds =
            kinds.map(|(kind, (prefix, values))| (prefix.clone(), (kind, start..start + values.len())));
        let wanted = Wanted { spans, kinds: kinds.collect() };
        let mut filled: Vec<Vec<Range<usize>>> = vec![Vec::new(); targets.len()];
        for file in self.manifest.files.iter().filter(|file| set.is_in(&file.name)) {
            let held = self.held(file, &wanted)?;
            if held.is_empty() {
                continue;
            }
            let fail = |problem: String| Error::file(self.folder.join(&file.name), problem);
            let data = self.file(file)?;
            let tensors =
                SafeTensors::deserialize(&data).map_err(|e| fail(format!("is no safetensors file: {e}")))?;
            for held in held {
                let values = &mut *targets[held.kind].1;
                let wanted = start..start + values.len();
                let common = held.place.start.max(wanted.start)..held.place.end.min(wanted.end);
                let target = &mut values[common.start - start..common.end - start];
                take(&tensors, &held, common.start - held.place.start, target).map_err(fail)?;
                if !held.entry.given && !are_finite(target) {
                    let (path, tensors) = (self.folder.join(&file.name), vec![held.entry.key()]);
                    return Err(Error::NotFinite { path, tensors });
                }
                filled[held.kind].push(common);
            }
        }
        targets.iter().zip(filled).try_for_each(|((prefix, values), mut filled)| {
            let wanted = start..start + values.len();
            if set != Set::Weights {
                filled.extend(frozen(layout, &wanted));
            }
            self.covers(set, prefix, layout, wanted, filled)
        })
    }

    /// Returns the requested tensors in a file, with their ranges of flat memory.
    fn held<'a>(&self, file: &'a FileEntry, wanted: &Wanted<'a>) -> Result<Vec<Held<'a>>, Error> {
        let mut all = Vec::new();
        for entry in &file.tensors {
            let Some((span, (kind, range))) = wanted.find(&entry.name) else { continue };
            if !Set::Weights.is_in(&file.name) && span.spec.kind == Kind::Frozen {
                continue;
            }
            self.fits(file, entry, span)?;
            let place = match entry.is_whole() {
                true => span.range(),
                false => span.offset + entry.elements.start..span.offset + entry.elements.end,
            };
            if place.start.max(range.start) < place.end.min(range.end) {
                all.push(Held { entry, span, place, kind: *kind });
            }
        }
        Ok(all)
    }

    /// Checks that the weights have no tensors that this model lacks.
    ///
    /// # Errors
    ///
    /// Returns an error with the first such tensor.
    pub fn expect_no_others(&self, layout: &Layout) -> Result<(), Error> {
        let known: HashSet<&str> = layout.spans().iter().map(|span| span.spec.name.as_str()).collect();
        let files = self.manifest.files.iter().filter(|file| Set::Weights.is_in(&file.name));
        let mut tensors = files.flat_map(|file| file.tensors.iter().map(move |tensor| (file, tensor)));
        match tensors.find(|(_, tensor)| !known.contains(tensor.name.as_str())) {
            Some((file, TensorEntry { name, .. })) => {
                let problem = format!("holds `{name}`, which the model does not have; {ANOTHER}");
                Err(Error::file(self.folder.join(&file.name), problem))
            }
            None => Ok(()),
        }
    }

    /// Checks that the reduction's state covers exactly `shards` shards; 0 for a reduction without state.
    pub fn expect_residuals_of(&self, shards: usize) -> Result<(), Error> {
        let files = self.manifest.files.iter().filter(|file| Set::Residuals.is_in(&file.name));
        let shard_of = |tensor: &TensorEntry| -> Option<usize> {
            tensor.name.split('/').next()?.strip_prefix("shard")?.parse().ok()
        };
        let found: HashSet<usize> = files.flat_map(|file| file.tensors.iter().filter_map(shard_of)).collect();
        let missing = (0..shards).find(|shard| !found.contains(shard));
        let problem = match (found.len(), shards) {
            (found, shards) if found == shards => match missing {
                None => return Ok(()),
                Some(shard) => format!("has no residuals of shard {shard}; use another checkpoint"),
            },
            (0, _) => "is missing: the run that wrote this checkpoint had a reduction that keeps none; continue with that one".into(),
            (_, 0) => "holds what this run's reduction has no use for; continue with the one that wrote it".into(),
            (found, shards) => {
                format!("holds residuals of {found} shards where this job has {shards}; continue with {found} shards")
            }
        };
        Err(Error::file(self.folder.join(Set::Residuals.file()), problem))
    }

    /// Returns the verified contents of a file.
    fn file(&self, entry: &FileEntry) -> Result<Vec<u8>, Error> {
        let mut data = Vec::new();
        scan(&self.folder, entry, |block| data.extend_from_slice(block))?;
        Ok(data)
    }

    fn fits(&self, file: &FileEntry, entry: &TensorEntry, span: &Span) -> Result<(), Error> {
        let element = span.spec.element;
        let is_itself = entry.shape == span.spec.shape && entry.dtype == element.dtype() && entry.is_whole();
        let is_cut = !entry.is_whole() && entry.shape == span.spec.flat_shape() && entry.dtype == "F32";
        if is_itself || is_cut {
            if is_itself || entry.order == span.spec.order {
                return Ok(());
            }
            let key = entry.key();
            let problem = format!(
                "holds `{key}` in another memory order than the model's; \
                 continue with the model that wrote it"
            );
            return Err(Error::file(self.folder.join(&file.name), problem));
        }
        let (name, dtype, found, needed) = (&entry.name, &entry.dtype, &entry.shape, &span.spec.shape);
        let element = element.dtype();
        let problem =
            format!("holds `{name}` as {dtype} {found:?} where {element} {needed:?} is needed; {ANOTHER}");
        Err(Error::file(self.folder.join(&file.name), problem))
    }

    /// Checks that each requested element came exactly once.
    fn covers(
        &self,
        set: Set,
        prefix: &str,
        layout: &Layout,
        wanted: Range<usize>,
        mut filled: Vec<Range<usize>>,
    ) -> Result<(), Error> {
        filled.sort_by_key(|range| range.start);
        let mut next = wanted.start;
        let mut wrong = "has no";
        for range in &filled {
            if range.start > next {
                break;
            }
            if range.start < next {
                (next, wrong) = (range.start, "holds twice the");
                break;
            }
            next = range.end;
        }
        if next == wanted.end && wrong == "has no" {
            return Ok(());
        }
        let span = layout.spans().iter().find(|span| span.range().contains(&next));
        let name = span.map_or("?", |span| &span.spec.name);
        let whole = span.is_some_and(|span| !filled.iter().any(|range| span.range().contains(&range.start)));
        let what = if whole { "tensor" } else { "elements of" };
        // Name the one file that should have it, or the manifest that lists several.
        let mut files = self.manifest.files.iter().filter(|file| set.is_in(&file.name));
        let file = match (files.next(), files.next()) {
            (Some(file), None) => file.name.as_str(),
            _ => MANIFEST,
        };
        Err(Error::file(self.folder.join(file), format!("{wrong} {what} `{prefix}{name}`; {ANOTHER}")))
    }
}

/// Copies elements of a stored tensor to `target`, beginning with element `from` of the file's part.
fn take(tensors: &SafeTensors<'_>, held: &Held<'_>, from: usize, target: &mut [f32]) -> Result<(), String> {
    let Held { entry, span, .. } = held;
    let data = stored_bytes(tensors, entry)?;
    let element = span.spec.element;
    let number = |word: &[u8]| f32::from_le_bytes([word[0], word[1], word[2], word[3]]);
    if element != Element::F32 && entry.dtype == element.dtype() {
        target.copy_from_slice(&element.from_bytes(data)[from..][..target.len()]);
    } else if entry.is_whole() && !span.spec.order.is_row_major() {
        let places = span.spec.order.row_major_indices(&entry.shape).skip(from);
        target.iter_mut().zip(places).for_each(|(value, at)| *value = number(&data[4 * at..]));
    } else {
        let words = data.chunks_exact(4).skip(from);
        target.iter_mut().zip(words).for_each(|(value, word)| *value = number(word));
    }
    Ok(())
}

/// Returns the ranges that files of state lack, because frozen tensors have no state.
fn frozen(layout: &Layout, wanted: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let frozen = layout.spans().iter().filter(|span| span.spec.kind == Kind::Frozen);
    let common = |span: &Span| span.range().start.max(wanted.start)..span.range().end.min(wanted.end);
    frozen.map(common).filter(|range| !range.is_empty())
}

pub(crate) fn stored_bytes<'a>(tensors: &SafeTensors<'a>, entry: &TensorEntry) -> Result<&'a [u8], String> {
    let key = entry.key();
    let tensor =
        tensors.tensor(&key).map_err(|_| format!("has no tensor `{key}`, which is in the manifest"))?;
    let element = Element::of_dtype(&entry.dtype).filter(|element| dtype(*element) == tensor.dtype());
    if element.is_none_or(|element| tensor.data().len() != element.bytes() * entry.elements.len()) {
        return Err(format!("holds another `{key}` than the manifest says"));
    }
    Ok(tensor.data())
}

/// Reads a file of a checkpoint block by block and compares it with its manifest entry.
pub(crate) fn scan(folder: &Path, entry: &FileEntry, mut take: impl FnMut(&[u8])) -> Result<(), Error> {
    #[cfg(test)]
    tests::SCANNED.set(tests::SCANNED.get() + 1);
    let path = folder.join(&entry.name);
    let fail = |problem: &dyn std::fmt::Display| Error::file(&path, problem);
    let mut file = kolo_durable::open(&path).map_err(|e| match e.kind() {
        ErrorKind::NotFound => fail(&"is missing; use another checkpoint"),
        _ => fail(&e),
    })?;
    let (found, needed) = (file.metadata().map_err(|e| fail(&e))?.len(), entry.bytes);
    if found != needed {
        return Err(fail(&format!(
            "has {found} bytes where the manifest says {needed}; use another checkpoint"
        )));
    }
    let mut hash = Sha256::new();
    let mut block = vec![0; BLOCK];
    let mut left = needed;
    while left > 0 {
        let part = &mut block[..left.min(BLOCK as u64) as usize];
        file.read_exact(part).map_err(|e| fail(&e))?;
        hash.update(&*part);
        take(part);
        left -= part.len() as u64;
    }
    let (found, needed) = (hex(&hash.finalize()), &entry.sha256);
    if found != *needed {
        return Err(fail(&format!(
            "is damaged: its SHA-256 is {found} where the manifest says {needed}; use another checkpoint"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;

    use super::*;
    use crate::{Part, Snapshot};
    use kolo_optim::ParamSpec;
    use kolo_optim::element::of_integers;

    thread_local! {
        /// Number of files read on this thread.
        pub(super) static SCANNED: Cell<usize> = const { Cell::new(0) };
    }

    fn position() -> Position {
        Position { step: 1, epoch: 0, step_in_epoch: 1, notes: serde_json::Value::Null }
    }

    /// Reading all shards at once must not read the file once per shard.
    #[test]
    fn each_file_is_read_once_for_all_shards() {
        const SHARDS: usize = 16;
        let specs =
            ["a", "b/shard1/c"].map(|name| ParamSpec::new(name, vec![3], Kind::Parameter { decay: true }));
        let layout = Arc::new(Layout::new(specs.to_vec()));
        let values = |shard: usize| (0..6).map(|n| (10 * shard + n) as f32).collect::<Vec<_>>();
        let mut parts =
            vec![Part::weights(&values(0)), Part::whole(Set::Residuals, "common/common/".into(), values(99))];
        parts.extend(
            (0..SHARDS)
                .map(|shard| Part::whole(Set::Residuals, format!("shard{shard}/residual/"), values(shard))),
        );
        let folder = tempfile::tempdir().unwrap();
        let snapshot = Snapshot::new(layout.clone(), parts, &position()).unwrap();
        let reader = Reader::open(&snapshot.write(folder.path()).unwrap()).unwrap();
        let mut read = vec![vec![0.0; 6]; SHARDS + 1];
        let prefix = |shard: usize| match shard {
            SHARDS => "common/common/".into(),
            shard => format!("shard{shard}/residual/"),
        };
        let targets = read.iter_mut().enumerate().map(|(shard, values)| (prefix(shard), &mut values[..]));
        let before = SCANNED.get();
        reader.read_all(Set::Residuals, &layout, 0, targets.collect()).unwrap();
        assert_eq!(SCANNED.get() - before, 1);
        assert!((0..SHARDS).all(|shard| read[shard] == values(shard)) && read[SHARDS] == values(99));
        for _ in 0..3 {
            reader.position().unwrap();
            reader.uses().unwrap();
        }
        assert_eq!(SCANNED.get() - before, 2);
    }

    /// Files store integers and truth values in their own types. Frozen tensors have no optimizer state.
    #[test]
    fn frozen_tensors_are_saved_in_their_own_types() {
        let frozen = |name: &str, len: usize, element| ParamSpec {
            element,
            ..ParamSpec::new(name, vec![len], Kind::Frozen)
        };
        let specs = vec![
            ParamSpec::new("a", vec![2], Kind::Parameter { decay: true }),
            frozen("base", 2, Element::F32),
            frozen("positions", 3, Element::I64),
            frozen("mask", 2, Element::Bool),
        ];
        let layout = Arc::new(Layout::new(specs));
        let integers = of_integers([-1, 1 << 40, 7]);
        let values = [&[0.5, 1.5, 2.5, 3.5], &integers[..], &[1.0, 0.0]].concat();
        assert_eq!(layout.len(), values.len());
        let moment: Vec<f32> = (0..layout.len()).map(|n| if n < 2 { 4.0 } else { 0.0 }).collect();
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, weights: Vec<Part>| {
            let parts = weights
                .into_iter()
                .chain([Part::whole(Set::Optimizer, "m/".into(), moment.to_vec())])
                .collect();
            let snapshot = Snapshot::new(layout.clone(), parts, &position()).unwrap();
            Reader::open(&snapshot.write(&folder.path().join(name)).unwrap()).unwrap()
        };
        let whole = write("whole", vec![Part::weights(&values)]);
        let data = std::fs::read(whole.folder.join("weights.safetensors")).unwrap();
        let stored = SafeTensors::deserialize(&data).unwrap();
        let of = |name: &str| stored.tensor(name).unwrap();
        assert_eq!((of("positions").dtype(), of("positions").shape()), (dtype(Element::I64), &[3][..]));
        assert_eq!(
            of("positions").data(),
            [(-1i64).to_le_bytes(), (1i64 << 40).to_le_bytes(), 7i64.to_le_bytes()].concat()
        );
        assert_eq!((of("mask").dtype(), of("mask").data()), (dtype(Element::Bool), &[1, 0][..]));
        let names: Vec<&str> = whole.tensors(Set::Optimizer).into_iter().map(|tensor| tensor.0).collect();
        assert_eq!(names, ["m/a"]);

        // The same with two ranks that each wrote a part, cutting the integers.
        let part = |range: Range<usize>, file: &str| Part {
            set: Set::Weights,
            file: file.into(),
            prefix: String::new(),
            start: range.start,
            values: values[range].to_vec(),
        };
        let cut = write(
            "cut",
            vec![part(0..9, "weights-0.safetensors"), part(9..layout.len(), "weights-1.safetensors")],
        );
        for reader in [whole, cut] {
            for range in [0..layout.len(), 3..11, 6..7] {
                let mut read = vec![9.0; range.len()];
                reader.read(Set::Weights, "", &layout, range.start, &mut read).unwrap();
                assert_eq!(read, values[range]);
            }
            let mut read = vec![0.0; layout.len()];
            reader.read(Set::Optimizer, "m/", &layout, 0, &mut read).unwrap();
            assert_eq!(read, moment);
            reader.expect_no_others(&layout).unwrap();
        }
    }

    fn written(folder: &Path, parts: Vec<Part>) -> Reader {
        let spec = |name: &str| ParamSpec::new(name, vec![2], Kind::Parameter { decay: true });
        let layout = Arc::new(Layout::new(vec![spec("a"), spec("b")]));
        let snapshot = Snapshot::new(layout, parts, &position()).unwrap();
        Reader::open(&snapshot.write(folder).unwrap()).unwrap()
    }

    /// The number of uses decides the order of additions, so that none must stand in for a malformed one.
    #[test]
    fn malformed_entries_of_the_position_are_errors() {
        let folder = tempfile::tempdir().unwrap();
        let reader = written(folder.path(), vec![Part::weights(&[0.5; 4])]);
        assert!(reader.position().is_ok() && reader.noise_scale().unwrap().is_none());
        let with = |content: serde_json::Value| Reader { position: content.into(), ..reader.clone() };
        let wrong = with(serde_json::json!({ "uses": [1, -1], "noise_scale": [0.5] }));
        for (name, error) in [("uses", wrong.uses().err()), ("noise_scale", wrong.noise_scale().err())] {
            let error = error.unwrap().to_string();
            assert!(error.contains(&format!("`{name}`")) && error.contains("position.json"), "{error}");
        }
        assert!(with(serde_json::json!({})).uses().unwrap().is_none(), "an older checkpoint");
    }

    #[test]
    fn tensors_of_another_model_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let reader = written(folder.path(), vec![Part::weights(&[0.5; 4])]);
        let layout = |names: [&str; 2]| {
            let spec = |name: &str| ParamSpec::new(name, vec![2], Kind::Parameter { decay: true });
            Layout::new(names.map(spec).to_vec())
        };
        reader.expect_no_others(&layout(["a", "b"])).unwrap();
        let error = reader.expect_no_others(&layout(["a", "c"])).unwrap_err().to_string();
        assert!(error.contains("holds `b`, which the model does not have"), "{error}");
    }

    #[test]
    fn residuals_are_those_of_the_first_shards() {
        let folder = tempfile::tempdir().unwrap();
        let shard = |shard| Part::whole(Set::Residuals, format!("shard{shard}/residual/"), vec![0.5; 4]);
        let reader = written(folder.path(), vec![Part::weights(&[0.5; 4]), shard(0), shard(2)]);
        for (shards, part) in [(2, "has no residuals of shard 1"), (3, "of 2 shards"), (0, "no use for")] {
            let error = reader.expect_residuals_of(shards).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
