//! Validation samples drawn from the training samples of a data set.

use std::sync::Arc;

use kolo_sampler::key::Key;

use crate::augment::AugmentKey;
use crate::dataset::{DataSet, ImageDataSet, SampleShape};
use crate::error::DataError;
use crate::fingerprint::{ContentHash, Fingerprint};
use crate::part::Part;
use crate::preprocessing::Preprocessing;
use crate::tokenizer::Tokenizer;

/// A data set of which a share of the training samples, drawn by a seed, is for validation.
///
/// Every worker and every part of a run draws the same samples, because the seed and the number of training
/// samples alone decide.
#[derive(Clone, Debug)]
pub struct Split<D: ?Sized> {
    /// Indices in the training part of `data`.
    train: Vec<usize>,
    validation: Vec<usize>,
    data: Arc<D>,
}

impl<D: DataSet + ?Sized> Split<D> {
    /// Draws the validation samples: `share` of the training samples of `data`, rounded.
    ///
    /// # Errors
    ///
    /// The share is not between 0 and 1 or leaves a part empty, or `data` has validation samples.
    pub fn new(data: Arc<D>, share: f64, seed: u64) -> Result<Self, DataError> {
        if data.samples(Part::Validation) > 0 {
            return Err(DataError::SplitTwice);
        }
        let [train, validation] = split(data.samples(Part::Train), "training sample", share, seed)?;
        Ok(Split { train, validation, data })
    }
}

/// Returns the number of validation samples among so many; `unit` is the name of one.
pub(crate) fn share_of(samples: usize, unit: &'static str, share: f64) -> Result<usize, DataError> {
    if !(share > 0.0 && share < 1.0) {
        let problem = "it must be greater than 0 and less than 1".into();
        return Err(DataError::Option { option: "--val-split", value: share.to_string(), problem });
    }
    let count = (samples as f64 * share).round() as usize;
    for (part, left) in [(Part::Validation, count), (Part::Train, samples - count)] {
        if left == 0 {
            return Err(DataError::SplitEmpty { share, samples, unit, part });
        }
    }
    Ok(count)
}

/// Draws the validation samples among so many; returns the indices of the training samples and theirs.
pub(crate) fn split(
    samples: usize,
    unit: &'static str,
    share: f64,
    seed: u64,
) -> Result<[Vec<usize>; 2], DataError> {
    let count = share_of(samples, unit, share)?;
    let key = Key::new(seed).with_str("validation");
    let mut drawn: Vec<usize> = (0..samples).collect();
    drawn.sort_unstable_by_key(|index| (key.with(*index as u64).bits(), *index));
    let mut train = drawn.split_off(count);
    train.sort_unstable();
    drawn.sort_unstable();
    Ok([train, drawn])
}

impl<D: DataSet + ?Sized> DataSet for Split<D> {
    type Batch = D::Batch;

    fn samples(&self, part: Part) -> usize {
        match part {
            Part::Train => self.train.len(),
            Part::Validation => self.validation.len(),
            Part::Test => self.data.samples(Part::Test),
        }
    }

    fn batch(
        &self,
        part: Part,
        indices: &[usize],
        augment: Option<AugmentKey>,
    ) -> Result<D::Batch, DataError> {
        let of = |drawn: &[usize]| {
            let indices: Vec<usize> = indices.iter().map(|&index| drawn[index]).collect();
            self.data.batch(Part::Train, &indices, augment)
        };
        match part {
            Part::Train => of(&self.train),
            Part::Validation => of(&self.validation),
            Part::Test => self.data.batch(Part::Test, indices, augment),
        }
    }

    /// Returns the fingerprint of all training samples before the split, and of those drawn for `part`.
    fn fingerprint(&self, part: Part) -> Fingerprint {
        let drawn = match part {
            Part::Train => &self.train,
            Part::Validation => &self.validation,
            Part::Test => return self.data.fingerprint(Part::Test),
        };
        let whole = self.data.fingerprint(Part::Train);
        let content = whole.content.map(|content| {
            let mut hash = ContentHash::new();
            hash.word(content);
            hash.numbers(drawn);
            hash.finish()
        });
        let samples = drawn.len();
        let hashed = if whole.hashed == whole.samples { samples } else { whole.hashed.min(samples) };
        Fingerprint { samples, hashed, content }
    }

    fn preprocessing(&self) -> Option<Preprocessing> {
        self.data.preprocessing()
    }

    fn sample_name(&self, part: Part, index: usize) -> Option<String> {
        match part {
            Part::Train => self.data.sample_name(Part::Train, *self.train.get(index)?),
            Part::Validation => self.data.sample_name(Part::Train, *self.validation.get(index)?),
            Part::Test => self.data.sample_name(Part::Test, index),
        }
    }

    fn warnings(&self) -> Vec<String> {
        self.data.warnings()
    }

    fn tokenizer(&self) -> Option<&Tokenizer> {
        self.data.tokenizer()
    }
}

impl<D: ImageDataSet + ?Sized> ImageDataSet for Split<D> {
    fn shape(&self) -> SampleShape {
        self.data.shape()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 samples to train on and 7 to test on; a batch is the indices.
    struct Counted;

    impl DataSet for Counted {
        type Batch = Vec<usize>;

        fn samples(&self, part: Part) -> usize {
            [100, 7, 0][part as usize]
        }

        fn batch(
            &self,
            part: Part,
            indices: &[usize],
            _: Option<AugmentKey>,
        ) -> Result<Vec<usize>, DataError> {
            assert_ne!(part, Part::Validation);
            Ok(indices.to_vec())
        }
    }

    fn all(split: &Split<Counted>, part: Part) -> Vec<usize> {
        split.batch(part, &(0..split.samples(part)).collect::<Vec<_>>(), None).unwrap()
    }

    #[test]
    fn each_training_sample_is_in_one_part() {
        let split = |seed| Split::new(Arc::new(Counted), 0.1, seed).unwrap();
        let [train, validation] = [Part::Train, Part::Validation].map(|part| all(&split(3), part));
        assert_eq!((train.len(), validation.len(), split(3).samples(Part::Test)), (90, 10, 7));
        let mut both = [train, validation.clone()].concat();
        assert!(both[..90].is_sorted() && both[90..].is_sorted());
        both.sort_unstable();
        assert!(both.into_iter().eq(0..100));
        assert_eq!(all(&split(3), Part::Validation), validation);
        assert_ne!(all(&split(4), Part::Validation), validation);
        assert_ne!(split(3).fingerprint(Part::Train), split(4).fingerprint(Part::Train));
        assert_eq!(split(3).fingerprint(Part::Test), Counted.fingerprint(Part::Test));
    }

    #[test]
    fn a_split_that_makes_no_sense_is_refused() {
        let refused = |share| Split::new(Arc::new(Counted), share, 0).map(drop).unwrap_err().to_string();
        for share in [0.0, 1.0, -0.5, f64::NAN] {
            assert!(refused(share).ends_with("it must be greater than 0 and less than 1"), "{share}");
        }
        let none = "of 100 training samples it leaves none for validation; give another share";
        assert_eq!(refused(0.004), format!("--val-split 0.004: {none}"));
        assert!(refused(0.999).contains("leaves none for training"));
        let twice = Split::new(Arc::new(Split::new(Arc::new(Counted), 0.1, 0).unwrap()), 0.1, 0);
        assert!(matches!(twice.map(drop), Err(DataError::SplitTwice)));
    }
}
