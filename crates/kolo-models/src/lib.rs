//! Models of `kolo train` by name: residual networks and a VGG, the large ones exactly torchvision's, a
//! perceptron, and GPT-2. They are trained by [`kolo_burn_train::Trainer`], take single steps in measurements
//! ([`Stepper`]), and are evaluated with trained weights ([`inference`]).
//!
//! A trained GPT-2 continues texts ([`Generator`]).
//!
//! To add a model, implement [`ImageModel`] for a type and add a line to [`MODELS`]. Your own model, of any
//! samples, needs no line: a [`Trainer`](kolo_burn_train::Trainer) takes it.

mod block;
mod config;
mod error;
mod gpt2;
mod image_model;
pub mod inference;
mod init;
mod mlp;
mod resnet;
mod resnets;
mod size;
mod stepper;
mod table;
#[cfg(test)]
mod tests;
mod traits;
mod vgg;

pub use block::{Block, Downsample};
pub use config::{BlockKind, ResNetConfig};
pub use error::Error;
pub use gpt2::{Continuation, Generator, Gpt2, Gpt2Config, Sampling};
pub use image_model::{Blueprint, ImageModel};
pub use kolo_recipe::Stem;
pub use mlp::Mlp;
pub use resnet::ResNet;
pub use size::{Counted, ModelSize};
pub use stepper::Stepper;
pub use table::{Entry, MODELS, NamedModel, could_recompute, find};
pub use traits::Traits;
pub use vgg::{Vgg, VggConfig};
