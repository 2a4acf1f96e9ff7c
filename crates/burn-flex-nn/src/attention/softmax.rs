//! The arithmetic of attention's weights, in place: from scores to weights, and from the weights' gradient to
//! the scores'.

use pulp::Arch;

use crate::lanes::{exponentials, largest, sum_of};

/// What the rows of scores `[batch, heads, time, time]` are.
pub(super) struct Rows<'a> {
    pub(super) heads: usize,
    pub(super) time: usize,
    /// By which the scores are multiplied before softmax.
    pub(super) scale: f32,
    pub(super) causal: bool,
    /// `[batch, time]`: keys that nobody looks at.
    pub(super) padding: Option<&'a [bool]>,
}

impl Rows<'_> {
    /// How many keys the query of a row may look at, from the first on.
    #[inline(always)]
    fn visible(&self, row: usize) -> usize {
        if self.causal { row % self.time + 1 } else { self.time }
    }

    /// Whether all that the query of a row could look at is padding.
    fn sees_nothing(&self, row: usize) -> bool {
        let sample = row / (self.heads * self.time);
        self.padding.is_some_and(|padding| {
            padding[sample * self.time..][..self.visible(row)].iter().all(|padding| *padding)
        })
    }

    /// Makes 0 of what a row of weights, or of their gradients, has for padding.
    #[inline(always)]
    fn hide(&self, row: usize, values: &mut [f32]) {
        let Some(padding) = self.padding else { return };
        let sample = row / (self.heads * self.time);
        for (value, padding) in values.iter_mut().zip(&padding[sample * self.time..]) {
            *value = if *padding { 0.0 } else { *value };
        }
    }

    /// Turns scores into weights. What may not be seen has none; a query that sees nothing has none at all.
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
                    // Scores that are -∞ of themselves are no weights: they become NaN.
                    if largest == f32::NEG_INFINITY && self.sees_nothing(row) {
                        seen.fill(0.0);
                        continue;
                    }
                    let sum = exponentials(seen, largest, self.scale);
                    let inverse = 1.0 / sum;
                    seen.iter_mut().for_each(|weight| *weight *= inverse);
                    // Padding has no weight in a row that is NaN either.
                    if sum.is_nan() {
                        self.hide(row, seen);
                    }
                }
            },
        );
    }

    /// Turns the gradient with respect to the weights into that with respect to the scores: with g the former
    /// and p the weights, p · (g − Σ g·p) · scale. Where there are factors by which the weights were
    /// multiplied, g is first multiplied by them.
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
                    // What nobody looks at is no part of the sum, whatever its values are.
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

/// The products of two.
pub(super) fn multiplied(a: &[f32], b: &[f32]) -> Vec<f32> {
    a.iter().zip(b).map(|(a, b)| a * b).collect()
}
