//! `manifest.json`: what a checkpoint consists of. Written last; without it a checkpoint is none.
//!
//! It also carries its own SHA-256, that of its text with zeros in place of those digits, so that damage to
//! the manifest is not blamed on the files that it lists.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::path::{Component, Path};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::hex;
use kolo_optim::MemoryOrder;

/// The version of the format that is written, and the newest one that is read.
pub const FORMAT: u64 = 1;

pub(crate) const MANIFEST: &str = "manifest.json";

/// No manifest is that large (bytes); one that says so is not read into memory.
const MOST: u64 = 256 << 20;

/// In place of the manifest's own hash while that is computed.
const ZEROS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// The table of contents of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// [`FORMAT`] of the Kolo that wrote it.
    pub format: u64,
    /// Version of that Kolo.
    pub kolo: String,
    /// SHA-256 of this file with 64 zeros here; lower-case hexadecimal digits.
    pub manifest_sha256: String,
    /// All other files.
    pub files: Vec<FileEntry>,
}

/// A file of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Its name in the checkpoint's folder.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256, lower-case hexadecimal digits.
    pub sha256: String,
    /// The tensors, or parts of such, in it; none in files that are not safetensors.
    pub tensors: Vec<TensorEntry>,
}

/// What a file holds of a tensor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TensorEntry {
    /// The tensor's name: the parameter's own, after `<state>/` if it is optimizer state.
    pub name: String,
    /// Type of its elements, as safetensors spells it.
    pub dtype: String,
    /// Shape of the whole tensor.
    pub shape: Vec<usize>,
    /// Which of its elements. A whole tensor is stored in row-major order.
    pub elements: Range<usize>,
    /// In which order they are counted and stored if they are a part of the tensor.
    #[serde(default, skip_serializing_if = "MemoryOrder::is_row_major")]
    pub order: MemoryOrder,
    /// Whether it was not finite when training began, such as a mask of −∞ that is added: then it may be so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given: bool,
}

impl TensorEntry {
    /// Whether it is the whole tensor.
    pub fn is_whole(&self) -> bool {
        self.elements.start == 0 && Some(self.elements.end) == self.len()
    }

    /// What it is called inside the file: a part, which is stored flat, has its elements behind its name.
    pub fn key(&self) -> String {
        match self.is_whole() {
            true => self.name.clone(),
            false => format!("{}[{}..{}]", self.name, self.elements.start, self.elements.end),
        }
    }

    /// Elements of the whole tensor; `None` if there are more than memory has addresses for.
    fn len(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |product, n| product.checked_mul(*n))
    }
}

impl Manifest {
    pub(crate) fn of(files: Vec<FileEntry>) -> Self {
        let kolo = env!("CARGO_PKG_VERSION").into();
        Manifest { format: FORMAT, kolo, manifest_sha256: ZEROS.into(), files }
    }

    /// The manifest as it is written, with its own hash in it.
    pub(crate) fn text(&self) -> Result<String, serde_json::Error> {
        let blank = Manifest { manifest_sha256: ZEROS.into(), ..self.clone() };
        let text = serde_json::to_string_pretty(&blank)? + "\n";
        let own = hex(&Sha256::digest(&text));
        Ok(text.replacen(ZEROS, &own, 1))
    }

    /// The manifest of a checkpoint.
    ///
    /// # Errors
    ///
    /// It is missing or damaged, or of a newer format; names the file.
    pub fn read(checkpoint: &Path) -> Result<Self, Error> {
        let path = checkpoint.join(MANIFEST);
        let mut text = Vec::new();
        let read = File::open(&path).and_then(|file| file.take(MOST).read_to_end(&mut text));
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
        // Before anything in it is believed.
        let own = any["manifest_sha256"].as_str().filter(|own| own.len() == ZEROS.len());
        let own = own.ok_or_else(|| damaged(&"it does not say its own SHA-256"))?;
        let found = hex(&Sha256::digest(text.replacen(own, ZEROS, 1)));
        if found != own {
            return Err(damaged(&format!("its SHA-256 is {found} where it says {own}")));
        }
        match any["format"].as_u64() {
            Some(format) if format > FORMAT => {
                return Err(format!(
                    "is of format {format}, this Kolo reads up to {FORMAT}; use a newer Kolo"
                ));
            }
            _ => {}
        }
        let manifest: Manifest = serde_json::from_value(any).map_err(|e| damaged(&e))?;
        manifest.check().map_err(|problem| damaged(&problem))?;
        Ok(manifest)
    }

    /// What a hash does not tell: that the entries make sense, and lead nowhere else.
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
    fn any_flipped_bit_is_the_manifests_own() {
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
    fn what_makes_no_sense_is_refused() {
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
