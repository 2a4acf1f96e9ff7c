//! Reading a checkpoint: any range of flat memory, from however many files, each verified before it is used.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use safetensors::tensor::Dtype;
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::hex;
use crate::manifest::{FileEntry, MANIFEST, Manifest, TensorEntry};
use crate::position::{NOISE_SCALE, POSITION, Position, USES};
use crate::snapshot::Set;
use kolo_optim::finite::are_finite;
use kolo_optim::{Layout, Span};

const ANOTHER: &str = "this checkpoint belongs to another model or optimizer";

/// Bytes that are hashed at a time.
const BLOCK: usize = 1 << 20;

/// A checkpoint whose manifest is good.
#[derive(Clone, Debug)]
pub struct Reader {
    folder: PathBuf,
    manifest: Manifest,
}

/// A tensor, or a part of one, in a file.
struct Held<'a> {
    entry: &'a TensorEntry,
    span: &'a Span,
    /// Where in flat memory its elements lie.
    place: Range<usize>,
}

impl Reader {
    /// Reads and verifies the manifest.
    ///
    /// # Errors
    ///
    /// It is missing or damaged, or of a newer format; names the file.
    pub fn open(checkpoint: &Path) -> Result<Self, Error> {
        Ok(Reader { folder: checkpoint.to_path_buf(), manifest: Manifest::read(checkpoint)? })
    }

    /// What the checkpoint consists of.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Names and shapes of the tensors of a set, each once, in the order in which they are listed.
    pub fn tensors(&self, set: Set) -> Vec<(&str, &[usize])> {
        let files = self.manifest.files.iter().filter(|file| set.is_in(&file.name));
        let mut known = HashSet::new();
        let tensors = files.flat_map(|file| &file.tensors).filter(|tensor| known.insert(&tensor.name));
        tensors.map(|tensor| (tensor.name.as_str(), tensor.shape.as_slice())).collect()
    }

    /// Where the run was.
    ///
    /// # Errors
    ///
    /// The file that says so is damaged or missing.
    pub fn position(&self) -> Result<Position, Error> {
        serde_json::from_value(self.position_json()?).map_err(|e| Error::file(self.folder.join(POSITION), e))
    }

    /// How often the next step is expected to use each tensor, if the checkpoint says so.
    pub fn uses(&self) -> Result<Option<Vec<u32>>, Error> {
        Ok(serde_json::from_value(self.position_json()?[USES].take()).ok())
    }

    /// What the noise scale of the gradient is made of, if the checkpoint says so.
    pub fn noise_scale(&self) -> Result<Option<Vec<String>>, Error> {
        Ok(serde_json::from_value(self.position_json()?[NOISE_SCALE].take()).ok())
    }

    /// What else the replica went on with under this name ([`Snapshot::with_entry`](crate::Snapshot)), if
    /// the checkpoint says so.
    ///
    /// # Errors
    ///
    /// The file that says so is damaged or missing, or says something that is no `T`.
    pub fn entry<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<Option<T>, Error> {
        let fail = |e| Error::file(self.folder.join(POSITION), format!("`{name}`: {e}"));
        serde_json::from_value(self.position_json()?[name].take()).map_err(fail)
    }

    fn position_json(&self) -> Result<serde_json::Value, Error> {
        let path = self.folder.join(POSITION);
        let entry = self.manifest.files.iter().find(|entry| entry.name == POSITION);
        let entry = entry.ok_or_else(|| Error::file(self.folder.join(MANIFEST), "lists no position.json"))?;
        serde_json::from_slice(&self.file(entry)?).map_err(|e| Error::file(&path, e))
    }

    /// Reads a set of tensors into `values`, which are the elements of flat memory from `start` on. Opens
    /// only files that hold some of them.
    ///
    /// # Errors
    ///
    /// Names the file that is damaged or missing, or the first tensor that does not fit or is not finite.
    pub fn read(
        &self,
        set: Set,
        prefix: &str,
        layout: &Layout,
        start: usize,
        values: &mut [f32],
    ) -> Result<(), Error> {
        let wanted = start..start + values.len();
        let spans: HashMap<&str, &Span> =
            layout.spans().iter().map(|span| (span.spec.name.as_str(), span)).collect();
        let mut filled: Vec<Range<usize>> = Vec::new();
        for file in self.manifest.files.iter().filter(|file| set.is_in(&file.name)) {
            let held = self.held(file, prefix, &spans, &wanted)?;
            if held.is_empty() {
                continue;
            }
            let fail = |problem: String| Error::file(self.folder.join(&file.name), problem);
            let data = self.file(file)?;
            let tensors =
                SafeTensors::deserialize(&data).map_err(|e| fail(format!("is no safetensors file: {e}")))?;
            for Held { entry, span, place: held } in held {
                let words = words(&tensors, entry).map_err(fail)?;
                let common = held.start.max(wanted.start)..held.end.min(wanted.end);
                let target = &mut values[common.start - start..common.end - start];
                let number = |word: &[u8]| f32::from_le_bytes([word[0], word[1], word[2], word[3]]);
                if entry.is_whole() && !span.spec.order.is_row_major() {
                    let places = span.spec.order.row_major_indices(&entry.shape);
                    let places = places.skip(common.start - held.start);
                    target.iter_mut().zip(places).for_each(|(value, at)| *value = number(&words[4 * at..]));
                } else {
                    let words = words.chunks_exact(4).skip(common.start - held.start);
                    target.iter_mut().zip(words).for_each(|(value, word)| *value = number(word));
                }
                if !entry.given && !are_finite(target) {
                    let (path, tensors) = (self.folder.join(&file.name), vec![entry.key()]);
                    return Err(Error::NotFinite { path, tensors });
                }
                filled.push(common);
            }
        }
        self.covers(set, prefix, layout, wanted, filled)
    }

    /// What a file holds of a range of flat memory, and where that lies there.
    fn held<'a>(
        &self,
        file: &'a FileEntry,
        prefix: &str,
        spans: &HashMap<&str, &'a Span>,
        wanted: &Range<usize>,
    ) -> Result<Vec<Held<'a>>, Error> {
        let mut all = Vec::new();
        for entry in &file.tensors {
            let span = entry.name.strip_prefix(prefix).and_then(|name| spans.get(name));
            let Some(span) = span else { continue };
            self.fits(file, entry, span)?;
            let held = span.offset + entry.elements.start..span.offset + entry.elements.end;
            if held.start.max(wanted.start) < held.end.min(wanted.end) {
                all.push(Held { entry, span, place: held });
            }
        }
        Ok(all)
    }

    /// That the weights are those of this model and nothing more.
    pub fn expect_no_others(&self, layout: &Layout) -> Result<(), Error> {
        let files = self.manifest.files.iter().filter(|file| Set::Weights.is_in(&file.name));
        let names: HashSet<&str> = files.flat_map(|file| &file.tensors).map(|t| t.name.as_str()).collect();
        let (found, needed) = (names.len(), layout.spans().len());
        if found != needed {
            let problem = format!("holds {found} tensors where the model has {needed}; {ANOTHER}");
            return Err(Error::file(self.folder.join(Set::Weights.file()), problem));
        }
        Ok(())
    }

    /// That what a reduction has kept is there for so many shards, 0 for a reduction that keeps nothing.
    pub fn expect_residuals_of(&self, shards: usize) -> Result<(), Error> {
        let files = self.manifest.files.iter().filter(|file| Set::Residuals.is_in(&file.name));
        let shard_of = |tensor: &'_ TensorEntry| {
            let first = tensor.name.split('/').next();
            first.filter(|first| first.starts_with("shard")).map(String::from)
        };
        let found: HashSet<String> =
            files.flat_map(|file| file.tensors.iter().filter_map(shard_of)).collect();
        let problem = match (found.len(), shards) {
            (found, shards) if found == shards => return Ok(()),
            (0, _) => "is missing: the run that wrote this checkpoint had a reduction that keeps none; continue with that one".into(),
            (_, 0) => "holds what this run's reduction has no use for; continue with the one that wrote it".into(),
            (found, shards) => {
                format!("holds residuals of {found} shards where this job has {shards}; continue with {found} shards")
            }
        };
        Err(Error::file(self.folder.join(Set::Residuals.file()), problem))
    }

    /// The contents of a file, verified.
    fn file(&self, entry: &FileEntry) -> Result<Vec<u8>, Error> {
        let mut data = Vec::new();
        scan(&self.folder, entry, |block| data.extend_from_slice(block))?;
        Ok(data)
    }

    fn fits(&self, file: &FileEntry, entry: &TensorEntry, span: &Span) -> Result<(), Error> {
        if entry.shape == span.spec.shape && entry.dtype == "F32" {
            if entry.is_whole() || entry.order == span.spec.order {
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
        let problem =
            format!("holds `{name}` as {dtype} {found:?} where F32 {needed:?} is needed; {ANOTHER}");
        Err(Error::file(self.folder.join(&file.name), problem))
    }

    /// Every wanted element came once.
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
        // Names the one file that should have it, or what lists several.
        let mut files = self.manifest.files.iter().filter(|file| set.is_in(&file.name));
        let file = match (files.next(), files.next()) {
            (Some(file), None) => file.name.as_str(),
            _ => MANIFEST,
        };
        Err(Error::file(self.folder.join(file), format!("{wrong} {what} `{prefix}{name}`; {ANOTHER}")))
    }
}

/// The bytes of a tensor in a file.
pub(crate) fn words<'a>(tensors: &SafeTensors<'a>, entry: &TensorEntry) -> Result<&'a [u8], String> {
    let key = entry.key();
    let tensor =
        tensors.tensor(&key).map_err(|_| format!("has no tensor `{key}`, which is in the manifest"))?;
    if tensor.dtype() != Dtype::F32 || tensor.data().len() != 4 * entry.elements.len() {
        return Err(format!("holds another `{key}` than the manifest says"));
    }
    Ok(tensor.data())
}

/// Reads a file of a checkpoint block by block and compares it with its entry in the manifest.
pub(crate) fn scan(folder: &Path, entry: &FileEntry, mut take: impl FnMut(&[u8])) -> Result<(), Error> {
    let path = folder.join(&entry.name);
    let fail = |problem: &dyn std::fmt::Display| Error::file(&path, problem);
    let mut file = File::open(&path).map_err(|e| match e.kind() {
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
