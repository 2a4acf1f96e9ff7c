//! Batch normalisation over the global batch (Ioffe and Szegedy, [arXiv:1502.03167](https://arxiv.org/abs/1502.03167)): one
//! operation of the graph, with an exchange of sums in its forward and in its backward pass.
//!
//! With x̂ = (x − mean) / σ over the n elements that all shards have of a channel, and g the gradient of the loss with respect
//! to the output, the gradient with respect to x is γ/σ · (g − Σg/n − x̂ · Σ(g·x̂)/n), sums over all shards. Those with respect
//! to γ and β are of this shard alone: the reducer adds them to the others' like every other gradient.

mod kernel;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Flex};
use burn::nn::BatchNorm;
use burn::tensor::{GradientCheckpointingStrategy, Shape, Tensor, TensorData};

use kolo_ddp::cross_shard::{ShardHandle, SumRequest};

use self::kernel::Extent;
use crate::hook::UNSUPPORTED;

type Plain = Autodiff<Flex, NoCheckpointing>;

/// A layer's normalisation over the global batch: its output, and mean and variance of each channel.
pub(crate) struct Normalised<T> {
    pub(crate) output: T,
    pub(crate) mean: Vec<f32>,
    pub(crate) variance: Vec<f32>,
}

/// Normalises `x` with the global batch's mean and variance, as the layer with this number; all shards call it alike.
///
/// # Errors
///
/// Not on a backend whose memory can be read; in words.
pub(crate) fn forward<const D: usize>(
    layer: &BatchNorm,
    x: Tensor<D>,
    number: usize,
    handle: &ShardHandle,
) -> Result<Normalised<Tensor<D>>, String> {
    let dims = x.dims();
    let extent = Extent { samples: dims[0], channels: dims[1], inner: dims[2..].iter().product() };
    let this = Layer { number, epsilon: layer.epsilon, extent, handle: handle.clone() };
    // The strategy decides what is computed again in the backward pass, which is nothing here.
    let strategy = x.gradient_checkpointing_strategy().ok_or(UNSUPPORTED)?;
    let parents = (primitive(x)?, primitive(layer.gamma.val())?, primitive(layer.beta.val())?);
    let Normalised { output, mean, variance } = this.forward([parents.0, parents.1, parents.2])?;
    let output = Tensor::from_primitive::<Plain>(output).with_gradient_checkpointing_strategy(strategy);
    Ok(Normalised { output, mean, variance })
}

fn primitive<const D: usize>(tensor: Tensor<D>) -> Result<FloatTensor<Plain>, String> {
    if !tensor.is_autodiff() {
        return Err(UNSUPPORTED.into());
    }
    let plain = tensor.with_gradient_checkpointing_strategy(GradientCheckpointingStrategy::Disabled);
    plain.try_into_primitive::<Plain>().map_err(|_| UNSUPPORTED.into())
}

/// One normalisation of one shard.
#[derive(Clone, Debug)]
struct Layer {
    number: usize,
    epsilon: f64,
    extent: Extent,
    handle: ShardHandle,
}

impl Layer {
    /// From x, γ and β.
    fn forward(self, parents: [FloatTensor<Plain>; 3]) -> Result<Normalised<FloatTensor<Plain>>, String> {
        let [(x, x_node), (gamma, gamma_node), (beta, beta_node)] =
            parents.map(FloatTensor::<Plain>::into_parts);
        let [x, gamma, beta] = [x, gamma, beta].map(|tensor| tensor.to_contiguous());
        let floats = (x.as_slice::<f32>(), gamma.as_slice::<f32>(), beta.as_slice::<f32>());
        let (Some(values), Some(gamma), Some(beta)) = floats else {
            return Err("batch normalisation over the global batch is done in f32".into());
        };
        let mut own = kernel::moments(self.extent, values);
        own.push(self.extent.count());
        let sums = self.sum("the forward pass of batch normalisation", own);
        let channels = self.extent.channels;
        let count = sums[2 * channels];
        let mean: Vec<f64> = sums[..channels].iter().map(|sum| sum / count).collect();
        let squares = sums[channels..].iter().zip(&mean);
        let variance: Vec<f64> = squares.map(|(sum, mean)| (sum / count - mean * mean).max(0.0)).collect();
        let inverse: Vec<f64> =
            variance.iter().map(|variance| 1.0 / (variance + self.epsilon).sqrt()).collect();
        let scale: Vec<f64> = inverse.iter().zip(gamma).map(|(i, gamma)| i * f64::from(*gamma)).collect();
        let output = kernel::normalise(self.extent, values, &mean, &scale, beta);
        let output = flex(output, x.layout().shape().clone());
        let rounded = |of: &[f64]| of.iter().map(|value| *value as f32).collect();
        let statistics = (rounded(&mean), rounded(&variance));
        let state = State { layer: self, x: x.clone(), count, mean, inverse, scale };
        let nodes = [x_node, gamma_node, beta_node];
        let output = match Normalise.prepare::<NoCheckpointing>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish(state, output),
            OpsKind::UnTracked(prepared) => prepared.finish(output),
        };
        Ok(Normalised { output, mean: statistics.0, variance: statistics.1 })
    }

    fn sum(&self, what: &'static str, own: Vec<f64>) -> Vec<f64> {
        self.handle.sum(SumRequest { what, number: self.number, len: own.len() }, own)
    }
}

fn flex(values: Vec<f32>, shape: Shape) -> FloatTensor<Flex> {
    FloatTensor::<Flex>::from_data(TensorData::new(values, shape))
}

/// What the backward pass needs.
#[derive(Clone, Debug)]
struct State {
    layer: Layer,
    x: FloatTensor<Flex>,
    count: f64,
    mean: Vec<f64>,
    /// 1/σ and γ/σ.
    inverse: Vec<f64>,
    scale: Vec<f64>,
}

#[derive(Debug)]
struct Normalise;

impl Backward<Flex, 3> for Normalise {
    type State = State;

    fn backward(self, ops: Ops<State, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let State { layer, x, count, mean, inverse, scale } = ops.state;
        let gradient = gradients.consume::<Flex>(&ops.node).to_contiguous();
        let g = gradient.as_slice::<f32>().expect("a contiguous f32 tensor is a slice");
        let values = x.as_slice::<f32>().expect("the forward pass has read it");
        let (extent, channels) = (layer.extent, layer.extent.channels);
        let own = kernel::gradient_moments(extent, g, values, &mean);
        let [x_node, gamma_node, beta_node] = ops.parents;
        let per_channel = |values: Vec<f32>| flex(values, Shape::new([channels]));
        if let Some(node) = gamma_node {
            let products = own[channels..].iter().zip(&inverse);
            let of_gamma = products.map(|(sum, inverse)| (sum * inverse) as f32).collect();
            gradients.register::<Flex>(node.id, per_channel(of_gamma));
        }
        if let Some(node) = beta_node {
            let of_beta = own[..channels].iter().map(|sum| *sum as f32).collect();
            gradients.register::<Flex>(node.id, per_channel(of_beta));
        }
        let Some(node) = x_node else { return };
        let sums = layer.sum("the backward pass of batch normalisation", own);
        let first: Vec<f64> = sums[..channels].iter().map(|sum| sum / count).collect();
        let products = sums[channels..].iter().zip(&inverse);
        let second: Vec<f64> = products.map(|(sum, inverse)| sum * inverse * inverse / count).collect();
        let of_x = kernel::gradient(extent, g, values, &mean, [&scale, &first, &second]);
        gradients.register::<Flex>(node.id, flex(of_x, x.layout().shape().clone()));
    }
}

#[cfg(test)]
mod tests;
