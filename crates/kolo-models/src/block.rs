//! One residual block, basic or bottleneck: `relu(x + f(x))`, where `f` is two or three convolutions.
//!
//! Both kinds are one struct: a bottleneck has a third convolution, a basic block has not. As in torchvision,
//! a bottleneck that halves the image does so in its 3x3 convolution, not in its first 1x1 ("ResNet v1.5").

use burn::module::Module;
use burn::nn::BatchNorm;
use burn::nn::conv::Conv2d;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn_flex_nn::{batch_norm, batch_norm_add_relu, batch_norm_relu, conv2d, fork};
use kolo_burn::sync_batch_norm;
use kolo_ddp::cross_shard::CrossShardPass;

use crate::config::BlockKind;
use crate::init::Init;

/// A residual block.
#[derive(Module, Debug)]
pub struct Block {
    /// First convolution: 3x3 in a basic block, 1x1 in a bottleneck.
    pub conv1: Conv2d,
    /// Follows `conv1`.
    pub bn1: BatchNorm,
    /// Second convolution, always 3x3.
    pub conv2: Conv2d,
    /// Follows `conv2`.
    pub bn2: BatchNorm,
    /// The bottleneck's last 1x1 convolution.
    pub conv3: Option<Conv2d>,
    /// Follows `conv3`.
    pub bn3: Option<BatchNorm>,
    /// Projection of the input to the output's shape, if the two differ.
    pub downsample: Option<Downsample>,
}

/// The projection on a block's shortcut: a strided 1x1 convolution and its normalization.
#[derive(Module, Debug)]
pub struct Downsample {
    /// torchvision's `downsample.0`.
    pub conv: Conv2d,
    /// torchvision's `downsample.1`.
    pub bn: BatchNorm,
}

/// Widths and stride of a block, which follow from its place in the network.
pub(super) struct BlockShape {
    /// Channels of the input.
    pub input: usize,
    /// Channels of the 3x3 convolutions; the output has the kind's expansion times as many.
    pub width: usize,
    /// Stride: 2 in a block that halves the image.
    pub stride: usize,
}

impl Block {
    pub(super) fn new(kind: BlockKind, shape: BlockShape, path: &str, init: &Init) -> Self {
        let BlockShape { input, width, stride } = shape;
        let out = width * kind.expansion();
        let conv = |name: &str, channels, kernel, stride| {
            init.conv(&format!("{path}.{name}"), channels, kernel, stride)
        };
        let (conv1, conv2, conv3) = match kind {
            BlockKind::Basic => {
                (conv("conv1", [input, width], 3, stride), conv("conv2", [width, width], 3, 1), None)
            }
            BlockKind::Bottleneck => (
                conv("conv1", [input, width], 1, 1),
                conv("conv2", [width, width], 3, stride),
                Some(conv("conv3", [width, out], 1, 1)),
            ),
        };
        let downsample = (stride != 1 || input != out).then(|| Downsample {
            conv: conv("downsample.conv", [input, out], 1, stride),
            bn: init.batch_norm(out),
        });
        Self {
            bn1: init.batch_norm(width),
            bn2: init.batch_norm(width),
            bn3: conv3.as_ref().map(|_| init.batch_norm(out)),
            conv1,
            conv2,
            conv3,
            downsample,
        }
    }

    /// Sets the scale of the last normalization to zero.
    pub(super) fn with_zero_gamma(mut self, init: &Init) -> Self {
        let last = self.bn3.as_mut().unwrap_or(&mut self.bn2);
        last.gamma = init.zeros(last.gamma.dims()[0]);
        self
    }

    /// Applies the block.
    ///
    /// # Shapes
    ///
    /// - `x`: `[batch, input, height, width]`
    /// - output: `[batch, out, height / stride, width / stride]`
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        self.forward_in(x, None)
    }

    /// Applies the block, normalized over the global batch if there is a `pass`.
    pub(super) fn forward_in(&self, x: Tensor<4>, pass: Option<&CrossShardPass>) -> Tensor<4> {
        let [x, shortcut] = fork(x);
        let mut y = normalize_relu(&self.bn1, conv2d(&self.conv1, x), pass);
        let (last_conv, last_bn) = match (&self.conv3, &self.bn3) {
            (Some(conv3), Some(bn3)) => {
                y = normalize_relu(&self.bn2, conv2d(&self.conv2, y), pass);
                (conv3, bn3)
            }
            _ => (&self.conv2, &self.bn2),
        };
        y = conv2d(last_conv, y);
        let shortcut = match &self.downsample {
            Some(downsample) => normalize(&downsample.bn, conv2d(&downsample.conv, shortcut), pass),
            None => shortcut,
        };
        match pass {
            Some(pass) => relu(sync_batch_norm(last_bn, y, pass) + shortcut),
            None => batch_norm_add_relu(last_bn, y, shortcut),
        }
    }
}

/// Normalizes over the global batch, or over the shard's.
fn normalize(layer: &BatchNorm, x: Tensor<4>, pass: Option<&CrossShardPass>) -> Tensor<4> {
    match pass {
        Some(pass) => sync_batch_norm(layer, x, pass),
        None => batch_norm(layer, x),
    }
}

/// Like [`normalize`], followed by a ReLU.
pub(super) fn normalize_relu(layer: &BatchNorm, x: Tensor<4>, pass: Option<&CrossShardPass>) -> Tensor<4> {
    match pass {
        Some(pass) => relu(sync_batch_norm(layer, x, pass)),
        None => batch_norm_relu(layer, x),
    }
}
