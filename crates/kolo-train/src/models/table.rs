//! The models that Kolo knows by name: one entry each. The command line, its help and the error messages read
//! this table.

use thiserror::Error;

use super::config::{BlockKind, ResNetConfig, Stem};

/// A model that can be named.
#[derive(Debug)]
pub struct ModelEntry {
    /// What the user types.
    pub name: &'static str,
    /// One line for the help text.
    pub about: &'static str,
    /// Its shape for images of so many channels and so many classes.
    pub config: fn(channels: usize, classes: usize) -> ResNetConfig,
}

/// All models.
pub const MODELS: &[ModelEntry] = &[
    ModelEntry {
        name: "small",
        about: "a residual network of 77 thousand parameters, for small images",
        config: small,
    },
    ModelEntry {
        name: "resnet18",
        about: "torchvision's ResNet-18, 11.7 million parameters",
        config: resnet18,
    },
    ModelEntry {
        name: "resnet34",
        about: "torchvision's ResNet-34, 21.8 million parameters",
        config: resnet34,
    },
    ModelEntry {
        name: "resnet50",
        about: "torchvision's ResNet-50, 25.6 million parameters",
        config: resnet50,
    },
];

/// No model has this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown model `{name}`; known are {}", known())]
pub struct UnknownModel {
    /// The name asked for.
    pub name: String,
}

/// The model called `name`.
///
/// # Errors
///
/// [`UnknownModel`], which lists the known ones.
pub fn find(name: &str) -> Result<&'static ModelEntry, UnknownModel> {
    MODELS.iter().find(|entry| entry.name == name).ok_or_else(|| UnknownModel { name: name.into() })
}

fn known() -> String {
    MODELS.iter().map(|entry| entry.name).collect::<Vec<_>>().join(", ")
}

/// The stage at full resolution is left out: on the CPU it would cost as much as all the others and, measured
/// on Fashion-MNIST, wins nothing for it.
fn small(channels: usize, classes: usize) -> ResNetConfig {
    ResNetConfig {
        stem: Stem::Cifar,
        block: BlockKind::Basic,
        depths: [0, 1, 1, 1],
        widths: [8, 16, 32, 64],
        channels,
        classes,
    }
}

fn resnet18(channels: usize, classes: usize) -> ResNetConfig {
    imagenet(BlockKind::Basic, [2, 2, 2, 2], channels, classes)
}

fn resnet34(channels: usize, classes: usize) -> ResNetConfig {
    imagenet(BlockKind::Basic, [3, 4, 6, 3], channels, classes)
}

fn resnet50(channels: usize, classes: usize) -> ResNetConfig {
    imagenet(BlockKind::Bottleneck, [3, 4, 6, 3], channels, classes)
}

fn imagenet(block: BlockKind, depths: [usize; 4], channels: usize, classes: usize) -> ResNetConfig {
    ResNetConfig { stem: Stem::ImageNet, block, depths, widths: [64, 128, 256, 512], channels, classes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_unique() {
        for entry in MODELS {
            assert_eq!(find(entry.name).unwrap().name, entry.name);
            assert_eq!(MODELS.iter().filter(|other| other.name == entry.name).count(), 1, "{}", entry.name);
        }
    }

    #[test]
    fn an_unknown_name_is_told_with_the_known_ones() {
        let error = find("resnet19").unwrap_err().to_string();
        assert_eq!(error, "unknown model `resnet19`; known are small, resnet18, resnet34, resnet50");
    }
}
