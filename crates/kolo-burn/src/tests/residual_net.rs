//! Small residual network for tests: convolutions, batch normalizations, a shortcut and dropout.

use burn::module::{Module, Param};
use burn::nn::conv::Conv2d;
use burn::nn::{BatchNorm, BatchNormConfig, Linear, PaddingConfig2d};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor, TensorData};
use kolo_ddp::cross_shard::CrossShardPass;

use crate::dropout::{Dropout, DropoutKey};
use crate::sync_batch_norm;

/// `fc(dropout(mean(block(relu(bn1(conv1(x)))))))`. The block halves the image and has a projection as its
/// shortcut.
#[derive(Module, Debug)]
pub(crate) struct ResidualNet {
    pub(crate) conv1: Conv2d,
    pub(crate) bn1: BatchNorm,
    conv2: Conv2d,
    bn2: BatchNorm,
    conv3: Conv2d,
    bn3: BatchNorm,
    projection: Conv2d,
    bn4: BatchNorm,
    dropout: Dropout,
    fc: Linear,
}

impl ResidualNet {
    /// Creates the network for images of one channel and ten classes. Values are the same at each call,
    /// unlike Burn's random state, which the process shares.
    pub(crate) fn new(dropout: f64, device: &Device) -> Self {
        let conv = |seed, [input, output]: [usize; 2], kernel: usize, stride| {
            let padding = kernel / 2;
            Conv2d {
                weight: param(seed, [output, input, kernel, kernel], device),
                bias: None,
                stride: [stride, stride],
                kernel_size: [kernel, kernel],
                dilation: [1, 1],
                groups: 1,
                padding: PaddingConfig2d::Explicit(padding, padding, padding, padding),
            }
        };
        let norm = |channels| BatchNormConfig::new(channels).init(device);
        ResidualNet {
            conv1: conv(1, [1, 8], 3, 1),
            bn1: norm(8),
            conv2: conv(2, [8, 16], 3, 2),
            bn2: norm(16),
            conv3: conv(3, [16, 16], 3, 1),
            bn3: norm(16),
            projection: conv(4, [8, 16], 1, 2),
            bn4: norm(16),
            dropout: Dropout::new(dropout),
            fc: Linear { weight: param(5, [16, 10], device), bias: Some(param(6, [10], device)) },
        }
    }

    /// Returns scores `[samples, 10]` of images `[samples, 1, height, width]`, without dropout.
    pub(crate) fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        self.fc.forward(self.features(images, None))
    }

    pub(crate) fn forward_training(&self, images: Tensor<4>, key: &DropoutKey) -> Tensor<2> {
        self.fc.forward(self.dropout.forward(self.features(images, None), "fc", key))
    }

    /// Returns scores in training, normalized over the global batch.
    pub(crate) fn forward_cross_shard(
        &self,
        images: Tensor<4>,
        key: &DropoutKey,
        pass: &CrossShardPass,
    ) -> Tensor<2> {
        self.fc.forward(self.dropout.forward(self.features(images, Some(pass)), "fc", key))
    }

    fn features(&self, images: Tensor<4>, pass: Option<&CrossShardPass>) -> Tensor<2> {
        let norm = |layer: &BatchNorm, x| match pass {
            Some(pass) => sync_batch_norm(layer, x, pass),
            None => layer.forward(x),
        };
        let x = relu(norm(&self.bn1, self.conv1.forward(images)));
        let y = relu(norm(&self.bn2, self.conv2.forward(x.clone())));
        let y = norm(&self.bn3, self.conv3.forward(y));
        let x = relu(y + norm(&self.bn4, self.projection.forward(x)));
        let [samples, channels, height, width] = x.dims();
        x.reshape([samples, channels, height * width]).mean_dim(2).reshape([samples, channels])
    }
}

fn param<const D: usize>(seed: usize, shape: [usize; D], device: &Device) -> Param<Tensor<D>> {
    let noise = |index| ((seed * 7_919 + index * 104_729 + 13) as f32 * 0.37).sin() * 0.3;
    let values: Vec<f32> = (0..shape.iter().product::<usize>()).map(noise).collect();
    Param::from_data(TensorData::new(values, shape), device)
}
