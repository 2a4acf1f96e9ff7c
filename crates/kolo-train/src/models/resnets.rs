//! The residual networks of the table, as the trainer takes them.

use burn::tensor::Device;
use kolo_burn::Loss;
use kolo_data::Batch;

use super::config::ResNetConfig;
use super::image_model::{Blueprint, ImageModel};
use super::resnet::ResNet;
use crate::model::{TrainingContext, count_correct, cross_entropy};
use crate::tensors::image_tensors;

impl ImageModel for ResNet {
    fn loss(&self, batch: Batch, context: &TrainingContext<'_>) -> Loss {
        let (images, labels) = image_tensors(batch, context.device);
        let scores = match context.cross_shard {
            Some(pass) => self.forward_cross_shard(images, context.dropout, pass),
            None => self.forward_training(images, context.dropout),
        };
        cross_entropy(scores, labels)
    }

    fn correct(&self, batch: Batch, device: &Device) -> usize {
        let (images, labels) = image_tensors(batch, device);
        count_correct(self.forward(images), labels)
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

/// `config` makes the shape from channels and classes.
fn build(blueprint: &Blueprint<'_>, config: fn(usize, usize) -> ResNetConfig) -> ResNet {
    let config = config(blueprint.samples.channels, blueprint.samples.classes);
    config.init(blueprint.seed, blueprint.device).with_dropout(blueprint.dropout)
}
