//! Fingerprints of data sets: the number of samples and a hash of their content. Ranks compare
//! fingerprints when they meet, and a resumed run compares them with its checkpoint.

use std::any::Any;
use std::fmt;

use kolo_sampler::key::Key;
use kolo_schedule::words::counted;

use crate::batch::Batch;

/// Maximum number of samples that [`Fingerprint::of_samples`] hashes.
pub const FINGERPRINT_SAMPLES: usize = 64;

/// Number of samples of a part of a data set, and a hash of all or some of them.
///
/// Errors show it and checkpoints store it as text: `10000 samples (content 06ae…)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Number of samples.
    pub samples: usize,
    /// Number of samples that the hash covers.
    pub hashed: usize,
    /// Hash of those samples; `None` if they could not be hashed.
    pub content: Option<u64>,
}

impl Fingerprint {
    /// Creates the fingerprint of `samples` samples, all of which the caller has added to `hash`.
    pub fn of_all(samples: usize, hash: ContentHash) -> Self {
        Fingerprint { samples, hashed: samples, content: Some(hash.finish()) }
    }

    /// Creates the fingerprint from at most [`FINGERPRINT_SAMPLES`] of `samples` samples: the first, the
    /// last, and others drawn by a constant key. `add` adds the sample of an index to the hash, and
    /// returns false if it cannot.
    pub fn of_samples(samples: usize, mut add: impl FnMut(usize, &mut ContentHash) -> bool) -> Self {
        let mut hash = ContentHash::new();
        let mut hashed = 0;
        for index in chosen(samples) {
            hash.word(index as u64);
            if !add(index, &mut hash) {
                return Fingerprint { samples, hashed: 0, content: None };
            }
            hashed += 1;
        }
        Fingerprint { samples, hashed, content: Some(hash.finish()) }
    }
}

/// Returns the indices of the samples that represent all `samples`, in ascending order.
fn chosen(samples: usize) -> Vec<usize> {
    if samples <= FINGERPRINT_SAMPLES {
        return (0..samples).collect();
    }
    let key = Key::new(0).with_str("fingerprint");
    let drawn = (0..FINGERPRINT_SAMPLES as u64 - 2).map(|n| key.with(n).below(samples));
    let mut all: Vec<usize> = [0, samples - 1].into_iter().chain(drawn).collect();
    all.sort_unstable();
    all.dedup();
    all
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&counted(self.samples, "sample"))?;
        match self.content {
            Some(content) if self.hashed == self.samples => write!(f, " (content {content:016x})"),
            Some(content) => write!(f, " ({} of them with content {content:016x})", self.hashed),
            None => f.write_str(" (content not compared)"),
        }
    }
}

/// A 64-bit hash over numbers, the same on every machine. It detects accidents, not forgery.
///
/// Each word goes one level down in a [`Key`], so the hash depends on every bit and on its position.
#[derive(Clone, Copy, Debug)]
pub struct ContentHash(Key);

impl Default for ContentHash {
    fn default() -> Self {
        Self::new()
    }
}

impl ContentHash {
    /// Creates the hash of an empty content.
    pub fn new() -> Self {
        ContentHash(Key::new(0).with_str("content"))
    }

    /// Adds a word.
    #[inline]
    pub fn word(&mut self, word: u64) {
        self.0 = self.0.with(word);
    }

    /// Adds the number of bytes, and the bytes, eight at a time.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.word(u64::from_le_bytes(std::array::from_fn(|i| word[i])));
        }
        let rest = words.remainder();
        if !rest.is_empty() {
            self.word(u64::from_le_bytes(std::array::from_fn(|i| rest.get(i).copied().unwrap_or(0))));
        }
    }

    /// Adds a text.
    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Adds the number of numbers, and the bits of each.
    pub fn numbers<N: Number>(&mut self, numbers: &[N]) {
        self.word(numbers.len() as u64);
        numbers.iter().for_each(|number| self.word(number.word()));
    }

    /// Adds a batch if its type is known: [`Batch`], a vector of numbers, or a pair of such vectors.
    /// Returns true if it is.
    pub fn batch<B: Any>(&mut self, batch: &B) -> bool {
        let batch: &dyn Any = batch;
        if let Some(Batch { images, labels, shape }) = batch.downcast_ref() {
            self.numbers(shape);
            self.numbers(images);
            self.numbers(labels);
            return true;
        }
        self.known_vectors(batch)
    }

    /// Returns the hash of all that has been added.
    pub fn finish(self) -> u64 {
        self.0.bits()
    }
}

/// A number that is hashed by its bits.
pub trait Number: Copy + 'static {
    /// Returns the bits of the number as a word.
    fn word(self) -> u64;
}

/// Implements [`Number`] for the types, and hashes vectors and pairs of vectors of them.
macro_rules! numbers {
    ($($number:ty: $word:expr),* $(,)?) => {
        $(impl Number for $number {
            #[inline]
            fn word(self) -> u64 {
                let word: fn($number) -> u64 = $word;
                word(self)
            }
        })*

        impl ContentHash {
            fn known_vectors(&mut self, batch: &dyn Any) -> bool {
                $(if let Some(numbers) = batch.downcast_ref::<Vec<$number>>() {
                    self.numbers(numbers);
                    return true;
                })*
                $(if self.pair_with::<$number>(batch) {
                    return true;
                })*
                false
            }

            /// Adds a pair whose second vector has the element type `B`.
            fn pair_with<B: Number>(&mut self, batch: &dyn Any) -> bool {
                $(if let Some((first, second)) = batch.downcast_ref::<(Vec<$number>, Vec<B>)>() {
                    self.numbers(first);
                    self.numbers(second);
                    return true;
                })*
                false
            }
        }
    };
}

numbers! {
    u8: u64::from,
    i8: |number| number as u64,
    u16: u64::from,
    i16: |number| number as u64,
    u32: u64::from,
    i32: |number| number as u64,
    u64: |number| number,
    i64: |number| number as u64,
    usize: |number| number as u64,
    f32: |number| number.to_bits().into(),
    f64: f64::to_bits,
    bool: u64::from,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_and_its_place_count() {
        let of = |bytes: &[u8]| {
            let mut hash = ContentHash::new();
            hash.bytes(bytes);
            hash.finish()
        };
        let whole: Vec<u8> = (0..37).collect();
        for bit in 0..8 * whole.len() {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(of(&flipped), of(&whole), "bit {bit}");
        }
        let mut swapped = whole.clone();
        swapped.swap(0, 8);
        assert_ne!(of(&swapped), of(&whole));
        // Zeros at the end differ from the zeros that fill a word.
        assert_ne!(of(&[1, 0]), of(&[1]));
        assert_ne!(of(&[]), of(&[0]));
    }

    #[test]
    fn the_samples_of_a_large_set_are_few_and_the_same_each_time() {
        assert_eq!(chosen(3), [0, 1, 2]);
        let many = chosen(1_000_000);
        assert!(many.len() > FINGERPRINT_SAMPLES - 3 && many.len() <= FINGERPRINT_SAMPLES, "{many:?}");
        assert!(many[0] == 0 && many.last() == Some(&999_999) && many == chosen(1_000_000));
        let of = |samples, changed: usize| {
            Fingerprint::of_samples(samples, |index, hash| {
                hash.word(u64::from(index == changed));
                true
            })
        };
        assert_ne!(of(1_000_000, many[5]), of(1_000_000, usize::MAX));
        assert_ne!(of(1_000_001, usize::MAX), of(1_000_000, usize::MAX));
        let text = of(1_000_000, 0).to_string();
        assert!(
            text.starts_with(&format!("1000000 samples ({} of them with content ", many.len())),
            "{text}"
        );
        assert!(of(7, 0).to_string().starts_with("7 samples (content "));
    }

    #[test]
    fn only_batches_of_numbers_have_a_content() {
        fn content(batch: &impl Any) -> Option<u64> {
            let mut hash = ContentHash::new();
            hash.batch(batch).then(|| hash.finish())
        }
        let batch = |label: u32| Batch { images: vec![0.5; 4], labels: vec![label], shape: [1, 1, 2, 2] };
        assert_ne!(content(&batch(1)).unwrap(), content(&batch(2)).unwrap());
        assert_ne!(content(&vec![1_i32]).unwrap(), content(&vec![2_i32]).unwrap());
        assert_ne!(
            content(&(vec![0.5_f32], vec![1_u8])).unwrap(),
            content(&(vec![0.5_f32], vec![2_u8])).unwrap()
        );
        assert_eq!(content(&(vec![1_i64], vec![1_usize])), content(&(vec![1_u8], vec![true])));
        assert_eq!(content(&vec!["a text"]), None);
    }
}
