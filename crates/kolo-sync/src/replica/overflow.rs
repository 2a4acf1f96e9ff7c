//! Updates that overflow: with a learning rate that is too large, a finite gradient makes values infinite.
//!
//! Values are checked in the pass that updates them, while they are in the cache. The updates are the same
//! bits on all ranks, so all ranks find the same. A finding ends the replica: from then on it returns no
//! values, so that none of them reach a checkpoint, a copy or another replica.

use std::ops::Range;

use kolo_optim::finite::are_finite;
use kolo_optim::{Layout, SpanId};
use kolo_reduction::Error;
use kolo_values::division::within;

/// Returns true if those of a tensor's values are finite that this rank holds. The tensor lies at `place`.
pub(crate) fn held_are_finite(values: &[f32], held: &[Range<usize>], place: &Range<usize>) -> bool {
    within(held, place).all(|part| are_finite(&values[part]))
}

/// Findings about a replica's values.
#[derive(Debug, Default)]
pub struct Overflow {
    /// True for each tensor that was not finite from the start, such as an additive mask of −∞. These are
    /// not reported.
    given: Vec<bool>,
    /// True if the step whose updates are being applied has left a value that is not finite.
    found: bool,
    /// True if that step's gradient was so large that its square may have overflowed in the optimizer's
    /// state.
    is_large: bool,
    /// Step after which values were not finite, and the first such tensor.
    named: Option<(u64, String)>,
}

impl Overflow {
    /// Creates the record for values before the first step, of which this rank holds these runs.
    pub(crate) fn new(layout: &Layout, values: &[f32], held: &[Range<usize>]) -> Self {
        let given = layout.spans().iter().map(|span| !held_are_finite(values, held, &span.range())).collect();
        Overflow { given, ..Overflow::default() }
    }

    /// True for each tensor that was not finite from the start.
    pub(crate) fn given(&self) -> &[bool] {
        &self.given
    }

    /// Returns true if a tensor was not finite from the start.
    pub(crate) fn is_given(&self, id: SpanId) -> bool {
        self.given.get(id.0).is_some_and(|given| *given)
    }

    /// Takes the findings of all ranks, each of which has looked at its own parts.
    pub(crate) fn given_on_any(&mut self, of_ranks: Vec<Vec<bool>>) {
        let any = |id| of_ranks.iter().any(|given| given.get(id) == Some(&true));
        self.given = (0..self.given.len()).map(any).collect();
    }

    /// Begins the updates of a step; `is_large` says that its gradient is large.
    pub(crate) fn begin(&mut self, is_large: bool) {
        (self.found, self.is_large) = (false, is_large);
    }

    /// Checks values of a tensor that have been updated.
    pub(crate) fn look(&mut self, id: SpanId, values: &[f32]) {
        self.found |= !are_finite(values) && !self.is_given(id);
    }

    /// Returns true if the step has left a value that is not finite, as far as this rank has looked.
    pub(crate) fn has_found(&self) -> bool {
        self.found
    }

    /// Takes the finding of all ranks.
    pub(crate) fn find(&mut self, found: bool) {
        self.found |= found;
    }

    /// Returns true if [`Overflow::name`] must be called when all updates of a step are applied.
    pub(crate) fn is_to_be_named(&self) -> bool {
        self.found || self.is_large
    }

    /// Records the first tensor that is not finite after a step, if there is one.
    pub(crate) fn name(&mut self, step: u64, tensor: Option<String>) -> Result<(), Error> {
        self.named = tensor.map(|tensor| (step, tensor));
        self.refuse()
    }

    /// Returns an error if values that are not finite have been found.
    ///
    /// # Errors
    ///
    /// [`Error::ValuesNotFinite`].
    pub fn refuse(&self) -> Result<(), Error> {
        match &self.named {
            Some((step, tensor)) => Err(Error::ValuesNotFinite { step: *step, tensor: tensor.clone() }),
            None => Ok(()),
        }
    }
}
