//! Residual networks (He et al., [arXiv:1512.03385](https://arxiv.org/abs/1512.03385)): one struct for all of
//! them.
//!
//! Every network of this module is a stem, up to four stages of residual blocks, an average over the rest of
//! the image, and one linear layer. The fields have torchvision's names, so that a path in this module tree
//! and a key of a torchvision checkpoint agree (see [`torchvision_name`](kolo_weights::torchvision_name)).

use burn::module::Module;
use burn::nn::conv::Conv2d;
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{BatchNorm, Linear, PaddingConfig2d};
use burn::tensor::{Device, Tensor};
use burn_flex_nn::{arrange, conv2d, global_average_pool, linear, max_pool2d};
use kolo_burn::{Dropout, DropoutKey};
use kolo_ddp::cross_shard::CrossShardPass;
use kolo_recipe::Stem;

use crate::block::{Block, BlockShape, normalize_relu};
use crate::config::ResNetConfig;
use crate::init::Init;

/// A residual network; built by [`ResNetConfig::init`].
#[derive(Module, Debug)]
pub struct ResNet {
    /// The stem's convolution.
    pub conv1: Conv2d,
    /// The stem's normalization.
    pub bn1: BatchNorm,
    /// Pooling of [`Stem::ImageNet`]; has no parameters.
    pub maxpool: Option<MaxPool2d>,
    /// First stage, at the stem's resolution. Like the others it may be empty.
    pub layer1: Vec<Block>,
    /// Second stage, at half the resolution of the first.
    pub layer2: Vec<Block>,
    /// Third stage, halved again.
    pub layer3: Vec<Block>,
    /// Fourth stage, halved again.
    pub layer4: Vec<Block>,
    /// In training, between the averaged features and `fc`. Drops nothing without [`ResNet::with_dropout`].
    pub dropout: Dropout,
    /// From the averaged features to one score for each class.
    pub fc: Linear,
}

impl ResNetConfig {
    /// Makes the network, with torchvision's initialization: convolutions Kaiming-normal by fan-out, batch
    /// norms one and zero, the linear layer uniform in ±1/√inputs.
    ///
    /// The values depend on `seed` and each parameter's name alone, so the same seed gives the same bits on
    /// every machine and in every thread, whatever was drawn before.
    pub fn init(&self, seed: u64, device: &Device) -> ResNet {
        ResNet::new(self, seed, device)
    }
}

impl ResNet {
    fn new(config: &ResNetConfig, seed: u64, device: &Device) -> Self {
        let init = Init { seed, device };
        let (kernel, stride, maxpool) = match config.stem {
            Stem::ImageNet => (7, 2, Some(three_by_three_pool())),
            Stem::Small => (3, 1, None),
        };
        let mut channels = config.widths[0];
        let conv1 = init.conv("conv1", [config.channels, channels], kernel, stride);
        let bn1 = init.batch_norm(channels);
        let mut stage = |number: usize| -> Vec<Block> {
            let width = config.widths[number - 1];
            let out = width * config.block.expansion();
            (0..config.depths[number - 1])
                .map(|index| {
                    let stride = if number > 1 && index == 0 { 2 } else { 1 };
                    let shape = BlockShape { input: channels, width, stride };
                    channels = out;
                    let path = format!("layer{number}.{index}");
                    let block = Block::new(config.block, shape, &path, &init);
                    if config.zero_gamma { block.with_zero_gamma(&init) } else { block }
                })
                .collect()
        };
        let (layer1, layer2, layer3, layer4) = (stage(1), stage(2), stage(3), stage(4));
        let fc = init.linear("fc", channels, config.classes);
        arrange(Self { conv1, bn1, maxpool, layer1, layer2, layer3, layer4, dropout: Dropout::new(0.0), fc })
    }

    /// Sets the share of the features before `fc` that training drops.
    ///
    /// # Panics
    ///
    /// If the share is not at least 0 and below 1.
    pub fn with_dropout(mut self, probability: f64) -> Self {
        self.dropout = Dropout::new(probability);
        self
    }

    /// Returns scores before softmax, without dropout.
    ///
    /// # Shapes
    ///
    /// - `images`: `[batch, channels, height, width]`
    /// - output: `[batch, classes]`
    ///
    /// # Panics
    ///
    /// If the images have another number of channels than the network was configured for.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        linear(&self.fc, self.features(images, None))
    }

    /// Returns scores before softmax in training; shapes and panics as in [`ResNet::forward`].
    pub fn forward_training(&self, images: Tensor<4>, key: &DropoutKey) -> Tensor<2> {
        linear(&self.fc, self.dropout.forward(self.features(images, None), "fc", key))
    }

    /// Like [`ResNet::forward_training`], normalized over the global batch.
    pub fn forward_cross_shard(
        &self,
        images: Tensor<4>,
        key: &DropoutKey,
        pass: &CrossShardPass,
    ) -> Tensor<2> {
        linear(&self.fc, self.dropout.forward(self.features(images, Some(pass)), "fc", key))
    }

    /// Returns the features, averaged over the image: `[batch, features]`. They are normalized over the
    /// global batch if there is a `pass`.
    fn features(&self, images: Tensor<4>, pass: Option<&CrossShardPass>) -> Tensor<2> {
        let mut x = normalize_relu(&self.bn1, conv2d(&self.conv1, images), pass);
        if let Some(maxpool) = &self.maxpool {
            x = max_pool2d(maxpool, x);
        }
        for block in [&self.layer1, &self.layer2, &self.layer3, &self.layer4].into_iter().flatten() {
            x = block.forward_in(x, pass);
        }
        global_average_pool(x)
    }
}

fn three_by_three_pool() -> MaxPool2d {
    MaxPool2dConfig::new([3, 3])
        .with_strides([2, 2])
        .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
        .init()
}
