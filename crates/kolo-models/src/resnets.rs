//! The residual networks of the table, as the trainer takes them.

use burn::tensor::Tensor;
use kolo_burn_train::TrainingContext;

use crate::config::ResNetConfig;
use crate::image_model::{Blueprint, ImageModel};
use crate::resnet::ResNet;

impl ImageModel for ResNet {
    fn training_scores(&self, images: Tensor<4>, context: &TrainingContext<'_>) -> Tensor<2> {
        match context.cross_shard {
            Some(pass) => self.forward_cross_shard(images, context.dropout, pass),
            None => self.forward_training(images, context.dropout),
        }
    }

    fn scores(&self, images: Tensor<4>) -> Tensor<2> {
        self.forward(images)
    }
}

pub(super) fn small(blueprint: &Blueprint<'_>) -> ResNet {
    build(blueprint, ResNetConfig::small)
}

pub(super) fn resnet18(blueprint: &Blueprint<'_>) -> ResNet {
    build(blueprint, ResNetConfig::resnet18)
}

pub(super) fn resnet34(blueprint: &Blueprint<'_>) -> ResNet {
    build(blueprint, ResNetConfig::resnet34)
}

pub(super) fn resnet50(blueprint: &Blueprint<'_>) -> ResNet {
    build(blueprint, ResNetConfig::resnet50)
}

/// Builds a network; `config` makes the shape from channels and classes.
fn build(blueprint: &Blueprint<'_>, config: fn(usize, usize) -> ResNetConfig) -> ResNet {
    let config = config(blueprint.samples.channels, blueprint.samples.classes);
    let stem = blueprint.stem.unwrap_or(config.stem);
    let config = ResNetConfig { stem, zero_gamma: blueprint.zero_gamma, ..config };
    config.init(blueprint.seed, blueprint.device).with_dropout(blueprint.dropout)
}
