//! LeNet-300-100 (LeCun et al. 1998, "Gradient-based learning applied to document recognition",
//! [doi:10.1109/5.726791](https://doi.org/10.1109/5.726791)): a perceptron with two hidden layers, followed
//! by ReLU as usual today.

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::Tensor;
use burn::tensor::activation::relu;
use burn_flex_nn::linear;
use kolo_burn::{Dropout, DropoutKey};
use kolo_burn_train::TrainingContext;
use kolo_data::SampleShape;

use crate::image_model::{Blueprint, ImageModel};
use crate::init::Init;

const HIDDEN: [usize; 2] = [300, 100];

/// A perceptron with two hidden layers.
#[derive(Module, Debug)]
pub struct Mlp {
    /// From the pixels.
    pub fc1: Linear,
    /// Between the hidden layers.
    pub fc2: Linear,
    /// In training, between the last hidden layer and `fc3`.
    pub dropout: Dropout,
    /// To one score for each class.
    pub fc3: Linear,
}

pub(super) fn mlp(blueprint: &Blueprint<'_>) -> Mlp {
    let SampleShape { channels, height, width, classes, .. } = blueprint.samples;
    let init = Init { seed: blueprint.seed, device: blueprint.device };
    let [first, second] = HIDDEN;
    Mlp {
        fc1: init.linear("fc1", channels * height * width, first),
        fc2: init.linear("fc2", first, second),
        dropout: Dropout::new(blueprint.dropout),
        fc3: init.linear("fc3", second, classes),
    }
}

impl Mlp {
    /// Returns scores before softmax; drops features if there is a key.
    ///
    /// # Shapes
    ///
    /// - `images`: `[batch, channels, height, width]`
    /// - output: `[batch, classes]`
    fn forward(&self, images: Tensor<4>, key: Option<&DropoutKey>) -> Tensor<2> {
        let x = relu(linear(&self.fc1, images.flatten(1, 3)));
        let x = relu(linear(&self.fc2, x));
        linear(&self.fc3, key.map_or(x.clone(), |key| self.dropout.forward(x, "fc3", key)))
    }
}

impl ImageModel for Mlp {
    fn training_scores(&self, images: Tensor<4>, context: &TrainingContext<'_>) -> Tensor<2> {
        self.forward(images, Some(context.dropout))
    }

    fn scores(&self, images: Tensor<4>) -> Tensor<2> {
        self.forward(images, None)
    }
}
