//! Error feedback: the part of a shard's gradients that is not sent yet, kept as a part of the mean.
//!
//! The optimizer sees a sum over the C samples of a step, which it divides by C. The next step may have
//! another number: a short last batch, texts of other lengths, a batch that grows. A remainder that was kept
//! as a sum would then count C/C′ times. So a shard with the gradient g and the kept e has p = g + C·e to
//! send, and if it sends Δ it keeps e′ = (p − Δ)/C: Σ Δ/C over all steps, and the kept remainder, is Σ g/C.
//!
//! C is known when the losses have been summed, which is before the first bucket is sent, but after the
//! passes of most shards. So a shard's gradient waits until its bucket is sent.
//!
//! Like PyTorch's hooks, and other than the papers' algorithms, e is in units of the gradient, not of the
//! update: a remainder from one learning rate is applied at that of the step in which it is sent.

use kolo_optim::vectorized;

/// Adds the remainder to a gradient: p = g + C·e.
pub(super) fn recall(gradient: &mut [f32], kept: &[f32], samples: f32) {
    vectorized(
        #[inline(always)]
        || gradient.iter_mut().zip(kept).for_each(|(g, e)| *g += samples * e),
    );
}

/// Keeps the remainder: e = (p − Δ)/C.
pub(super) fn keep(kept: &mut [f32], rest: &[f32], samples: f32) {
    vectorized(
        #[inline(always)]
        || kept.iter_mut().zip(rest).for_each(|(e, rest)| *e = rest / samples),
    );
}

/// Keeps a late gradient, after the shard's message was made: e += g/C.
pub(super) fn keep_more(kept: &mut [f32], gradient: &[f32], samples: f32) {
    vectorized(
        #[inline(always)]
        || kept.iter_mut().zip(gradient).for_each(|(e, g)| *e += g / samples),
    );
}
