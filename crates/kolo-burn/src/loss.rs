//! What a forward pass ends in.

use burn::tensor::Tensor;

/// A shard's loss: a sum, and what it is a sum over. Kolo divides by the count of the whole batch, so a short
/// shard weighs what it should.
#[derive(Debug)]
pub struct Loss {
    pub(crate) sum: Tensor<1>,
    pub(crate) count: f64,
}

impl Loss {
    /// A loss that is the mean over `count` samples, as Burn's losses are by default. Shape `[1]`.
    pub fn mean(mean: Tensor<1>, count: usize) -> Self {
        Loss { sum: mean.mul_scalar(count as f32), count: count as f64 }
    }

    /// The mean, as a tensor of the shape `[1]`: for loops of one's own.
    pub fn into_mean(self) -> Tensor<1> {
        self.sum.div_scalar(self.count as f32)
    }

    /// A loss that is the sum over `count` samples (or tokens, or whatever it counts). Shape `[1]`.
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
