//! The argument of an optimizer's rule, and the part of a tensor that it holds.

use std::ops::Range;

/// Part of a tensor that a rule has to see at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The element alone: any run of a tensor's elements can be stepped as soon as its bucket is reduced.
    Element,
    /// The whole tensor, for example for its norm. A tensor that spans several buckets is stepped when the
    /// last of them is reduced.
    Tensor,
}

/// Elements of one tensor to step: all of them with [`Scope::Tensor`], otherwise any run.
#[derive(Debug)]
pub struct Update<'a> {
    /// Range of these elements in flat memory, and in the optimizer's state.
    pub range: Range<usize>,
    /// Values of the elements, which the optimizer changes.
    pub parameters: &'a mut [f32],
    /// Gradient, summed over the global batch. The optimizer multiplies it by `scale`.
    pub gradient: &'a [f32],
    /// Factor that turns the summed gradient into the batch mean, times the factor of the gradient
    /// transforms.
    pub scale: f32,
    /// True if weight decay applies to this tensor.
    pub decay: bool,
    /// Index of the tensor's group in the argument of
    /// [`Optimizer::set_groups`](crate::Optimizer::set_groups); 0 if there are no groups.
    pub group: usize,
}

impl Update<'_> {
    /// Returns the same update, for a call within one that still needs it.
    pub fn reborrow(&mut self) -> Update<'_> {
        let Update { ref range, ref mut parameters, gradient, scale, decay, group } = *self;
        Update { range: range.clone(), parameters, gradient, scale, decay, group }
    }
}
