//! The interface between a data set and a trainer.

use crate::augment::AugmentKey;
use crate::batch::Batch;
use crate::error::DataError;
use crate::fingerprint::Fingerprint;
use crate::part::Part;
use crate::preprocessing::Preprocessing;
use crate::tokenizer::Tokenizer;

/// Samples to train on, to validate and to test on, of any kind: images, windows of a text, rows of a table.
///
/// Every worker holds a copy and asks for the samples of its own shards. A batch may depend on the
/// arguments only, so that every rank gets the same batch at any time.
///
/// Windows of a text, without copies of it:
///
/// ```
/// use kolo_data::{AugmentKey, DataError, DataSet, Part};
///
/// struct Windows(Vec<u8>);
///
/// impl DataSet for Windows {
///     type Batch = Vec<[u8; 4]>;
///
///     fn samples(&self, part: Part) -> usize {
///         if part == Part::Train { self.0.len() / 4 } else { 0 }
///     }
///
///     fn batch(&self, part: Part, indices: &[usize], _: Option<AugmentKey>) -> Result<Self::Batch, DataError> {
///         let window = |&index: &usize| {
///             let window = self.0.get(4 * index..4 * index + 4).and_then(|text| text.try_into().ok());
///             window.ok_or_else(|| DataError::sample(part, index, "it is not in the text"))
///         };
///         indices.iter().map(window).collect()
///     }
/// }
///
/// let data = Windows(b"all workers".to_vec());
/// assert_eq!(data.batch(Part::Train, &[1], None)?, [*b"work"]);
/// # Ok::<(), DataError>(())
/// ```
pub trait DataSet: Send + Sync {
    /// Samples ready for a model. They are plain numbers because another thread prepares them ahead.
    type Batch: Send + 'static;

    /// Number of samples in `part`. A data set that has nothing but training samples is valid.
    fn samples(&self, part: Part) -> usize;

    /// Returns the samples at `indices`, of which there is at least one. They are altered at random if
    /// `augment` is given and the data set supports it.
    ///
    /// # Errors
    ///
    /// A sample cannot be read or decoded; the error names it ([`DataError::sample`]).
    ///
    /// # Panics
    ///
    /// If an index is not below [`samples`](DataSet::samples).
    fn batch(
        &self,
        part: Part,
        indices: &[usize],
        augment: Option<AugmentKey>,
    ) -> Result<Self::Batch, DataError>;

    /// Returns the fingerprint of the samples of `part`. Workers compare it when they meet, and a resumed run
    /// compares it with its checkpoint, so that one model is never trained on different data by accident.
    ///
    /// The default implementation covers the number of samples. It adds the content of
    /// [some](crate::FINGERPRINT_SAMPLES) of them, requested from [`batch`](DataSet::batch) one by one, if
    /// [`ContentHash::batch`](crate::ContentHash::batch) knows the type of the batch. A data set with its
    /// own batch type hashes its numbers with [`Fingerprint::of_samples`]; one that can hash all of its
    /// samples quickly uses [`Fingerprint::of_all`].
    fn fingerprint(&self, part: Part) -> Fingerprint {
        let one = |index, hash: &mut crate::ContentHash| {
            self.batch(part, &[index], None).is_ok_and(|batch| hash.batch(&batch))
        };
        Fingerprint::of_samples(self.samples(part), one)
    }

    /// Returns the preprocessing that [`batch`](DataSet::batch) applies to an image that is not altered,
    /// for use of the trained model outside Kolo. `None` if the data set cannot describe it.
    fn preprocessing(&self) -> Option<Preprocessing> {
        None
    }

    /// Returns the class of a sample; `None` if the data set has no classes, or reads the sample for it.
    fn label(&self, part: Part, index: usize) -> Option<u32> {
        let _ = (part, index);
        None
    }

    /// Returns the name of a sample, as of its file, by which people find it; `None` if it has but an index.
    fn sample_name(&self, part: Part, index: usize) -> Option<String> {
        let _ = (part, index);
        None
    }

    /// Returns the part and the index by which errors name a sample, and by which it is found in its files:
    /// of a [`Split`](crate::Split) those before the split.
    fn origin(&self, part: Part, index: usize) -> (Part, usize) {
        (part, index)
    }

    /// Returns sentences about the data that the user of a run should read, as about skipped files.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns the tokenizer of a text, which a run keeps beside the weights; `None` for other samples.
    fn tokenizer(&self) -> Option<&Tokenizer> {
        None
    }
}

/// Properties of images that a model needs before it is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleShape {
    /// Channels of an image: 1 for gray, 3 for color.
    pub channels: usize,
    /// Rows of an image.
    pub height: usize,
    /// Columns of an image.
    pub width: usize,
    /// Number of classes, and every label is below it; of texts the number of different tokens.
    pub classes: usize,
    /// True for windows of a text: an image of one row, with tokens as pixels. Its last one is only
    /// predicted.
    pub is_text: bool,
}

/// Images with their labels.
pub trait ImageDataSet: DataSet<Batch = Batch> {
    /// Returns the shape of a sample and the number of classes.
    fn shape(&self) -> SampleShape;
}
