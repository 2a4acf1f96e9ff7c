//! `manifest.json`: the contents of a checkpoint. It is written last; a folder without it is not a
//! checkpoint.
//!
//! It includes its own SHA-256, computed with zeros in place of those digits, so that damage to the manifest
//! is not blamed on the files that it lists.

use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::path::{Component, Path};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::hex;
use kolo_optim::MemoryOrder;

/// Version of the format that is written, and the newest one that can be read.
pub const FORMAT: u64 = 1;

pub(crate) const MANIFEST: &str = "manifest.json";

/// Largest size of a manifest, in bytes. No more than that is read into memory.
const MOST: u64 = 256 << 20;

/// Placeholder for the manifest's own hash while the hash is computed.
const ZEROS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Table of contents of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`] of the Kolo that wrote it.
    pub format: u64,
    /// Version of the Kolo that wrote it.
    pub kolo: String,
    /// SHA-256 of this file with 64 zeros here; lower-case hexadecimal digits.
    pub manifest_sha256: String,
    /// All other files.
    pub files: Vec<FileEntry>,
}

/// File of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Name in the checkpoint's folder.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
    /// SHA-256 in lower-case hexadecimal digits.
    pub sha256: String,
    /// Tensors, or parts of tensors, in the file; empty for files that are not safetensors.
    pub tensors: Vec<TensorEntry>,
}

/// Tensor, or a part of one, in a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TensorEntry {
    /// Name of the tensor: that of the parameter, after `<state>/` if it is optimizer state.
    pub name: String,
    /// Element type, as spelled by safetensors.
    pub dtype: String,
    /// Shape of the whole tensor.
    pub shape: Vec<usize>,
    /// Range of its elements in the file. A whole tensor is stored in row-major order.
    pub elements: Range<usize>,
    /// Order in which the elements of a partial tensor are counted and stored.
    #[serde(default, skip_serializing_if = "MemoryOrder::is_row_major")]
    pub order: MemoryOrder,
    /// True if the tensor was not finite when training began, such as an additive mask of −∞. It need not be
    /// finite then.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given: bool,
}

impl TensorEntry {
    /// Returns true if it is the whole tensor.
    pub fn is_whole(&self) -> bool {
        self.elements.start == 0 && Some(self.elements.end) == self.len()
    }

    /// Returns the name inside the file. A part, which is stored flat, has the range of its elements as a
    /// suffix.
    pub fn key(&self) -> String {
        match self.is_whole() {
            true => self.name.clone(),
            false => format!("{}[{}..{}]", self.name, self.elements.start, self.elements.end),
        }
    }

    /// Returns the number of elements of the whole tensor, or `None` if it overflows `usize`.
    fn len(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |product, n| product.checked_mul(*n))
    }
}

impl Manifest {
    pub(crate) fn of(files: Vec<FileEntry>) -> Self {
        let kolo = env!("CARGO_PKG_VERSION").into();
        Manifest { format: FORMAT, kolo, manifest_sha256: ZEROS.into(), files }
    }

    /// Returns the text of the file, including its own hash.
    pub(crate) fn text(&self) -> Result<String, serde_json::Error> {
        let blank = Manifest { manifest_sha256: ZEROS.into(), ..self.clone() };
        let text = serde_json::to_string_pretty(&blank)? + "\n";
        let own = hex(&Sha256::digest(&text));
        Ok(text.replacen(ZEROS, &own, 1))
    }

    /// Reads the manifest of a checkpoint.
    ///
    /// # Errors
    ///
    /// Returns an error with the file's name if the manifest is missing, damaged, or of a newer format.
    pub fn read(checkpoint: &Path) -> Result<Self, Error> {
        let path = checkpoint.join(MANIFEST);
        let mut text = Vec::new();
        let read = kolo_durable::open(&path).and_then(|file| {
            let bytes = file.metadata()?.len();
            match bytes > MOST {
                true => Err(std::io::Error::other(format!(
                    "has {bytes} bytes, and a manifest has at most {MOST}; use another checkpoint"
                ))),
                false => file.take(MOST).read_to_end(&mut text),
            }
        });
        read.map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::file(
                &path,
                "is missing, so this checkpoint is incomplete, or older than manifests; use another one",
            ),
            _ => Error::file(&path, e),
        })?;
        Self::parse(&text).map_err(|problem| Error::file(&path, problem))
    }

    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        let damaged = |what: &dyn std::fmt::Display| format!("is damaged: {what}; use another checkpoint");
        let text = std::str::from_utf8(text).map_err(|e| damaged(&e))?;
        let any: serde_json::Value = serde_json::from_str(text).map_err(|e| damaged(&e))?;
        // Check the hash before trusting anything else.
        let own = any["manifest_sha256"].as_str().filter(|own| own.len() == ZEROS.len());
        let own = own.ok_or_else(|| damaged(&"its own SHA-256 is missing"))?;
        let found = hex(&Sha256::digest(text.replacen(own, ZEROS, 1)));
        if found != own {
            return Err(damaged(&format!("its SHA-256 is {found}, but it lists {own}")));
        }
        match any["format"].as_u64() {
            Some(format) if format > FORMAT => {
                return Err(format!(
                    "has the format {format}, and this Kolo reads up to {FORMAT}; use a newer Kolo"
                ));
            }
            _ => {}
        }
        let manifest: Manifest = serde_json::from_value(any).map_err(|e| damaged(&e))?;
        manifest.check().map_err(|problem| damaged(&problem))?;
        Ok(manifest)
    }

    /// Checks what a hash cannot: the entries must be valid, and their names must stay inside the folder.
    fn check(&self) -> Result<(), String> {
        for file in &self.files {
            let mut components = Path::new(&file.name).components();
            let plain =
                matches!(components.next(), Some(Component::Normal(name)) if name == file.name.as_str());
            if !plain || components.next().is_some() {
                return Err(format!("it lists `{}`, which is no file name", file.name));
            }
            for tensor in &file.tensors {
                let Range { start, end } = tensor.elements;
                if start > end || tensor.len().is_none_or(|len| end > len) {
                    let (name, shape) = (&tensor.name, &tensor.shape);
                    return Err(format!("it lists elements {start}..{end} of `{name}`, of shape {shape:?}"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let tensor = TensorEntry {
            name: "a".into(),
            dtype: "F32".into(),
            shape: vec![2, 3],
            elements: 0..6,
            order: MemoryOrder::row_major(),
            given: false,
        };
        let file = |name: &str| FileEntry {
            name: name.into(),
            bytes: 7,
            sha256: hex(&Sha256::digest(b"x")),
            tensors: vec![tensor.clone()],
        };
        Manifest::of(vec![file("weights.safetensors"), file("position.json")])
    }

    #[test]
    fn any_flipped_bit_is_blamed_on_the_manifest() {
        let text = manifest().text().unwrap().into_bytes();
        let read = Manifest::parse(&text).unwrap();
        assert_eq!(read.files, manifest().files);
        for bit in 0..8 * text.len() {
            let mut flipped = text.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let error = Manifest::parse(&flipped).unwrap_err();
            assert!(error.contains("damaged"), "bit {bit}: {error}");
        }
    }

    #[test]
    fn a_file_too_long_for_a_manifest_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(folder.path().join(MANIFEST)).unwrap();
        file.set_len(MOST + 1).unwrap();
        let error = Manifest::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("has 268435457 bytes") && !error.contains("damaged"), "{error}");
    }

    #[test]
    fn a_device_in_place_of_a_manifest_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/dev/zero", folder.path().join(MANIFEST)).unwrap();
        let error = Manifest::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("manifest.json") && error.ends_with("is no regular file"), "{error}");
    }

    #[test]
    fn invalid_entries_are_refused() {
        let refuse = |change: fn(&mut Manifest)| {
            let mut manifest = manifest();
            change(&mut manifest);
            Manifest::parse(manifest.text().unwrap().as_bytes()).unwrap_err()
        };
        assert!(refuse(|m| m.format = 2).contains("newer Kolo"));
        for name in ["../weights", "a/b", "/etc/passwd", "..", "", "a/"] {
            let mut manifest = manifest();
            manifest.files[0].name = name.into();
            let error = Manifest::parse(manifest.text().unwrap().as_bytes()).unwrap_err();
            assert!(error.contains("no file name"), "{name}: {error}");
        }
        assert!(refuse(|m| m.files[0].tensors[0].elements = 2..7).contains("elements 2..7 of `a`"));
        assert!(refuse(|m| m.files[0].tensors[0].shape = vec![usize::MAX, 2]).contains("of `a`"));
    }
}
