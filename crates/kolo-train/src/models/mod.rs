//! Models that `kolo train` knows by name: residual networks, the large ones exactly torchvision's.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//!
//! let entry = kolo_train::models::find("small")?;
//! let device = Device::flex().autodiff();
//! let model = (entry.config)(1, 10).init(42, &device);
//! assert_eq!(model.forward(Tensor::zeros([2, 1, 28, 28], &device)).dims(), [2, 10]);
//! # Ok::<(), kolo_train::models::UnknownModel>(())
//! ```
//!
//! A further residual network is one line in `table.rs`.

mod block;
mod config;
mod init;
mod resnet;
mod table;
#[cfg(test)]
mod tests;
mod torchvision;

pub use block::{Block, Downsample};
pub use config::{BlockKind, ResNetConfig, Stem};
pub use resnet::ResNet;
pub use table::{MODELS, ModelEntry, UnknownModel, find};
pub use torchvision::{TorchvisionName, torchvision_name};
