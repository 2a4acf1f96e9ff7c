//! Batch normalization over the global batch (Ioffe and Szegedy,
//! [arXiv:1502.03167](https://arxiv.org/abs/1502.03167)), as one operation of the graph that exchanges sums
//! in its forward and its backward pass.
//!
//! Let x̂ = (x − mean) / σ over the n elements that all shards have of a channel, and g the gradient of the
//! loss with respect to the output. The gradient with respect to x is γ/σ · (g − Σg/n − x̂ · Σ(g·x̂)/n), with
//! sums over all shards. The gradients with respect to γ and β are those of this shard alone: the reduction
//! adds them up across shards like every other gradient.

mod kernel;

#[cfg(feature = "cubecl")]
use burn::backend::Cube;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::tensor::{Device, FloatTensor};
use burn::backend::{Autodiff, Backend, Dispatch, Flex, TensorMetadata};
use burn::nn::BatchNorm;
use burn::tensor::{Shape, Tensor, TensorData};

use kolo_ddp::MemoryOrder;
use kolo_ddp::cross_shard::{CrossShardPass, ShardHandle, SumRequest};

use self::kernel::Extent;
use crate::Error;
use crate::backend::{HostMemory, ReadError, on_backends};
use crate::hook::order_of;

/// Replaces `layer.forward(x)` in training, with mean and variance of the global batch instead of the
/// shard's. The running statistics take these, too (the variance as in Burn, over n rather than n − 1).
/// PyTorch calls it `SyncBatchNorm`. In evaluation, or if the layer's training flag is off (frozen), it is
/// `layer.forward(x)`.
///
/// All shards must call it in the same order. Each call waits for all of them in the forward pass, and again
/// in the backward pass. On a device, `x` and its gradient are copied to the host, which computes the sums.
///
/// # Shapes
///
/// - `x`, output: `[samples, channels, …]`
///
/// # Panics
///
/// Panics if `x` has fewer than two dimensions, or another number of channels than the layer.
pub fn sync_batch_norm<const D: usize>(layer: &BatchNorm, x: Tensor<D>, pass: &CrossShardPass) -> Tensor<D> {
    let device = x.device();
    if !device.is_autodiff() || !layer.training.is_enabled() {
        return layer.forward(x);
    }
    let [channels] = layer.gamma.dims();
    assert!(D > 1 && x.dims()[1] == channels, "{:?} for a layer of {channels} channels", x.dims());
    let (output, moments) = match normalize(layer, x.clone(), pass) {
        Ok(normalized) => normalized,
        Err(cause) => {
            pass.handle().turns().fail(unreadable(cause));
            return layer.forward(x);
        }
    };
    for (running, value) in [(&layer.running_mean, moments.mean), (&layer.running_var, moments.variance)] {
        let value = Tensor::<1>::from_data(TensorData::new(value, [channels]), &device);
        let kept = running.value_sync().mul_scalar(1.0 - layer.momentum);
        running.update(kept.add(value.mul_scalar(layer.momentum)));
    }
    output
}

/// Mean and variance of each channel over the global batch, in the precision of the running statistics.
struct Moments {
    mean: Vec<f32>,
    variance: Vec<f32>,
}

/// Normalizes `x` with the global batch's mean and variance.
/// Returns an error if a tensor cannot be read as `f32`.
fn normalize<const D: usize>(
    layer: &BatchNorm,
    x: Tensor<D>,
    pass: &CrossShardPass,
) -> Result<(Tensor<D>, Moments), ReadError> {
    let dims = x.dims();
    let order = channels_innermost(order_of(x.clone()), D);
    let (channels, elements) = (dims[1], dims.iter().product::<usize>());
    let extent = match order.is_row_major() {
        true => Extent { samples: dims[0], channels, inner: dims[2..].iter().product() },
        false => Extent { samples: elements / channels.max(1), channels, inner: 1 },
    };
    let handle = pass.handle().clone();
    let this = Layer { number: pass.next_layer(), epsilon: layer.epsilon, extent, order, handle };
    let [gamma, beta] = [layer.gamma.val(), layer.beta.val()].map(Tensor::into_dispatch);
    let (output, moments) = <Dispatch as GlobalNorm>::normalize(x.into_dispatch(), gamma, beta, this);
    moments.map(|moments| (Tensor::from_dispatch(output), moments))
}

/// Returns `order` if it has the channels (axis 1) innermost, as after the layers of burn-flex-nn. Otherwise
/// returns row-major order, into which the tensor is copied.
fn channels_innermost(order: MemoryOrder, rank: usize) -> MemoryOrder {
    if order.axes(rank).last() == Some(&1) { order } else { MemoryOrder::row_major() }
}

on_backends! {
    /// Batch normalization over the global batch on a backend; never called without autodiff.
    trait GlobalNorm: Backend {
        /// Returns the output and the moments; the output is `x` itself if a tensor could not be read.
        fn normalize(
            x: FloatTensor<Self>,
            _gamma: FloatTensor<Self>,
            _beta: FloatTensor<Self>,
            _layer: Layer,
        ) -> (FloatTensor<Self>, Result<Moments, ReadError>) {
            (x, Ok(Moments { mean: Vec::new(), variance: Vec::new() }))
        }
    }
}

impl GlobalNorm for Flex {}
#[cfg(feature = "cubecl")]
impl GlobalNorm for Cube {}

impl<B: HostMemory, C: CheckpointStrategy> GlobalNorm for Autodiff<B, C> {
    fn normalize(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        layer: Layer,
    ) -> (FloatTensor<Self>, Result<Moments, ReadError>) {
        match layer.forward::<B, C>(x.clone(), gamma, beta) {
            Ok((output, moments)) => (output, Ok(moments)),
            Err(cause) => (x, Err(cause)),
        }
    }
}

/// One normalization in one shard.
#[derive(Clone, Debug)]
struct Layer {
    number: usize,
    epsilon: f64,
    extent: Extent,
    /// Order in which the elements are read and written.
    order: MemoryOrder,
    handle: ShardHandle,
}

impl Layer {
    fn forward<B: HostMemory, C: CheckpointStrategy>(
        self,
        x: FloatTensor<Autodiff<B, C>>,
        gamma: FloatTensor<Autodiff<B, C>>,
        beta: FloatTensor<Autodiff<B, C>>,
    ) -> Result<(FloatTensor<Autodiff<B, C>>, Moments), ReadError> {
        let (shape, device) = (x.shape(), x.device());
        let [(x, x_node), (gamma, gamma_node), (beta, beta_node)] =
            [x, gamma, beta].map(FloatTensor::<Autodiff<B, C>>::into_parts);
        let (x, gamma, beta) = (B::floats_in(&self.order, x)?, B::floats(gamma)?, B::floats(beta)?);
        let mut own = kernel::moments(self.extent, &x);
        own.push(self.extent.count());
        let sums = self.sum("the forward pass of batch normalization", own);
        let channels = self.extent.channels;
        let count = sums[2 * channels];
        let mean: Vec<f64> = sums[..channels].iter().map(|sum| sum / count).collect();
        let squares = sums[channels..].iter().zip(&mean);
        // Rounding may make a variance negative, which becomes 0. NaN must stay NaN; `f64::max` would drop
        // it.
        let variance = squares.map(|(sum, mean)| sum / count - mean * mean);
        let variance: Vec<f64> = variance.map(|of| if of < 0.0 { 0.0 } else { of }).collect();
        let inverse: Vec<f64> =
            variance.iter().map(|variance| 1.0 / (variance + self.epsilon).sqrt()).collect();
        let scale: Vec<f64> = inverse.iter().zip(&*gamma).map(|(i, gamma)| i * f64::from(*gamma)).collect();
        let output = kernel::normalize(self.extent, &x, &mean, &scale, &beta);
        let output = tensor_in::<B>(&self.order, output, &shape, &device);
        let rounded = |of: &[f64]| of.iter().map(|value| *value as f32).collect();
        let moments = Moments { mean: rounded(&mean), variance: rounded(&variance) };
        let state = State::<B> { layer: self, x, shape, device, count, mean, inverse, scale };
        Ok((record::<B, C>(state, output, [x_node, gamma_node, beta_node]), moments))
    }

    fn sum(&self, what: &'static str, own: Vec<f64>) -> Vec<f64> {
        self.handle.sum(SumRequest { what, number: self.number, len: own.len() }, own)
    }
}

/// Adds the operation to the graph. The backward pass recomputes nothing, with any checkpointing strategy.
fn record<B: HostMemory, C: CheckpointStrategy>(
    state: State<B>,
    output: FloatTensor<B>,
    parents: [NodeGuard; 3],
) -> FloatTensor<Autodiff<B, C>> {
    match Normalize.prepare::<C>(parents).compute_bound().stateful() {
        OpsKind::Tracked(prepared) => prepared.finish(state, output),
        OpsKind::UnTracked(prepared) => prepared.finish(output),
    }
}

/// Creates a tensor of this shape from elements in another order.
fn tensor_in<B: HostMemory>(
    order: &MemoryOrder,
    values: Vec<f32>,
    shape: &Shape,
    device: &Device<B>,
) -> FloatTensor<B> {
    if order.is_row_major() {
        return tensor::<B>(values, shape.clone(), device);
    }
    let rank = shape.num_dims();
    let in_memory: Vec<usize> = order.axes(rank).iter().map(|axis| shape[*axis]).collect();
    B::float_permute(tensor::<B>(values, Shape::from(in_memory), device), &order.inverse_axes(rank))
}

fn tensor<B: HostMemory>(values: Vec<f32>, shape: Shape, device: &Device<B>) -> FloatTensor<B> {
    B::float_from_data(TensorData::new(values, shape), device)
}

/// State for the backward pass.
#[derive(Clone, Debug)]
struct State<B: HostMemory> {
    layer: Layer,
    x: B::Floats,
    shape: Shape,
    device: Device<B>,
    count: f64,
    mean: Vec<f64>,
    /// 1/σ; `scale` is γ/σ.
    inverse: Vec<f64>,
    scale: Vec<f64>,
}

#[derive(Debug)]
struct Normalize;

impl<B: HostMemory> Backward<B, 3> for Normalize {
    type State = State<B>;

    fn backward(self, ops: Ops<State<B>, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let State { layer, x, shape, device, count, mean, inverse, scale } = ops.state;
        let (extent, channels) = (layer.extent, layer.extent.channels);
        let per_channel = |values: Vec<f32>| tensor::<B>(values, Shape::new([channels]), &device);
        let [x_node, gamma_node, beta_node] = ops.parents;
        let g = match B::floats_in(&layer.order, gradients.consume::<B>(&ops.node)) {
            Ok(g) => g,
            Err(cause) => {
                // The pass continues to its end with zeros; the turn taker reports the error there.
                layer.handle.turns().fail(unreadable(cause));
                let zeros = tensor::<B>(vec![0.0; x.len()], shape, &device);
                x_node.into_iter().for_each(|node| gradients.register::<B>(node.id, zeros.clone()));
                let affine = [gamma_node, beta_node].into_iter().flatten();
                return affine
                    .for_each(|node| gradients.register::<B>(node.id, per_channel(vec![0.0; channels])));
            }
        };
        let own = kernel::gradient_moments(extent, &g, &x, &mean);
        if let Some(node) = gamma_node {
            let products = own[channels..].iter().zip(&inverse);
            let of_gamma = products.map(|(sum, inverse)| (sum * inverse) as f32).collect();
            gradients.register::<B>(node.id, per_channel(of_gamma));
        }
        if let Some(node) = beta_node {
            let of_beta = own[..channels].iter().map(|sum| *sum as f32).collect();
            gradients.register::<B>(node.id, per_channel(of_beta));
        }
        let Some(node) = x_node else { return };
        let sums = layer.sum("the backward pass of batch normalization", own);
        let first: Vec<f64> = sums[..channels].iter().map(|sum| sum / count).collect();
        let products = sums[channels..].iter().zip(&inverse);
        let second: Vec<f64> = products.map(|(sum, inverse)| sum * inverse * inverse / count).collect();
        let of_x = kernel::gradient(extent, &g, &x, &mean, [&scale, &first, &second]);
        gradients.register::<B>(node.id, tensor_in::<B>(&layer.order, of_x, &shape, &device));
    }
}

/// Returns the error that ends the step of all shards if this one cannot read a tensor.
fn unreadable(cause: ReadError) -> kolo_ddp::Error {
    kolo_ddp::Error::Binding(Box::new(Error::BatchNorm(cause)))
}

#[cfg(test)]
mod tests;
