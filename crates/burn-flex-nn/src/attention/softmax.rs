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
                    if largest == f32::NEG_INFINITY && !seen.iter().any(|score| score.is_nan()) {
                        seen.fill(0.0);
                        continue;
                    }
                    let inverse = 1.0 / exponentials(seen, largest, self.scale);
                    seen.iter_mut().for_each(|weight| *weight *= inverse);
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
                    let sum = sum_of(weights, gradient, |weight, gradient| weight * gradient);
                    for (gradient, weight) in gradient.iter_mut().zip(weights) {
                        *gradient = *weight * (*gradient - sum) * self.scale;
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
