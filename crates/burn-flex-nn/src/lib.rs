//! Fast layers for `flex`, [Burn](https://burn.dev)'s CPU backend: convolution, batch normalisation and max
//! pooling, with their gradients.
//!
//! Each function takes one of Burn's own layers and computes what its `forward` does: [`conv2d`],
//! [`batch_norm`] and its two relatives that go on with a ReLU, [`max_pool2d`]. On other backends and for
//! other types than `f32` they are that `forward`. Tensors that go from one to the next stay in the order in
//! which these layers read them; [`arrange`] puts weights into theirs, and [`fork`] adds gradients in it.
//!
//! Every sum is made in an order that depends on the shapes alone, on one thread: the bits are the same on
//! every processor.

mod arrange;
pub mod conv;
mod fork;
mod memory;
mod norm;
mod pool;

pub use arrange::arrange;
pub use conv::conv2d;
pub use fork::fork;
pub use norm::{batch_norm, batch_norm_add_relu, batch_norm_relu};
pub use pool::max_pool2d;

use burn::backend::DispatchDevice;
use burn::tensor::{DType, Tensor};

/// Whether a tensor is one that these layers compute with.
fn on_flex(tensor: &Tensor<4>) -> bool {
    let inner = match tensor.device().as_dispatch().clone() {
        DispatchDevice::Autodiff(autodiff) => autodiff.inner(),
        device => device,
    };
    matches!(inner, DispatchDevice::Flex(_)) && tensor.dtype() == DType::F32
}
