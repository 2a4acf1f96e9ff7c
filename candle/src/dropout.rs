//! Dropout whose mask depends on a key alone, and so not on the worker.

use candle_core::{Result, Tensor, bail};
use kolo_ddp::key::Key;

/// Sets each element to zero with this probability, and divides the others by `1 - probability` (Srivastava
/// et al., "Dropout", JMLR 2014). The mask is a function of `key`: take the seed, the epoch, the step, the
/// shard and a number of the layer, as `Key::new(seed).with(step).with(shard).with(layer)`.
///
/// ```
/// use candle_core::{Device, Tensor};
/// use kolo_ddp::key::Key;
///
/// let x = Tensor::ones(1000, candle_core::DType::F32, &Device::Cpu)?;
/// let key = Key::new(7).with(0);
/// let once = kolo_candle::dropout(&x, 0.25, key)?.to_vec1::<f32>()?;
/// assert_eq!(once, kolo_candle::dropout(&x, 0.25, key)?.to_vec1::<f32>()?);
/// assert!(once.iter().all(|value| [0.0, 1.0 / 0.75].contains(value)));
/// # Ok::<(), candle_core::Error>(())
/// ```
///
/// # Errors
///
/// The probability is not in 0 ≤ p < 1.
pub fn dropout(x: &Tensor, probability: f64, key: Key) -> Result<Tensor> {
    if !(0.0..1.0).contains(&probability) {
        bail!("dropout: the probability is {probability}; it must be at least 0 and below 1");
    }
    let kept = (1.0 / (1.0 - probability)) as f32;
    let value = |i: u64| if key.with(i).below_probability(probability) { 0.0 } else { kept };
    let mask: Vec<f32> = (0..x.elem_count() as u64).map(value).collect();
    x.mul(&Tensor::from_vec(mask, x.shape(), x.device())?.to_dtype(x.dtype())?)
}
