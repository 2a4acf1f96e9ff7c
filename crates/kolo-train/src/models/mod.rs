//! Models of `kolo train` by name: residual networks and a VGG, the large ones exactly torchvision's, and a
//! perceptron.
//!
//! To add a model, implement [`ImageModel`] for a type and add a line to [`MODELS`]. Your own model, of any
//! samples, needs no line: a [`Trainer`](crate::Trainer) takes it.

mod block;
mod config;
mod image_model;
mod init;
mod mlp;
mod resnet;
mod resnets;
mod table;
#[cfg(test)]
mod tests;
mod torchvision;
mod traits;
mod vgg;

pub use block::{Block, Downsample};
pub use config::{BlockKind, ResNetConfig, Stem};
pub use image_model::{Blueprint, ImageModel};
pub use mlp::Mlp;
pub use resnet::ResNet;
pub use table::{Entry, MODELS, NamedModel, find};
pub use torchvision::{TORCHVISION_MODELS, TorchvisionName, torchvision_name};
pub use traits::Traits;
pub use vgg::{Vgg, VggConfig};
