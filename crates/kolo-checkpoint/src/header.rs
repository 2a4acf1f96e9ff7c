//! Header of a safetensors file: where its tensors lie.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use serde::Deserialize;

use crate::manifest::TensorEntry;
use kolo_optim::Element;

/// Size in bytes of the header's length field.
pub(crate) const LENGTH: usize = 8;

/// Place of each tensor in a file.
pub(crate) struct Header {
    /// Number of bytes before the values.
    len: u64,
    /// Number of bytes of the file.
    end: u64,
    pub(crate) tensors: HashMap<String, Stored>,
}

/// Tensor in a file.
#[derive(Deserialize)]
pub(crate) struct Stored {
    pub(crate) dtype: String,
    /// Bytes behind the header.
    pub(crate) data_offsets: (usize, usize),
}

impl Header {
    /// Reads the header of a file that has been compared with its manifest entry.
    pub(crate) fn read(file: &File) -> Result<Self, String> {
        let fail = |problem: &dyn std::fmt::Display| format!("is no safetensors file: {problem}");
        let mut length = [0; LENGTH];
        file.read_exact_at(&mut length, 0).map_err(|e| fail(&e))?;
        let (all, len) = (file.metadata().map_err(|e| fail(&e))?.len(), u64::from_le_bytes(length));
        if len > all {
            return Err(fail(&format_args!("its header has {len} bytes, and the file {all}")));
        }
        let mut head = vec![0; LENGTH + len as usize];
        file.read_exact_at(&mut head, 0).map_err(|e| fail(&e))?;
        Self::parse(&head, all)
    }

    /// Parses the bytes before the values in a file that ends after `end` bytes.
    pub(crate) fn parse(head: &[u8], end: u64) -> Result<Self, String> {
        let text = head.get(LENGTH..).unwrap_or_default();
        let described: HashMap<String, serde_json::Value> =
            serde_json::from_slice(text).map_err(|e| format!("is no safetensors file: {e}"))?;
        let stored = |(name, described)| {
            let stored: Stored = serde_json::from_value(described).ok()?;
            (stored.data_offsets.0 <= stored.data_offsets.1).then_some((name, stored))
        };
        let tensors = described.into_iter().filter_map(stored).collect();
        Ok(Header { len: head.len() as u64, end, tensors })
    }

    /// Returns the bytes of a tensor in the file, as the manifest describes it.
    pub(crate) fn place(&self, entry: &TensorEntry) -> Result<Range<u64>, String> {
        let key = entry.key();
        let stored = self
            .tensors
            .get(&key)
            .ok_or_else(|| format!("has no tensor `{key}`, which is in the manifest"))?;
        let (start, end) = stored.data_offsets;
        let element = Element::of_dtype(&entry.dtype).filter(|element| element.dtype() == stored.dtype);
        let needed = |element: Element| element.bytes().checked_mul(entry.elements.len());
        let at = |offset: usize| self.len.saturating_add(offset as u64);
        if element.is_none_or(|element| needed(element) != Some(end - start)) || at(end) > self.end {
            return Err(format!("holds a `{key}` that differs from the manifest"));
        }
        Ok(at(start)..at(end))
    }
}
