//! Fast layers for `flex`, [Burn](https://burn.dev)'s CPU backend: convolution, normalisation of batches and
//! layers, max pooling, attention, GELU and cross entropy, with their gradients.
//!
//! Each function takes one of Burn's own layers and computes what its `forward` does: [`conv2d`],
//! [`batch_norm`] and its two relatives that go on with a ReLU, [`max_pool2d`], [`layer_norm`]. On other
//! backends and for other types than `f32` they are that `forward`. Images that go from one to the next stay
//! in the order in which these layers read them; [`arrange`] puts weights into theirs, and [`fork`] adds
//! gradients in it. [`self_attention`], [`gelu`] and [`cross_entropy`] are each one operation of the graph
//! where Burn has several; on other backends they are made of Burn's.
//!
//! Within [`with_precision`] products and convolutions compute in a lower type, by the list of
//! [`precision::OPERATIONS`].
//!
//! Every sum is made in an order that depends on the shapes alone, on one thread: the bits are the same on
//! every processor. The matrix products of attention are Burn's, whose bits are those of processors of a
//! kind.

mod arrange;
mod attention;
pub mod conv;
mod cross_entropy;
mod fork;
mod gelu;
mod lanes;
mod layer_norm;
mod memory;
mod norm;
mod pool;
pub mod precision;
mod product;

pub use arrange::arrange;
pub use attention::{Attention, self_attention};
pub use conv::conv2d;
pub use cross_entropy::cross_entropy;
pub use fork::fork;
pub use gelu::gelu;
pub use layer_norm::layer_norm;
pub use norm::{batch_norm, batch_norm_add_relu, batch_norm_relu};
pub use pool::max_pool2d;
pub use precision::{Precision, with_precision};
pub use product::{linear, matmul};

use burn::backend::DispatchDevice;
use burn::tensor::{DType, Device, Tensor};

/// Whether a tensor is one that these layers compute with.
fn on_flex<const D: usize>(tensor: &Tensor<D>) -> bool {
    is_flex(&tensor.device()) && tensor.dtype() == DType::F32
}

/// Whether a device is `flex`, with autodiff or without.
fn is_flex(device: &Device) -> bool {
    let inner = match device.as_dispatch().clone() {
        DispatchDevice::Autodiff(autodiff) => autodiff.inner(),
        device => device,
    };
    matches!(inner, DispatchDevice::Flex(_))
}
