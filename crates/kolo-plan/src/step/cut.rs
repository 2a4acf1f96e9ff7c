//! Divides a profile into other buckets.

use crate::step::profile::{Bucket, StepProfile};

/// Maximum sizes of buckets, in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Caps {
    /// Maximum size of the first and of the last bucket.
    pub first: f64,
    /// Maximum size of all other buckets.
    pub other: f64,
}

impl Caps {
    /// Kolo's sizes: the first and the last bucket have at most 1 MiB, because communication that starts late
    /// or ends late cannot be hidden.
    pub fn of_mib(mib: f64) -> Self {
        const MIB: f64 = (1 << 20) as f64;
        Caps { first: mib.min(1.0) * MIB, other: mib * MIB }
    }

    /// The same size for all buckets.
    pub fn even(bytes: f64) -> Self {
        Caps { first: bytes, other: bytes }
    }
}

impl StepProfile {
    /// Returns the same step with buckets of other sizes. They are filled from the profile's buckets in the
    /// order of readiness by Kolo's rule: a small first and a small last bucket, and slices of larger pieces.
    /// A slice is ready when the whole bucket of the profile was, so smaller buckets in the profile give a
    /// more accurate result.
    pub fn cut(&self, caps: Caps) -> StepProfile {
        let pieces = &self.buckets;
        // The last bucket takes pieces from the end while they fit.
        let (mut tail, mut size) = (pieces.len(), 0.0);
        while tail > 1 && size + pieces[tail - 1].bytes <= caps.first {
            tail -= 1;
            size += pieces[tail].bytes;
        }
        let mut buckets: Vec<Bucket> = Vec::new();
        for (index, piece) in pieces.iter().enumerate() {
            let cap = if buckets.len() <= 1 { caps.first } else { caps.other };
            let joins = |bucket: &Bucket| index > tail || (index < tail && bucket.bytes + piece.bytes <= cap);
            match buckets.last_mut() {
                Some(bucket) if joins(bucket) => bucket.join(piece),
                _ => buckets.extend(slices(piece, caps.other)),
            }
        }
        StepProfile { buckets, ..self.clone() }
    }
}

impl Bucket {
    fn join(&mut self, piece: &Bucket) {
        self.bytes += piece.bytes;
        self.wire_bytes += piece.wire_bytes;
        self.ready = self.ready.max(piece.ready);
        self.needed = self.needed.min(piece.needed);
    }
}

/// Divides a piece into slices of at most `longest` bytes.
fn slices(piece: &Bucket, longest: f64) -> impl Iterator<Item = Bucket> {
    let count = (piece.bytes / longest).ceil().max(1.0);
    let (bytes, wire_bytes) = (piece.bytes, piece.wire_bytes);
    let of = move |index: usize| {
        let share = (bytes - index as f64 * longest).min(longest) / bytes.max(f64::MIN_POSITIVE);
        (share * bytes, share * wire_bytes)
    };
    let piece = *piece;
    (0..count as usize).map(move |index| {
        let (bytes, wire_bytes) = if count > 1.0 { of(index) } else { (bytes, wire_bytes) };
        Bucket { bytes, wire_bytes, ..piece }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(sizes: &[f64]) -> StepProfile {
        let bucket = |(index, &bytes): (usize, &f64)| Bucket {
            bytes,
            wire_bytes: bytes / 2.0,
            ready: index as f64,
            needed: 9.0 - index as f64,
        };
        let buckets = sizes.iter().enumerate().map(bucket).collect();
        StepProfile { forward: 9.0, backward: 9.0, optimizer: 1.0, buckets }
    }

    /// Example of kolo-ddp's rule (`buckets.rs`), from the end of the model to its beginning.
    #[test]
    fn buckets_are_those_of_a_job() {
        let cut = profile(&[20.0, 10.0, 40.0, 200.0, 25.0, 30.0, 10.0, 5.0]);
        let cut = cut.cut(Caps { first: 30.0, other: 250.0 });
        let sizes: Vec<f64> = cut.buckets.iter().map(|bucket| bucket.bytes).collect();
        assert_eq!(sizes, [30.0, 240.0, 55.0, 15.0]);
        let times: Vec<(f64, f64)> = cut.buckets.iter().map(|b| (b.ready, b.needed)).collect();
        assert_eq!(times, [(1.0, 8.0), (3.0, 6.0), (5.0, 4.0), (7.0, 2.0)]);
        assert_eq!(cut.bytes(), 340.0);
    }

    #[test]
    fn large_parameters_travel_in_slices() {
        let cut = profile(&[10.0, 250.0, 5.0]).cut(Caps { first: 10.0, other: 100.0 });
        let sizes: Vec<(f64, f64)> = cut.buckets.iter().map(|b| (b.bytes, b.wire_bytes)).collect();
        assert_eq!(sizes, [(10.0, 5.0), (100.0, 50.0), (100.0, 50.0), (50.0, 25.0), (5.0, 2.5)]);
        assert!(cut.buckets[1..4].iter().all(|bucket| bucket.ready == 1.0));
    }
}
