//! Result of a forward pass.

use burn::tensor::Tensor;

/// Loss of a shard: a sum, and the number of its terms. Kolo divides by the count of the whole batch, so that
/// a short shard has its proper weight.
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use kolo_burn::Loss;
///
/// let errors = Tensor::<1>::from_floats([1.0, 5.0], &Device::flex());
/// let loss = Loss::sum(errors.sum(), 2);
/// assert_eq!(loss.into_mean().into_scalar::<f32>(), 3.0);
/// ```
#[derive(Debug)]
pub struct Loss {
    pub(crate) sum: Tensor<1>,
    pub(crate) count: f64,
}

impl Loss {
    /// Creates a loss from the mean over `count` samples, the default of Burn's losses. Shape `[1]`.
    pub fn mean(mean: Tensor<1>, count: usize) -> Self {
        Loss { sum: mean.mul_scalar(count as f32), count: count as f64 }
    }

    /// Returns the mean, as a tensor of shape `[1]`, for your own training loop.
    pub fn into_mean(self) -> Tensor<1> {
        self.sum.div_scalar(self.count as f32)
    }

    /// Creates a loss from the sum over `count` samples, tokens or other items. Shape `[1]`.
    pub fn sum(sum: Tensor<1>, count: usize) -> Self {
        Loss { sum, count: count as f64 }
    }
}

impl kolo_ddp::binding::Loss for Loss {
    fn sum(&self) -> f64 {
        f64::from(self.sum.clone().into_scalar::<f32>())
    }

    fn count(&self) -> f64 {
        self.count
    }

    fn scaled(self, factor: f32) -> Self {
        Loss { sum: self.sum.mul_scalar(factor), ..self }
    }
}
