//! Validation samples drawn from the training samples of a data set.

use std::collections::BTreeSet;
use std::sync::Arc;

use kolo_sampler::key::Key;
use kolo_schedule::words::{counted, first_names};

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

    /// Returns the samples that were drawn for a part; `None` if it is not divided.
    fn drawn(&self, part: Part) -> Option<&[usize]> {
        match part {
            Part::Train => Some(&self.train),
            Part::Validation => Some(&self.validation),
            Part::Test => None,
        }
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

/// Warns of classes with training samples and without validation samples, if others have some.
pub(crate) fn without_validation(data: &impl DataSet) -> Option<String> {
    let labels = |part| (0..data.samples(part)).filter_map(move |index| data.label(part, index));
    let judged: BTreeSet<u32> = labels(Part::Validation).collect();
    let lacking: BTreeSet<u32> = labels(Part::Train).filter(|label| !judged.contains(label)).collect();
    if judged.is_empty() || lacking.is_empty() {
        return None;
    }
    let names = data.preprocessing().map(|how| how.label_names).unwrap_or_default();
    let name = |label: &u32| names.get(*label as usize).cloned().unwrap_or_else(|| label.to_string());
    Some(format!(
        "the validation samples lack {} ({}), which no score then judges; give more validation samples",
        counted(lacking.len(), "class"),
        first_names(lacking.iter().map(name), 10)
    ))
}

impl<D: DataSet + ?Sized> DataSet for Split<D> {
    type Batch = D::Batch;

    fn samples(&self, part: Part) -> usize {
        self.drawn(part).map_or_else(|| self.data.samples(part), <[usize]>::len)
    }

    fn batch(
        &self,
        part: Part,
        indices: &[usize],
        augment: Option<AugmentKey>,
    ) -> Result<D::Batch, DataError> {
        let Some(drawn) = self.drawn(part) else { return self.data.batch(part, indices, augment) };
        let indices: Vec<usize> = indices.iter().map(|&index| drawn[index]).collect();
        self.data.batch(Part::Train, &indices, augment)
    }

    /// Returns the fingerprint of all training samples before the split, and of those drawn for `part`.
    fn fingerprint(&self, part: Part) -> Fingerprint {
        let Some(drawn) = self.drawn(part) else { return self.data.fingerprint(part) };
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
        let (part, index) = self.origin(part, index);
        self.data.sample_name(part, index)
    }

    fn label(&self, part: Part, index: usize) -> Option<u32> {
        let (part, index) = self.origin(part, index);
        self.data.label(part, index)
    }

    fn origin(&self, part: Part, index: usize) -> (Part, usize) {
        let whole = self.drawn(part).and_then(|drawn| drawn.get(index));
        whole.map_or((part, index), |whole| (Part::Train, *whole))
    }

    fn warnings(&self) -> Vec<String> {
        self.data.warnings().into_iter().chain(without_validation(self)).collect()
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
    use crate::{Augment, ImageSet, Images};

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
        let origins = |part| (0..split(3).samples(part)).map(move |index| split(3).origin(part, index));
        assert!(origins(Part::Validation).eq(validation.into_iter().map(|index| (Part::Train, index))));
        assert!(origins(Part::Test).eq((0..7).map(|index| (Part::Test, index))));
    }

    #[test]
    fn classes_without_validation_samples_are_named() {
        let labels: Vec<u32> = (0..30).map(|index| [0, 1, 0, 2, 0, 0][index % 6]).collect();
        let images = |labels: &[u32]| Images {
            channels: 1,
            height: 1,
            width: 1,
            pixels: labels.iter().map(|label| *label as u8).collect(),
            labels: labels.to_vec(),
        };
        let data = ImageSet::new(images(&labels), images(&[]), 4, Augment::default()).unwrap();
        let data = Arc::new(data.with_label_names(["a", "b", "c", "none at all"]));
        let mut numbers = BTreeSet::new();
        for seed in 0..40 {
            let split = Split::new(Arc::clone(&data), 0.1, seed).unwrap();
            let judged = split.batch(Part::Validation, &[0, 1, 2], None).unwrap().labels;
            let lacking: Vec<&str> =
                (0..3).filter(|label| !judged.contains(label)).map(|l| ["a", "b", "c"][l as usize]).collect();
            let classes = if lacking.len() == 1 { "1 class" } else { "2 classes" };
            let words =
                format!("the validation samples lack {classes} ({}), which no score", lacking.join(", "));
            match &*split.warnings() {
                [] => assert!(lacking.is_empty(), "{lacking:?}"),
                all => assert!(all.len() == 1 && all[0].starts_with(&words), "{words}: {all:?}"),
            }
            numbers.insert(lacking.len());
        }
        assert_eq!(numbers.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
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
