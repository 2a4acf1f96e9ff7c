//! Shapes of residual networks, as plain data.

use kolo_recipe::Stem;

/// Kind of a network's residual blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// Two 3x3 convolutions.
    Basic,
    /// 1x1 down, 3x3, 1x1 up to four times the width.
    Bottleneck,
}

impl BlockKind {
    /// Returns a block's output channels as a multiple of its width.
    pub fn expansion(self) -> usize {
        match self {
            Self::Basic => 1,
            Self::Bottleneck => 4,
        }
    }
}

/// The shape of a residual network; [`init`](Self::init) makes the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResNetConfig {
    /// First layers.
    pub stem: Stem,
    /// Kind of the blocks.
    pub block: BlockKind,
    /// Blocks in each of the four stages; 0 leaves a stage out. The first block of every stage but the first
    /// halves the image.
    pub depths: [usize; 4],
    /// Width of each stage; the stem has the first one's.
    pub widths: [usize; 4],
    /// Channels of the images: 1 for gray, 3 for color.
    pub channels: usize,
    /// Number of classes.
    pub classes: usize,
    /// True to begin with a scale of zero in each block's last batch normalization, so that the block passes
    /// its input on (Goyal et al. 2017, section 5.1); false for one.
    pub zero_gamma: bool,
}

impl ResNetConfig {
    /// Returns a network of 77 thousand parameters for small images. It has no stage at full resolution: on
    /// the CPU that would cost as much as all the others, with no measured gain on Fashion-MNIST.
    pub fn small(channels: usize, classes: usize) -> Self {
        let (depths, widths) = ([0, 1, 1, 1], [8, 16, 32, 64]);
        let (stem, block) = (Stem::Small, BlockKind::Basic);
        ResNetConfig { stem, block, depths, widths, channels, classes, zero_gamma: false }
    }

    /// torchvision's `resnet18`.
    pub fn resnet18(channels: usize, classes: usize) -> Self {
        Self::imagenet(BlockKind::Basic, [2, 2, 2, 2], channels, classes)
    }

    /// torchvision's `resnet34`.
    pub fn resnet34(channels: usize, classes: usize) -> Self {
        Self::imagenet(BlockKind::Basic, [3, 4, 6, 3], channels, classes)
    }

    /// torchvision's `resnet50`.
    pub fn resnet50(channels: usize, classes: usize) -> Self {
        Self::imagenet(BlockKind::Bottleneck, [3, 4, 6, 3], channels, classes)
    }

    fn imagenet(block: BlockKind, depths: [usize; 4], channels: usize, classes: usize) -> Self {
        let widths = [64, 128, 256, 512];
        let stem = Stem::ImageNet;
        ResNetConfig { stem, block, depths, widths, channels, classes, zero_gamma: false }
    }
}
