//! The parts of a data set.

/// A part of a data set.
///
/// ```
/// use kolo_data::{Part, open};
///
/// let data = open("fashion-mnist-small")?;
/// assert_eq!(Part::ALL.map(|part| data.samples(part)), [10_000, 2_000, 0]);
/// # Ok::<(), kolo_data::DataError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Samples to train on.
    Train,
    /// Samples to test on when the training is over.
    Test,
    /// Samples by which decisions are made during the training; most data sets have none.
    Validation,
}

impl Part {
    /// All parts.
    pub const ALL: [Part; 3] = [Part::Train, Part::Test, Part::Validation];
}
