//! What a trainer needs of a data set.

use crate::augment::AugmentKey;
use crate::batch::Batch;
use crate::fingerprint::Fingerprint;
use crate::preprocessing::Preprocessing;

/// Which samples of a data set are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Those to train on.
    Train,
    /// Those to test on.
    Test,
}

/// Samples to train on and to test on, of any kind: images, windows of a text, rows of a table.
///
/// Every worker holds one and asks for the samples of its own shards. What comes back may depend on the
/// arguments only: then it does not matter who asks, nor when.
pub trait DataSet: Send + Sync {
    /// Some samples, ready for a model: plain numbers, because a thread prepares them ahead.
    type Batch: Send + 'static;

    /// How many samples `part` has. No model is tested on a data set without samples to test on.
    fn samples(&self, part: Part) -> usize;

    /// The samples at `indices`, of which there is at least one; altered at random if `augment` is given and
    /// the data set has a way to.
    ///
    /// # Panics
    ///
    /// If an index is not below [`samples`](DataSet::samples).
    fn batch(&self, part: Part, indices: &[usize], augment: Option<AugmentKey>) -> Self::Batch;

    /// What tells the samples of `part` from others: workers compare it when they meet, and a run that is
    /// resumed compares it with its checkpoint, so that nobody trains one model on different data unawares.
    ///
    /// As it comes it is their number and the content of
    /// [some](crate::FINGERPRINT_SAMPLES), which it asks [`batch`](DataSet::batch) for one by one, where a
    /// batch is of a type that [`ContentHash::batch`](crate::ContentHash::batch) knows; of others only the
    /// number. A set with batches of its own type adds their numbers itself
    /// ([`Fingerprint::of_samples`]), and one that can hash all of its samples quickly does
    /// ([`Fingerprint::of_all`]).
    fn fingerprint(&self, part: Part) -> Fingerprint {
        let one = |index, hash: &mut crate::ContentHash| hash.batch(&self.batch(part, &[index], None));
        Fingerprint::of_samples(self.samples(part), one)
    }

    /// What [`batch`](DataSet::batch) does to an image that is not altered, for those who use the trained
    /// model elsewhere; `None` where it cannot be said.
    fn preprocessing(&self) -> Option<Preprocessing> {
        None
    }
}

/// What a model has to know of images before it is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleShape {
    /// Channels of an image: 1 for grey, 3 for colour.
    pub channels: usize,
    /// Rows of an image.
    pub height: usize,
    /// Columns of an image.
    pub width: usize,
    /// Number of classes; every label is below.
    pub classes: usize,
}

/// Images with their labels.
pub trait ImageDataSet: DataSet<Batch = Batch> {
    /// What its samples look like.
    fn shape(&self) -> SampleShape;
}
