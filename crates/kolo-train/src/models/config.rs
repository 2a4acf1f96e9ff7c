//! What a residual network looks like, as plain data.

/// How the image comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stem {
    /// 7x7 convolution with stride 2, then 3x3 max pooling with stride 2: a quarter of the image's
    /// resolution.
    ImageNet,
    /// 3x3 convolution with stride 1, no pooling: for images so small that every pixel counts.
    Cifar,
}

/// The kind of residual block a network is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// Two 3x3 convolutions.
    Basic,
    /// 1x1 down, 3x3, 1x1 up to four times the width.
    Bottleneck,
}

impl BlockKind {
    /// Channels that leave a block, as a multiple of its width.
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
    /// How the image comes in.
    pub stem: Stem,
    /// The kind of its blocks.
    pub block: BlockKind,
    /// Blocks in each of the four stages; 0 leaves a stage out. The first block of every stage but the first
    /// halves the image.
    pub depths: [usize; 4],
    /// Width of each stage; the stem has the first one's.
    pub widths: [usize; 4],
    /// Channels of the images: 1 for grey, 3 for colour.
    pub channels: usize,
    /// Number of classes.
    pub classes: usize,
}
