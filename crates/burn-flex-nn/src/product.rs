//! Burn's matrix products, in the current precision.

use burn::tensor::Tensor;

use crate::precision::{lower, raise};

/// Computes `a.matmul(b)` in the precision of [`with_precision`](crate::with_precision).
///
/// # Shapes
///
/// - `a`: `[…, rows, inner]` - `b`: `[…, inner, columns]` - output: `[…, rows, columns]`
///
/// # Panics
///
/// Panics, as Burn does, if the shapes do not match.
pub fn matmul<const D: usize>(a: Tensor<D>, b: Tensor<D>) -> Tensor<D> {
    raise(lower(a).matmul(lower(b)))
}
