//! Arithmetic of rows of attention's weights: from scores to weights, and from the weights' gradient to the
//! scores' gradient.

use crate::dropout_mask::DropoutMask;
use crate::lanes::{exponentials, largest, sum_of};

/// Rows of scores `[batch, heads, time, time]`.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) heads: usize,
    pub(super) time: usize,
    /// Factor of the scores before softmax.
    pub(super) scale: f32,
    pub(super) causal: bool,
    /// True for keys that no query may attend to: `[batch, time]`.
    pub(super) padding: Option<&'a [bool]>,
}

impl Rows<'_> {
    /// Returns the number of keys that the query of a row may attend to, from the first one on.
    #[inline(always)]
    fn visible(&self, row: usize) -> usize {
        if self.causal { row % self.time + 1 } else { self.time }
    }

    /// Returns true if all keys that the query of a row could attend to are padding.
    fn sees_nothing(&self, row: usize) -> bool {
        let sample = row / (self.heads * self.time);
        self.padding.is_some_and(|padding| {
            padding[sample * self.time..][..self.visible(row)].iter().all(|padding| *padding)
        })
    }

    /// Sets what a row hides to a value, in its first keys.
    #[inline(always)]
    fn hide(&self, row: usize, values: &mut [f32], hidden: f32) {
        values[self.visible(row)..].fill(hidden);
        let Some(padding) = self.padding else { return };
        let sample = row / (self.heads * self.time);
        for (value, padding) in values.iter_mut().zip(&padding[sample * self.time..]) {
            *value = if *padding { hidden } else { *value };
        }
    }

    /// Turns a row's scores of the first keys, at least those that it sees, into weights. Hidden keys have
    /// weight 0; if all keys are hidden, all weights are 0.
    #[inline(always)]
    pub(super) fn softmax(&self, row: usize, scores: &mut [f32]) {
        self.hide(row, scores, f32::NEG_INFINITY);
        let largest = largest(scores);
        // If scores are -∞ without a mask, the weights must become NaN.
        if largest == f32::NEG_INFINITY && self.sees_nothing(row) {
            scores.fill(0.0);
            return;
        }
        let sum = exponentials(scores, largest, self.scale);
        let inverse = 1.0 / sum;
        scores.iter_mut().for_each(|weight| *weight *= inverse);
        // Hidden keys have weight 0 even in a row of NaN.
        if sum.is_nan() {
            self.hide(row, scores, 0.0);
        }
    }

    /// Turns the gradient g with respect to the weights p of a row's first keys into that with respect to the
    /// scores: p · (g − Σ g·p) · scale. If weights were dropped by a mask, g is first multiplied by its
    /// factors.
    #[inline(always)]
    pub(super) fn gradient(
        &self,
        row: usize,
        weights: &[f32],
        mask: Option<&DropoutMask>,
        gradient: &mut [f32],
    ) {
        if let Some(mask) = mask {
            mask.multiply(row, 0, gradient);
        }
        // What is hidden must not enter the sum, even if its values are not finite.
        self.hide(row, gradient, 0.0);
        let sum = sum_of(weights, gradient, |weight, gradient| weight * gradient);
        for (gradient, weight) in gradient.iter_mut().zip(weights) {
            *gradient = *weight * (*gradient - sum) * self.scale;
        }
        if !sum.is_finite() {
            self.hide(row, gradient, 0.0);
        }
    }
}
