//! The residual networks of the table, as the trainer takes them.

use burn::tensor::Device;
use kolo_burn::Loss;
use kolo_data::Batch;

use super::config::{BlockKind, ResNetConfig, Stem};
use super::resnet::ResNet;
use super::table::{Blueprint, ImageModel};
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

/// The stage at full resolution is left out: on the CPU it would cost as much as all the others and, measured
/// on Fashion-MNIST, wins nothing for it.
pub(super) fn small(blueprint: &Blueprint<'_>) -> ResNet {
    build(blueprint, Stem::Cifar, BlockKind::Basic, [0, 1, 1, 1], [8, 16, 32, 64])
}

pub(super) fn resnet18(blueprint: &Blueprint<'_>) -> ResNet {
    imagenet(blueprint, BlockKind::Basic, [2, 2, 2, 2])
}

pub(super) fn resnet34(blueprint: &Blueprint<'_>) -> ResNet {
    imagenet(blueprint, BlockKind::Basic, [3, 4, 6, 3])
}

pub(super) fn resnet50(blueprint: &Blueprint<'_>) -> ResNet {
    imagenet(blueprint, BlockKind::Bottleneck, [3, 4, 6, 3])
}

fn imagenet(blueprint: &Blueprint<'_>, block: BlockKind, depths: [usize; 4]) -> ResNet {
    build(blueprint, Stem::ImageNet, block, depths, [64, 128, 256, 512])
}

fn build(
    blueprint: &Blueprint<'_>,
    stem: Stem,
    block: BlockKind,
    depths: [usize; 4],
    widths: [usize; 4],
) -> ResNet {
    let (channels, classes) = (blueprint.samples.channels, blueprint.samples.classes);
    let config = ResNetConfig { stem, block, depths, widths, channels, classes };
    config.init(blueprint.seed, blueprint.device).with_dropout(blueprint.dropout)
}
