//! The first layers of residual networks.

use serde::{Deserialize, Serialize};

/// First layers of a network, which take the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[value(rename_all = "lowercase")]
pub enum Stem {
    /// 7x7 convolution with stride 2, then 3x3 max pooling with stride 2: a quarter of the image's
    /// resolution.
    ImageNet,
    /// 3x3 convolution with stride 1, no pooling: for images so small that every pixel counts.
    Small,
}
