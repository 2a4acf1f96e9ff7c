//! Burn's matrix products, in the current precision.

use burn::nn::Linear;
use burn::tensor::{Tensor, module};

use crate::precision::{lower, raise};

/// Computes `layer.forward(x)` in the precision of [`with_precision`](crate::with_precision).
///
/// # Shapes
///
/// - `x`: `[…, inputs]` - output: `[…, outputs]`
///
/// # Panics
///
/// Panics if `x` has another width than the layer.
pub fn linear<const D: usize>(layer: &Linear, x: Tensor<D>) -> Tensor<D> {
    let (weight, bias) = (layer.weight.val(), layer.bias.as_ref().map(|bias| bias.val()));
    let [width, _] = weight.dims();
    assert_eq!(x.dims()[D - 1], width, "inputs of a linear layer of {width}");
    raise(module::linear(lower(x), lower(weight), bias.map(lower)))
}

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
