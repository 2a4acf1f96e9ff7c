//! Whether the values of a file of tensors are finite, while it is read block by block.

use std::collections::HashMap;

use serde::Deserialize;

use crate::manifest::FileEntry;

/// Bytes of a safetensors file that say how long its header is.
const LENGTH: usize = 8;

/// Looks at a safetensors file of a checkpoint, all of whose tensors are `f32`.
pub(crate) struct Finite<'a> {
    file: &'a FileEntry,
    /// The bytes until the values begin, as far as they have come.
    head: Vec<u8>,
    /// Where each tensor lies behind them, by its place; none before the header has come, or if it makes no
    /// sense.
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
            let Described { data_offsets: (start, end) } = serde_json::from_value(described).ok()?;
            Some(Place { name, start, end, is_finite: true })
        };
        header.into_iter().filter_map(place).collect()
    }
}

/// Whether words of `f32` are finite. Blocks are a multiple of words long, and safetensors aligns its values.
fn are_finite(bytes: &[u8]) -> bool {
    let (words, _) = bytes.as_chunks::<4>();
    let magnitude = |word: &[u8; 4]| u32::from_le_bytes(*word) & 0x7fff_ffff;
    words.iter().fold(0, |largest, word| magnitude(word).max(largest)) < f32::INFINITY.to_bits()
}
