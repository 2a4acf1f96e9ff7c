//! Fast layers for `flex`, [Burn](https://burn.dev)'s CPU backend: convolution, batch and layer
//! normalization, max pooling, attention, GELU and cross entropy, with their gradients.
//!
//! [`conv2d`], [`batch_norm`], its two relatives with a ReLU, [`max_pool2d`], [`linear`] and [`layer_norm`]
//! compute the forward pass of Burn's layers. On other backends and for types other than `f32` they call that
//! `forward`. Between them, images stay in the memory order in which they read them; [`arrange`] gives weights
//! their order, and [`fork`] adds gradients in it. [`matmul`], [`linear_gelu`], [`linear_gelu_tanh`],
//! [`linear_add`], [`self_attention`], [`gelu`], [`gelu_tanh`], [`global_average_pool`], [`cross_entropy`]
//! [`embedding`] and [`linear_cross_entropy`] are each one operation of the graph. On other backends they
//! use Burn's operations.
//!
//! Within [`with_precision`], products and convolutions compute in a lower type, according to the list
//! [`precision::OPERATIONS`].
//!
//! The order of every sum depends only on the shapes, on one thread: the bits are the same on every
//! processor. The exception is what these functions leave to Burn, as they say: tensors without elements,
//! types other than `f32`, and convolutions of few channels per group.

mod arrange;
mod attention;
pub mod conv;
mod cross_entropy;
mod dropout_mask;
mod embedding;
mod fork;
mod gelu;
mod lanes;
mod layer_norm;
mod linear;
mod linear_cross_entropy;
mod memory;
mod norm;
mod pool;
pub mod precision;
mod product;
mod recomputed;
mod tiles;

pub use arrange::arrange;
pub use attention::{Attention, self_attention};
pub use conv::conv2d;
pub use cross_entropy::{cross_entropy, smoothed_cross_entropy};
pub use dropout_mask::DropoutMask;
pub use embedding::embedding;
pub use fork::fork;
pub use gelu::{gelu, gelu_tanh};
pub use layer_norm::{fork_layer_norm, layer_norm};
pub use linear::{linear, linear_add, linear_gelu, linear_gelu_tanh};
pub use linear_cross_entropy::{linear_cross_entropy, smoothed_linear_cross_entropy};
pub use norm::{batch_norm, batch_norm_add_relu, batch_norm_relu};
pub use pool::{global_average_pool, max_pool2d};
pub use precision::{Precision, with_precision};
pub use product::matmul;
pub use recomputed::{declare_recomputed, forget_recomputed};

use burn::backend::DispatchDevice;
use burn::tensor::{DType, Device, Tensor};

/// Returns true if these layers compute with this tensor.
fn on_flex<const D: usize>(tensor: &Tensor<D>) -> bool {
    is_flex(&tensor.device()) && tensor.dtype() == DType::F32
}

/// Returns true if a device is `flex`, with or without autodiff.
fn is_flex(device: &Device) -> bool {
    let inner = match device.as_dispatch().clone() {
        DispatchDevice::Autodiff(autodiff) => autodiff.inner(),
        device => device,
    };
    matches!(inner, DispatchDevice::Flex(_))
}
