//! Decoders of untrusted bytes, for `fuzz/`. They exist only in tests and with the feature `fuzzing`, and are
//! not part of the public API.

use std::ops::Range;

use safetensors::SafeTensors;

use crate::finite::Finite;
use crate::header::{Header, LENGTH};
use crate::manifest::{FileEntry, Manifest, TensorEntry};
use crate::position::Position;

/// Decoder that must accept any bytes without a panic.
pub type Decoder = fn(&[u8]);

/// Name and decoder of each fuzz target.
pub const TARGETS: &[(&str, Decoder)] = &[("manifest", manifest), ("safetensors", safetensors)];

/// Decodes a checkpoint's metadata: its manifest, and the position of the run.
pub fn manifest(bytes: &[u8]) {
    let _ = Manifest::parse(bytes);
    // Fix the hash, so that the fuzzer reaches the code behind the hash check.
    if let Ok(Ok(text)) = serde_json::from_slice::<Manifest>(bytes).map(|manifest| manifest.text()) {
        for file in Manifest::parse(text.as_bytes()).into_iter().flat_map(|manifest| manifest.files) {
            let _: Vec<String> = file.tensors.iter().map(TensorEntry::key).collect();
        }
    }
    let _ = serde_json::from_slice::<Position>(bytes);
}

/// Decodes a file of tensors, with manifest entries for all and for half of each tensor.
pub fn safetensors(bytes: &[u8]) {
    let file = FileEntry { name: String::new(), bytes: 0, sha256: String::new(), tensors: Vec::new() };
    let mut finite = Finite::new(&file);
    bytes.chunks(64).for_each(|block| finite.take(block));
    assert!(finite.not_finite().is_empty());
    let Ok(tensors) = SafeTensors::deserialize(bytes) else { return };
    // The format's own crate has found the length of the header to be right.
    let length = bytes.first_chunk::<LENGTH>().map_or(0, |length| u64::from_le_bytes(*length) as usize);
    let Ok(header) = Header::parse(&bytes[..LENGTH + length], bytes.len() as u64) else { return };
    for (name, tensor) in tensors.tensors() {
        let shape = tensor.shape().to_vec();
        let Some(len) = shape.iter().try_fold(1usize, |product, n| product.checked_mul(*n)) else { continue };
        for elements in [0..len, 0..len / 2] {
            let Range { start, end } = elements;
            let entry = TensorEntry {
                name: name.clone(),
                dtype: "F32".into(),
                shape: shape.clone(),
                elements: start..end,
                order: kolo_optim::MemoryOrder::row_major(),
                given: false,
            };
            if let Ok(place) = header.place(&entry) {
                assert_eq!(place.end - place.start, 4 * (end - start) as u64);
                assert_eq!(&bytes[place.start as usize..place.end as usize], tensor.data());
            }
        }
    }
}

/// Returns valid inputs: the target, the name of the seed, and the bytes.
pub fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let entry = TensorEntry {
        name: "weight".into(),
        dtype: "F32".into(),
        shape: vec![2, 3],
        elements: 0..6,
        order: kolo_optim::MemoryOrder::row_major(),
        given: false,
    };
    let part = TensorEntry { elements: 2..5, ..entry.clone() };
    let file = |name: &str, tensors: Vec<TensorEntry>| crate::FileEntry {
        name: name.into(),
        bytes: 7,
        sha256: crate::hex(&[7; 32]),
        tensors,
    };
    let files = vec![file("weights.safetensors", vec![entry]), file("optimizer-0.safetensors", vec![part])];
    let text = Manifest::of(files).text().unwrap_or_default();
    let position = Position { step: 7, epoch: 1, step_in_epoch: 2, notes: "a seed".into() };
    let header = br#"{"weight":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}}   "#;
    let length = (header.len() as u64).to_le_bytes();
    vec![
        ("manifest", "two_files", text.into_bytes()),
        ("manifest", "position", serde_json::to_vec(&position).unwrap_or_default()),
        ("safetensors", "one_tensor", [&length[..], header, &[0; 8]].concat()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_seeds_and_takes_them() {
        let seeds = seeds();
        kolo_testing::assert_seeds_are_taken(TARGETS, &seeds);
        let whole = |name: &str| seeds.iter().find(|(_, seed, _)| *seed == name).unwrap().2.clone();
        assert_eq!(Manifest::parse(&whole("two_files")).unwrap().files.len(), 2);
        assert_eq!(SafeTensors::deserialize(&whole("one_tensor")).unwrap().len(), 1);
    }
}
