//! Result of a forward pass.

use candle_core::{DType, Error, Result, Tensor};

/// Loss of a shard: a sum, and the number of its terms. Kolo divides by the count of the whole batch, so that
/// a short shard has its proper weight.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use kolo_candle::Loss;
///
/// let errors = Tensor::new(&[1f32, 5.0], &Device::Cpu)?;
/// let loss = Loss::mean(errors.mean_all()?, 2)?;
/// assert_eq!(kolo_ddp::binding::Loss::sum(&loss), 6.0);
/// # Ok::<(), candle_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Loss {
    /// Sum, a tensor of one element; or the error of the forward pass.
    tensor: Result<Tensor>,
    sum: f64,
    count: usize,
    /// Factor of the gradients.
    factor: f32,
}

impl Loss {
    /// Creates a loss from the mean over `count` samples, which candle's losses return.
    ///
    /// # Errors
    ///
    /// The mean is not one number.
    pub fn mean(mean: Tensor, count: usize) -> Result<Self> {
        Loss::sum((one_number(mean)? * count as f64)?, count)
    }

    /// Creates a loss from the sum over `count` samples, tokens or other items.
    ///
    /// # Errors
    ///
    /// The sum is not one number.
    pub fn sum(sum: Tensor, count: usize) -> Result<Self> {
        let tensor = one_number(sum)?;
        let sum = tensor.to_dtype(DType::F64)?.to_scalar::<f64>()?;
        Ok(Loss { tensor: Ok(tensor), sum, count, factor: 1.0 })
    }

    /// Returns the tensor with which the backward pass begins.
    pub(crate) fn into_root(self) -> std::result::Result<Tensor, crate::Error> {
        let tensor = self.tensor.map_err(crate::Error::Forward)?;
        let is_whole = self.factor == 1.0;
        let scaled = if is_whole { Ok(tensor) } else { tensor * f64::from(self.factor) };
        scaled.map_err(crate::Error::Backward)
    }
}

/// Keeps an error of the forward pass for the backward pass, which returns it: a loss of
/// [`Trainer`](crate::Trainer) cannot.
impl From<Result<Loss>> for Loss {
    fn from(loss: Result<Loss>) -> Self {
        loss.unwrap_or_else(|error| Loss { tensor: Err(error), sum: 0.0, count: 1, factor: 1.0 })
    }
}

/// Returns the tensor without axes.
fn one_number(tensor: Tensor) -> Result<Tensor> {
    match tensor.elem_count() {
        1 if tensor.rank() == 0 => Ok(tensor),
        1 => tensor.reshape(()),
        _ => Err(Error::Msg(format!(
            "the loss has the shape {:?}; give one number, as by `mean_all` or `sum_all`",
            tensor.dims()
        ))),
    }
}

impl kolo_ddp::binding::Loss for Loss {
    fn sum(&self) -> f64 {
        self.sum
    }

    fn count(&self) -> f64 {
        self.count as f64
    }

    fn scaled(self, factor: f32) -> Self {
        Loss { factor: self.factor * factor, ..self }
    }
}
