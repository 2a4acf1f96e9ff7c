//! Sizes of a convolution.

use super::axis::Axis;

/// Sizes and settings of a convolution.
///
/// In memory, activations are `[height][width][samples][channels]`. Weights and their gradients are `[kernel
/// height][kernel width][input channels of a group][output channels]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Height.
    pub rows: Axis,
    /// Width.
    pub columns: Axis,
    /// Number of samples of the batch.
    pub samples: usize,
    /// Number of groups of channels; each group is a separate convolution.
    pub groups: usize,
    /// Input and output channels of a group.
    pub channels: [usize; 2],
}

impl Geometry {
    /// Returns the number of elements of the input.
    ///
    /// # Panics
    ///
    /// Panics, as the other two methods do, if memory cannot hold that many.
    pub fn input_len(&self) -> usize {
        product([self.rows.input, self.columns.input, self.samples, self.groups, self.channels[0]])
    }

    /// Returns the number of elements of the output.
    pub fn output_len(&self) -> usize {
        product([self.rows.output, self.columns.output, self.samples, self.groups, self.channels[1]])
    }

    /// Returns the number of elements of the weights.
    pub fn weight_len(&self) -> usize {
        product([self.rows.kernel, self.columns.kernel, self.channels[0], self.channels[1], self.groups])
    }
}

/// Returns the product of the sizes. All offsets in memory are below it, so none of them can overflow.
fn product(sizes: [usize; 5]) -> usize {
    let all = sizes.into_iter().try_fold(1, |product: usize, size| product.checked_mul(size));
    all.filter(|all| *all <= isize::MAX as usize / size_of::<f32>())
        .expect("a tensor that memory has room for")
}
