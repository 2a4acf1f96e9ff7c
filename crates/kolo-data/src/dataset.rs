//! What a trainer needs of a data set.

use crate::augment::AugmentKey;
use crate::batch::Batch;

/// Which samples of a data set are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Those to train on.
    Train,
    /// Those to test on.
    Test,
}

/// What a model has to know of the samples before it is built.
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

/// Samples with their labels, to train on and to test on.
///
/// Every worker holds one and asks for the samples of its own shards. What comes back may depend on the
/// arguments only: then it does not matter who asks, nor when.
pub trait DataSet: Send + Sync {
    /// What its samples look like.
    fn shape(&self) -> SampleShape;

    /// How many samples `part` has.
    fn samples(&self, part: Part) -> usize;

    /// The samples at `indices`, ready for a model; altered at random if `augment` is given. The batch may be
    /// empty.
    ///
    /// # Panics
    ///
    /// If an index is not below [`samples`](DataSet::samples).
    fn batch(&self, part: Part, indices: &[usize], augment: Option<AugmentKey>) -> Batch;
}
