//! In-place arithmetic of attention's weights: from scores to weights, and from the weights' gradient to the
//! scores' gradient.

use pulp::Arch;

use crate::lanes::{exponentials, largest, sum_of};

/// Properties of the rows of scores `[batch, heads, time, time]`.
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

    /// Sets the padding's part of a row of weights, or of their gradients, to 0.
    #[inline(always)]
    fn hide(&self, row: usize, values: &mut [f32]) {
        let Some(padding) = self.padding else { return };
        let sample = row / (self.heads * self.time);
        for (value, padding) in values.iter_mut().zip(&padding[sample * self.time..]) {
            *value = if *padding { 0.0 } else { *value };
        }
    }

    /// Turns scores into weights. Hidden keys have weight 0; if all keys are hidden, all weights are 0.
    pub(super) fn softmax(&self, scores: &mut [f32]) {
        Arch::new().dispatch(
            #[inline(always)]
            || {
                for (row, scores) in scores.chunks_exact_mut(self.time).enumerate() {
                    let (seen, hidden) = scores.split_at_mut(self.visible(row));
                    hidden.fill(0.0);
                    if let Some(padding) = self.padding {
                        let sample = row / (self.heads * self.time);
                        for (score, padding) in seen.iter_mut().zip(&padding[sample * self.time..]) {
                            *score = if *padding { f32::NEG_INFINITY } else { *score };
                        }
                    }
                    let largest = largest(seen);
                    // If scores are -∞ without a mask, the weights must become NaN.
                    if largest == f32::NEG_INFINITY && self.sees_nothing(row) {
                        seen.fill(0.0);
                        continue;
                    }
                    let sum = exponentials(seen, largest, self.scale);
                    let inverse = 1.0 / sum;
                    seen.iter_mut().for_each(|weight| *weight *= inverse);
                    // Padding has weight 0 even in a row of NaN.
                    if sum.is_nan() {
                        self.hide(row, seen);
                    }
                }
            },
        );
    }

    /// Turns the gradient g with respect to the weights p into that with respect to the scores: p · (g − Σ
    /// g·p) · scale. If the weights were multiplied by factors, g is first multiplied by them.
    pub(super) fn gradient(&self, weights: &[f32], factors: Option<&[f32]>, gradient: &mut [f32]) {
        Arch::new().dispatch(
            #[inline(always)]
            || {
                let rows = weights.chunks_exact(self.time).zip(gradient.chunks_exact_mut(self.time));
                for (row, (weights, gradient)) in rows.enumerate() {
                    let visible = self.visible(row);
                    let (gradient, hidden) = gradient.split_at_mut(visible);
                    let weights = &weights[..visible];
                    hidden.fill(0.0);
                    if let Some(factors) = factors {
                        let factors = &factors[row * self.time..][..visible];
                        gradient.iter_mut().zip(factors).for_each(|(gradient, factor)| *gradient *= factor);
                    }
                    // Padding must not enter the sum, even if its values are not finite.
                    self.hide(row, gradient);
                    let sum = sum_of(weights, gradient, |weight, gradient| weight * gradient);
                    for (gradient, weight) in gradient.iter_mut().zip(weights) {
                        *gradient = *weight * (*gradient - sum) * self.scale;
                    }
                    if !sum.is_finite() {
                        self.hide(row, gradient);
                    }
                }
            },
        );
    }
}

pub(super) fn multiplied(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a * b).collect()
}
