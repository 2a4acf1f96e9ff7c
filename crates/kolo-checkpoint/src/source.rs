//! Source of the values of a checkpoint while it is written.

use std::borrow::Cow;
use std::ops::Range;

use crate::error::Error;
use crate::outline::Outline;
use kolo_optim::finite::are_finite;

/// Values of a checkpoint's parts, which are read when their turn to be written comes: so nobody needs all
/// of them at once.
pub trait Source {
    /// Returns elements of flat memory of a part, by its number in the [`Outline`].
    ///
    /// # Errors
    ///
    /// Returns [`Error::NoValues`] if the values cannot be had.
    fn read(&mut self, part: usize, place: Range<usize>) -> Result<Cow<'_, [f32]>, Error>;
}

/// A source that refuses values that are not finite, as [`Snapshot::new`](crate::Snapshot::new) does.
pub(crate) struct FiniteSource<'a> {
    pub(crate) outline: &'a Outline,
    pub(crate) source: &'a mut dyn Source,
}

impl Source for FiniteSource<'_> {
    fn read(&mut self, part: usize, place: Range<usize>) -> Result<Cow<'_, [f32]>, Error> {
        let values = self.source.read(part, place.clone())?;
        if are_finite(&values) {
            return Ok(values);
        }
        let mut pieces = self.outline.pieces(part).filter(|piece| !piece.entry.given);
        match pieces.find(|piece| piece.place.start <= place.start && place.end <= piece.place.end) {
            Some(piece) => {
                let (step, tensor) = (self.outline.position.step, piece.entry.key());
                Err(Error::SnapshotNotFinite { step, tensor })
            }
            None => Ok(values),
        }
    }
}
