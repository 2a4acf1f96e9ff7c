//! What a shard has not said yet, kept as a part of the mean.
//!
//! What the optimizer sees is a sum over the C samples of a step, which it divides by C; the next step may
//! have others: a short last batch, texts of other lengths, a batch that grows. A rest that was kept as a sum
//! would then count C/C′ times. So with e kept, a shard that has the gradient g has p = g + C·e to say, and
//! if it says Δ it keeps e′ = (p − Δ)/C: Σ Δ/C over all steps, and what is kept, is Σ g/C.
//!
//! C is known when the losses have been summed, which is before the first bucket sets out, but after the
//! passes of most shards. So a shard's gradient waits until its bucket does.
//!
//! Like PyTorch's hooks, and other than the papers' algorithms, e is in units of the gradient, not of the
//! update: what was left at one learning rate is applied at that of the step in which it is said.

use kolo_optim::vectorised;

/// A gradient becomes what there is to say: p = g + C·e.
pub(super) fn recall(gradient: &mut [f32], kept: &[f32], samples: f32) {
    vectorised(
        #[inline(always)]
        || gradient.iter_mut().zip(kept).for_each(|(g, e)| *g += samples * e),
    );
}

/// Keeps what has not been said: e = (p − Δ)/C.
pub(super) fn keep(kept: &mut [f32], rest: &[f32], samples: f32) {
    vectorised(
        #[inline(always)]
        || kept.iter_mut().zip(rest).for_each(|(e, rest)| *e = rest / samples),
    );
}

/// Keeps what has come when all had been said: e += g/C.
pub(super) fn keep_more(kept: &mut [f32], gradient: &[f32], samples: f32) {
    vectorised(
        #[inline(always)]
        || kept.iter_mut().zip(gradient).for_each(|(e, g)| *e += g / samples),
    );
}
