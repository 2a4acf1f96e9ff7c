//! One shard's passes, in step with those of all other shards: what a model needs for batch normalisation
//! over the global batch.

use std::sync::atomic::{AtomicUsize, Ordering};

use burn::nn::BatchNorm;
use burn::tensor::{Tensor, TensorData};

use kolo_ddp::cross_shard::ShardHandle;

use crate::batch_norm;

/// One shard's place in a step whose shards go through the model together: see
/// [`Ddp::in_step`](crate::Ddp::in_step).
#[derive(Debug)]
pub struct ShardPass {
    shard: usize,
    handle: ShardHandle,
    /// Normalisations so far.
    layers: AtomicUsize,
}

impl ShardPass {
    pub(crate) fn new(shard: usize, handle: ShardHandle) -> Self {
        ShardPass { shard, handle, layers: AtomicUsize::new(0) }
    }

    /// Which shard of the step it is.
    pub fn shard(&self) -> usize {
        self.shard
    }

    /// What `layer.forward(x)` does in training, with mean and variance of the global batch instead of the
    /// shard's, of which its running statistics learn as well (the variance as Burn counts it: over n, not n
    /// − 1). In evaluation, or where the layer is frozen, it is `layer.forward(x)`.
    ///
    /// All shards must call it in the same order. Each call waits for all of them in the forward pass, and
    /// once more in the backward pass.
    ///
    /// # Shapes
    ///
    /// - `x`, output: `[samples, channels, …]`
    ///
    /// # Panics
    ///
    /// If `x` has fewer than two dimensions, or other channels than the layer.
    pub fn batch_norm<const D: usize>(&self, layer: &BatchNorm, x: Tensor<D>) -> Tensor<D> {
        let device = x.device();
        if !device.is_autodiff() || !layer.training.is_enabled() {
            return layer.forward(x);
        }
        let [channels] = layer.gamma.dims();
        assert!(D > 1 && x.dims()[1] == channels, "{:?} for a layer of {channels} channels", x.dims());
        let number = self.layers.fetch_add(1, Ordering::Relaxed);
        let (output, moments) = match batch_norm::forward(layer, x.clone(), number, &self.handle) {
            Ok(normalised) => normalised,
            Err(cause) => {
                self.handle.turns().fail(batch_norm::unreadable(&cause));
                return layer.forward(x);
            }
        };
        for (running, value) in [(&layer.running_mean, moments.mean), (&layer.running_var, moments.variance)]
        {
            let value = Tensor::<1>::from_data(TensorData::new(value, [channels]), &device);
            let kept = running.value_sync().mul_scalar(1.0 - layer.momentum);
            running.update(kept.add(value.mul_scalar(layer.momentum)));
        }
        output
    }
}
