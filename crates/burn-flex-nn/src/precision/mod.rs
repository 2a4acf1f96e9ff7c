//! Mixed precision (Micikevicius et al. 2018, [arXiv:1710.03740](https://arxiv.org/abs/1710.03740)):
//! parameters stay `f32`, and the operations marked in [`OPERATIONS`] compute with values of a lower type.
//!
//! A lowered operation works like the matrix units of GPUs: it rounds its inputs to the type, sums products
//! in `f32`, and rounds the result to the type. Gradients work the same way. Everything between such
//! operations is `f32`. A device that supports the type uses tensors of it. On `flex`, tensors stay `f32` and
//! hold values of the type. Burn's own products of `bf16` are the same arithmetic with more copies; those of
//! `f16` round partial sums at the borders of cache blocks, so that their bits would depend on the caches.

mod kind;
mod round;

pub use self::kind::Precision;

use std::cell::Cell;

use burn::tensor::{FloatDType, Tensor};

use crate::on_flex;

/// Operation of this crate, with its type within [`with_precision`].
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// Name of the function.
    pub name: &'static str,
    /// True if it computes in the lower type.
    pub is_lowered: bool,
    /// Tensors that are rounded, or the reason why none is.
    pub about: &'static str,
}

/// Operations with their types: the authoritative list. `linear_gelu`, `linear_gelu_tanh` and `linear_add`
/// are `linear`, followed by a GELU and by a sum in `f32`. `fork_layer_norm` is `layer_norm`, and `gelu_tanh`
/// is `gelu`. `linear_cross_entropy` is `matmul`, followed by `cross_entropy`; so is
/// `smoothed_linear_cross_entropy`. Operations outside this crate always stay `f32`.
pub static OPERATIONS: &[Operation] = &[
    lowered("conv2d", "images, weights and bias; the result; each of their gradients"),
    lowered("linear", "inputs, weights and bias; the result; each of their gradients"),
    lowered("matmul", "both factors; the result; each of their gradients"),
    lowered(
        "self_attention",
        "queries, keys and values; the result; their gradients; softmax between them is f32",
    ),
    in_f32("batch_norm", "a mean and a variance are small differences of large sums"),
    in_f32("batch_norm_relu", "as batch_norm"),
    in_f32("batch_norm_add_relu", "as batch_norm"),
    in_f32("layer_norm", "as batch_norm"),
    in_f32("gelu", "exponentials"),
    in_f32("embedding", "computes nothing: what its table holds, it returns"),
    in_f32("cross_entropy", "softmax, logarithms and a sum over samples"),
    in_f32("smoothed_cross_entropy", "as cross_entropy"),
    in_f32("global_average_pool", "a mean"),
    in_f32("max_pool2d", "computes nothing: what it is given in the lower type is of that type"),
];

const fn lowered(name: &'static str, about: &'static str) -> Operation {
    Operation { name, is_lowered: true, about }
}

const fn in_f32(name: &'static str, about: &'static str) -> Operation {
    Operation { name, is_lowered: false, about }
}

thread_local! {
    static PRECISION: Cell<Precision> = const { Cell::new(Precision::F32) };
}

/// Runs `work`. The lowered operations of this thread within it compute in `precision`, and so do their
/// backward passes, even after `work` ends.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use burn_flex_nn::{Precision, matmul, with_precision};
///
/// let a = Tensor::<2>::from_data([[1.01]], &Device::flex());
/// let product = with_precision(Precision::Bf16, || matmul(a.clone(), a));
/// assert_eq!(product.into_scalar::<f32>(), 1.015625);
/// ```
pub fn with_precision<R>(precision: Precision, work: impl FnOnce() -> R) -> R {
    /// Restores the precision, even if `work` panics.
    struct Before(Precision);
    impl Drop for Before {
        fn drop(&mut self) {
            PRECISION.set(self.0);
        }
    }
    let _before = Before(PRECISION.replace(precision));
    work()
}

/// Returns the precision of lowered operations on this thread.
pub fn precision() -> Precision {
    PRECISION.get()
}

/// Converts an input of a lowered operation.
pub(crate) fn lower<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    match precision().dtype() {
        None => x,
        Some(_) if on_flex(&x) => round::rounded(x, precision()),
        Some(dtype) => x.cast(dtype),
    }
}

/// Converts a parameter, or another factor, of a lowered operation with this input. The gradient of a
/// parameter then comes when the operation has been left, and not at the end of the backward pass.
pub(crate) fn lower_beside<const D: usize, const E: usize>(
    factor: Tensor<D>,
    input: &Tensor<E>,
) -> Tensor<D> {
    let are_ours = precision().dtype().is_some() && on_flex(&factor) && on_flex(input);
    match (are_ours, factor.is_require_grad()) {
        (true, true) => round::rounded_behind(factor, input.clone(), precision()),
        (true, false) if factor.is_tracked() => round::rounded_parameter(factor, input.clone(), precision()),
        _ => lower(factor),
    }
}

/// Converts the output of a lowered operation.
pub(crate) fn raise<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    match precision().dtype() {
        None => x,
        Some(_) if on_flex(&x) => round::rounded(x, precision()),
        Some(_) => x.cast(FloatDType::F32),
    }
}
