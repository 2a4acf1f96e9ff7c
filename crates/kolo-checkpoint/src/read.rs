//! Reading of checkpoints: their manifest, their position, and whether they fit a model. Each file is
//! verified before use.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::error::Error;
use crate::manifest::{FileEntry, MANIFEST, Manifest, TensorEntry};
use crate::position::{NOISE_SCALE, POSITION, Position, USES};
use crate::set::Set;
use crate::stored_file::scan;
use kolo_optim::{Element, Layout};

pub(crate) const ANOTHER: &str = "this checkpoint belongs to another model or optimizer";

/// Checkpoint with a valid manifest.
#[derive(Clone, Debug)]
pub struct Reader {
    pub(crate) folder: PathBuf,
    pub(crate) manifest: Manifest,
    /// Contents of `position.json`, read on first use.
    position: OnceLock<serde_json::Value>,
    /// Files that need not be verified again; `None` to verify each before each use.
    verified: Option<Arc<Mutex<HashSet<String>>>>,
}

impl Reader {
    /// Reads and verifies the manifest.
    ///
    /// # Errors
    ///
    /// Returns an error with the file's name if the manifest is missing, damaged, or of a newer format.
    pub fn open(checkpoint: &Path) -> Result<Self, Error> {
        let (folder, manifest) = (checkpoint.to_path_buf(), Manifest::read(checkpoint)?);
        Ok(Reader { folder, manifest, position: OnceLock::new(), verified: None })
    }

    /// Returns a reader that verifies each file of tensors before its first use only. It is for many reads of
    /// a few tensors each.
    pub fn verifying_once(self) -> Self {
        Reader { verified: Some(Arc::default()), ..self }
    }

    /// Verifies a file, unless that has been done.
    pub(crate) fn verify(&self, entry: &FileEntry) -> Result<(), Error> {
        let Some(verified) = &self.verified else { return scan(&self.folder, entry, |_| {}) };
        let mut verified = verified.lock();
        if !verified.contains(&entry.name) {
            scan(&self.folder, entry, |_| {})?;
            verified.insert(entry.name.clone());
        }
        Ok(())
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

    /// Returns how often the next step is expected to use each tensor, if the checkpoint has it. Fails as
    /// [`Reader::entry`] does.
    pub fn uses(&self) -> Result<Option<Vec<u32>>, Error> {
        self.entry(USES)
    }

    /// Returns the averages behind the gradient's noise scale, if the checkpoint has them. Fails as
    /// [`Reader::entry`] does.
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
            (_, 0) => "holds residuals, which this run's reduction does not use; continue with the reduction that wrote it".into(),
            (found, shards) => {
                format!("holds residuals of {found} shards, but this job has {shards}; continue with {found} shards")
            }
        };
        Err(Error::file(self.folder.join(Set::Residuals.file()), problem))
    }

    /// Returns the verified contents of a file.
    pub(crate) fn file(&self, entry: &FileEntry) -> Result<Vec<u8>, Error> {
        let mut data = Vec::new();
        scan(&self.folder, entry, |block| data.extend_from_slice(block))?;
        Ok(data)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;

    use safetensors::SafeTensors;

    use super::*;
    use crate::outline::dtype;
    use crate::stored_file::SCANNED;
    use crate::{Part, Snapshot};
    use kolo_optim::element::of_integers;
    use kolo_optim::{Kind, ParamSpec};

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
        let (once, mut one) = (reader.clone().verifying_once(), [0.0; 6]);
        for (again, reader) in [(0, &once), (1, &reader)] {
            for shard in 0..3 {
                reader.read(Set::Residuals, &prefix(shard), &layout, 0, &mut one).unwrap();
                assert_eq!(one[..], values(shard));
            }
            assert_eq!(SCANNED.get() - before, 3 + again * 3);
        }
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
            values: values[range].to_vec().into(),
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
        for (shards, part) in [(2, "has no residuals of shard 1"), (3, "of 2 shards"), (0, "does not use")] {
            let error = reader.expect_residuals_of(shards).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
