//! Decoders of this crate that read untrusted bytes, for `fuzz/`. The module exists only in tests and with
//! the feature `fuzzing`, and is not part of the interface.

use std::io::{Cursor, Write};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::error::DataError;
use crate::format::cifar::{self, Record};
use crate::format::idx;
use crate::format::source::Source;
use crate::images::Images;

/// A function that accepts any bytes without a panic.
pub type Decoder = fn(&[u8]);

/// Name and decoder of each fuzz target.
pub const TARGETS: &[(&str, Decoder)] = &[("idx", decode_idx), ("cifar", decode_cifar)];

const CLASSES: usize = 10;

/// Decodes files of images and labels, compressed or not. The first two bytes are the length of the first
/// file.
pub fn decode_idx(bytes: &[u8]) {
    if let Ok(images) = idx_of(bytes) {
        assert_eq!(images.pixels.len(), 28 * 28 * images.labels.len());
    }
}

/// Decodes a file of two records, compressed or not.
pub fn decode_cifar(bytes: &[u8]) {
    for label_bytes in [1, 2] {
        let read = source(bytes)
            .and_then(|source| cifar::read(vec![source], Record { label_bytes, count: 2 }, CLASSES));
        if let Ok(images) = read {
            assert_eq!((images.labels.len(), images.pixels.len()), (2, 2 * 3 * 32 * 32));
        }
    }
}

fn idx_of(bytes: &[u8]) -> Result<Images, DataError> {
    let (length, files) = bytes.split_at(bytes.len().min(2));
    let length = length.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
    let (images, labels) = files.split_at(length.min(files.len()));
    idx::read(source(images)?, source(labels)?, CLASSES)
}

fn source(bytes: &[u8]) -> Result<Source, DataError> {
    Source::new(Path::new("fuzzed"), Cursor::new(bytes.to_vec()))
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to a vector cannot fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}

/// Returns two files, with the length of the first one before them.
fn pair(first: &[u8], second: &[u8]) -> Vec<u8> {
    let length = u16::try_from(first.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&length, first, second].concat()
}

/// Valid bytes for every target: the target's name, the name of the seed, and the bytes.
pub fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let numbers = |numbers: &[u32]| numbers.iter().flat_map(|n| n.to_be_bytes()).collect::<Vec<u8>>();
    let images = [numbers(&[0x803, 2, 28, 28]), vec![7; 2 * 28 * 28]].concat();
    let labels = [numbers(&[0x801, 2]), vec![3, 9]].concat();
    let records = [1, 2].map(|label_bytes| [vec![4; label_bytes], vec![9; 3 * 32 * 32]].concat().repeat(2));
    vec![
        ("idx", "plain", pair(&images, &labels)),
        ("idx", "compressed", pair(&compressed(&images), &compressed(&labels))),
        ("cifar", "one_label", records[0].clone()),
        ("cifar", "two_labels", records[1].clone()),
        ("cifar", "compressed", compressed(&records[0])),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_target_has_seeds_and_takes_them() {
        let seeds = seeds();
        kolo_testing::assert_seeds_are_taken(TARGETS, &seeds);
        for (_, name, bytes) in seeds.iter().filter(|(target, _, _)| *target == "idx") {
            assert_eq!(idx_of(bytes).unwrap().labels, [3, 9], "{name}");
        }
    }
}
