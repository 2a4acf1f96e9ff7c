//! VGG (Simonyan & Zisserman 2015, [arXiv:1409.1556](https://arxiv.org/abs/1409.1556)), as in torchvision.
//! Nine tenths of its parameters are in two linear layers, so its gradients take long to send compared to
//! their computation.
//!
//! The numbers of the layers are torchvision's, which also counts activations, pools and dropout as layers,
//! so that a path in this module tree is a key of a torchvision checkpoint.

use burn::module::Module;
use burn::nn::Linear;
use burn::nn::conv::Conv2d;
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, MaxPool2d, MaxPool2dConfig};
use burn::tensor::activation::relu;
use burn::tensor::{Device, Tensor};
use burn_flex_nn::{arrange, conv2d, linear, max_pool2d};
use kolo_burn::{Dropout, DropoutKey};
use kolo_burn_train::TrainingContext;

use crate::image_model::{Blueprint, ImageModel};
use crate::init::Init;

/// Rows and columns of the linear layers' input, for any image.
const POOLED: usize = 7;

/// Number of times that images are halved; they need 2 to that power pixels a side.
const STAGES: usize = 5;

/// The shape of a VGG; [`init`](Self::init) makes the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VggConfig {
    /// 3×3 convolutions in each stage, after which the image is halved.
    pub depths: [usize; STAGES],
    /// Channels of each stage.
    pub widths: [usize; STAGES],
    /// Units of the two hidden linear layers.
    pub hidden: usize,
    /// Channels of the images: 1 for gray, 3 for color.
    pub channels: usize,
    /// Number of classes.
    pub classes: usize,
}

impl VggConfig {
    /// Fewest pixels a side of an image.
    pub const SMALLEST_IMAGE: usize = 1 << STAGES;

    /// torchvision's `vgg16`: the paper's configuration D, without batch normalization.
    pub fn vgg16(channels: usize, classes: usize) -> Self {
        let (depths, widths) = ([2, 2, 3, 3, 3], [64, 128, 256, 512, 512]);
        VggConfig { depths, widths, hidden: 4096, channels, classes }
    }

    /// Makes the network, with torchvision's initialization: convolutions Kaiming-normal by fan-out, linear
    /// layers normal with a deviation of 0.01, biases zero. As in
    /// [`ResNetConfig::init`](super::ResNetConfig::init), the values depend on `seed` and names alone.
    pub fn init(&self, seed: u64, device: &Device) -> Vgg {
        let init = Init { seed, device };
        let (mut features, mut channels) = (Vec::new(), self.channels);
        for (depth, width) in self.depths.into_iter().zip(self.widths) {
            for _ in 0..depth {
                let path = format!("features.{}", features.len());
                features.push(Some(init.biased_conv(&path, [channels, width], 3)));
                // Its activation.
                features.push(None);
                channels = width;
            }
            // The pool.
            features.push(None);
        }
        let linear = |number: usize, input, output| {
            Some(init.normal_linear(&format!("classifier.{number}"), [input, output], 0.01))
        };
        let flat = channels * POOLED * POOLED;
        let classifier = vec![
            linear(0, flat, self.hidden),
            None,
            None,
            linear(3, self.hidden, self.hidden),
            None,
            None,
            linear(6, self.hidden, self.classes),
        ];
        arrange(Vgg {
            features,
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            avgpool: AdaptiveAvgPool2dConfig::new([POOLED, POOLED]).init(),
            classifier,
            dropout: Dropout::new(0.0),
        })
    }
}

/// A VGG; built by [`VggConfig::init`].
#[derive(Module, Debug)]
pub struct Vgg {
    /// Convolutions; `None` stands for an activation behind one, or for the pool behind such an activation.
    pub features: Vec<Option<Conv2d>>,
    /// Halves the image; has no parameters.
    pub pool: MaxPool2d,
    /// Averages the rest of the image to 7×7; has no parameters.
    pub avgpool: AdaptiveAvgPool2d,
    /// Linear layers; `None` stands for an activation or a dropout between them.
    pub classifier: Vec<Option<Linear>>,
    /// In training, after each hidden linear layer. Drops nothing without [`Vgg::with_dropout`]; torchvision
    /// drops half.
    pub dropout: Dropout,
}

impl Vgg {
    /// Sets the share of the hidden units that training drops.
    ///
    /// # Panics
    ///
    /// If the share is not at least 0 and below 1.
    pub fn with_dropout(mut self, probability: f64) -> Self {
        self.dropout = Dropout::new(probability);
        self
    }

    /// Returns scores before softmax; drops hidden units if there is a key.
    ///
    /// # Shapes
    ///
    /// - `images`: `[batch, channels, height, width]`, at least [`SMALLEST_IMAGE`](VggConfig::SMALLEST_IMAGE)
    ///   pixels a side
    /// - output: `[batch, classes]`
    ///
    /// # Panics
    ///
    /// If the images are smaller, or have another number of channels than the network was configured for.
    pub fn forward(&self, images: Tensor<4>, key: Option<&DropoutKey>) -> Tensor<2> {
        let mut x = images;
        let mut follows_conv = false;
        for layer in &self.features {
            x = match (layer, follows_conv) {
                (Some(conv), _) => relu(conv2d(conv, x)),
                // The convolution's arm has applied the activation.
                (None, true) => x,
                (None, false) => max_pool2d(&self.pool, x),
            };
            follows_conv = layer.is_some();
        }
        let mut x = self.avgpool.forward(x).flatten(1, 3);
        for (number, layer) in self.classifier.iter().enumerate() {
            let Some(layer) = layer else { continue };
            x = linear(layer, x);
            if number + 1 < self.classifier.len() {
                x = relu(x);
                x = key.map_or(x.clone(), |key| {
                    self.dropout.forward(x, &format!("classifier.{}", number + 2), key)
                });
            }
        }
        x
    }
}

impl ImageModel for Vgg {
    fn training_scores(&self, images: Tensor<4>, context: &TrainingContext<'_>) -> Tensor<2> {
        self.forward(images, Some(context.dropout))
    }

    fn scores(&self, images: Tensor<4>) -> Tensor<2> {
        self.forward(images, None)
    }
}

pub(super) fn vgg16(blueprint: &Blueprint<'_>) -> Vgg {
    let config = VggConfig::vgg16(blueprint.samples.channels, blueprint.samples.classes);
    config.init(blueprint.seed, blueprint.device).with_dropout(blueprint.dropout)
}
