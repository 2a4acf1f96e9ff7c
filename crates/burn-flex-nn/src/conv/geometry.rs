//! The sizes of a convolution.

use super::axis::Axis;

/// What a convolution computes, apart from the numbers.
///
/// Activations lie in memory as `[height][width][samples][channels]`, weights and their gradients as `[kernel
/// height][kernel width][input channels of a group][output channels]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Height.
    pub rows: Axis,
    /// Width.
    pub columns: Axis,
    /// Samples of the batch.
    pub samples: usize,
    /// Groups of channels, each of which is a convolution of its own.
    pub groups: usize,
    /// Input and output channels of a group.
    pub channels: [usize; 2],
}

impl Geometry {
    /// Elements of the input.
    ///
    /// # Panics
    ///
    /// As the other two, if they are more than memory has addresses for.
    pub fn input_len(&self) -> usize {
        product([self.rows.input, self.columns.input, self.samples, self.groups, self.channels[0]])
    }

    /// Elements of the output.
    pub fn output_len(&self) -> usize {
        product([self.rows.output, self.columns.output, self.samples, self.groups, self.channels[1]])
    }

    /// Elements of the weights.
    pub fn weight_len(&self) -> usize {
        product([self.rows.kernel, self.columns.kernel, self.channels[0], self.channels[1], self.groups])
    }
}

/// Everything that lies in memory is reached by numbers below this one, so none of them can overflow.
fn product(sizes: [usize; 5]) -> usize {
    let all = sizes.into_iter().try_fold(1, |product: usize, size| product.checked_mul(size));
    all.filter(|all| *all <= isize::MAX as usize / size_of::<f32>())
        .expect("a tensor that memory has room for")
}
