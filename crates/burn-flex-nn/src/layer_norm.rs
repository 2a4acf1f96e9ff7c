//! Layer normalization (Ba, Kiros and Hinton, [arXiv:1607.06450](https://arxiv.org/abs/1607.06450)).
//!
//! Let x̂ = (x − mean) / σ over the n elements of a row, and h the gradient of the loss with respect to x̂.
//! The gradient with respect to x is 1/σ · (h − Σh/n − x̂ · Σ(h·x̂)/n).

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex};
use burn::tensor::{Tensor, module};

use crate::fork::Branch;
use crate::lanes::{sum_of, vectorized};
use crate::memory::{Values, row_major, vector};
use crate::on_flex;

/// Computes [`burn::tensor::module::layer_norm`], the forward pass of Burn's
/// [`LayerNorm`](burn::nn::LayerNorm). On other backends, for types other than `f32`, and without `beta`, it
/// calls that function.
///
/// # Shapes
///
/// - `x`, output: `[…, width]` - `gamma`, `beta`: `[width]`
///
/// # Panics
///
/// Panics if `x` has another width than `gamma` or `beta`.
pub fn layer_norm<const D: usize>(
    x: Tensor<D>,
    gamma: Tensor<1>,
    beta: Option<Tensor<1>>,
    epsilon: f64,
) -> Tensor<D> {
    normalize(x, gamma, beta, epsilon, None)
}

fn normalize<const D: usize>(
    x: Tensor<D>,
    gamma: Tensor<1>,
    beta: Option<Tensor<1>>,
    epsilon: f64,
    branch: Option<Branch>,
) -> Tensor<D> {
    let [width] = gamma.dims();
    let widths = [x.dims()[D - 1], beta.as_ref().map_or(width, |beta| beta.dims()[0])];
    assert!(widths == [width; 2], "layer normalization: {width} scales for widths of {widths:?}");
    let Some(beta) = beta.clone().filter(|_| on_flex(&x) && !x.dims().contains(&0)) else {
        return module::layer_norm(x, gamma, beta, epsilon);
    };
    let [x, gamma, beta] = [x.into_dispatch(), gamma.into_dispatch(), beta.into_dispatch()];
    Tensor::from_dispatch(<Dispatch as Normalization>::normalize(x, gamma, beta, epsilon, branch))
}

/// Returns `[x, layer_norm(x, gamma, beta, epsilon)]`, for the two branches of a residual block, with a
/// cheaper backward pass: it adds the gradients of both where it computes that of the normalization.
///
/// # Shapes
///
/// See [`layer_norm`].
///
/// # Panics
///
/// See [`layer_norm`].
pub fn fork_layer_norm<const D: usize>(
    x: Tensor<D>,
    gamma: Tensor<1>,
    beta: Option<Tensor<1>>,
    epsilon: f64,
) -> [Tensor<D>; 2] {
    match Branch::of(&x).filter(|_| beta.is_some() && !x.dims().contains(&0)) {
        Some(branch) => {
            let residual = branch.follow(x.clone());
            [residual, normalize(x, gamma, beta, epsilon, Some(branch))]
        }
        None => [x.clone(), layer_norm(x, gamma, beta, epsilon)],
    }
}

#[burn::backend::backend_extension(Autodiff, Flex)]
trait Normalization: Backend {
    fn normalize(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f64,
        branch: Option<Branch>,
    ) -> FloatTensor<Self>;
}

impl Normalization for Flex {
    fn normalize(
        x: FlexTensor,
        gamma: FlexTensor,
        beta: FlexTensor,
        epsilon: f64,
        _: Option<Branch>,
    ) -> FlexTensor {
        forward(&x, &gamma, &beta, epsilon).0
    }
}

impl<C: CheckpointStrategy> Normalization for Autodiff<Flex, C> {
    fn normalize(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f64,
        branch: Option<Branch>,
    ) -> FloatTensor<Self> {
        let [(x, x_node), (gamma, gamma_node), (beta, beta_node)] =
            [x, gamma, beta].map(FloatTensor::<Self>::into_parts);
        let (output, saved) = forward(&x, &gamma, &beta, epsilon);
        let nodes = [x_node, gamma_node, beta_node];
        match Backward::<Flex, 3>::prepare::<C>(Normalize, nodes).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => prepared.finish((saved, branch), output),
            OpsKind::UnTracked(prepared) => prepared.finish(output),
        }
    }
}

/// State for the backward pass.
#[derive(Clone, Debug)]
struct Saved {
    x: Values,
    gamma: Values,
    /// Mean and 1/σ of each row.
    moments: Vec<[f32; 2]>,
}

#[derive(Debug)]
struct Normalize;

impl Backward<Flex, 3> for Normalize {
    /// State, and the branch if the input has another one.
    type State = (Saved, Option<Branch>);

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = Values::row_major(&gradients.consume::<Flex>(&ops.node));
        let (saved, branch) = ops.state;
        let other = match &ops.parents[0] {
            Some(parent) if branch.is_some_and(|branch| branch.is_second()) => {
                Some(Values::row_major(&gradients.consume::<Flex>(parent)))
            }
            _ => None,
        };
        let [of_x, of_gamma, of_beta] = backward(&saved, &gradient, other.as_deref());
        let values = [row_major(of_x, saved.x.shape()), vector(of_gamma), vector(of_beta)];
        for (node, gradient) in ops.parents.into_iter().zip(values) {
            if let Some(node) = node {
                gradients.register::<Flex>(node.id, gradient);
            }
        }
    }
}

fn forward(x: &FlexTensor, gamma: &FlexTensor, beta: &FlexTensor, epsilon: f64) -> (FlexTensor, Saved) {
    let [x, gamma, beta] = [x, gamma, beta].map(Values::row_major);
    let width = gamma.len();
    let mut out = Vec::with_capacity(x.len());
    let mut rows = out.spare_capacity_mut()[..x.len()].chunks_exact_mut(width).zip(x.chunks_exact(width));
    let mut moments = Vec::with_capacity(x.len() / width);
    vectorized(
        #[inline(always)]
        || {
            let (gamma, beta) = (&gamma[..width], &beta[..width]);
            for (out, x) in rows.by_ref() {
                let (out, x) = (&mut out[..width], &x[..width]);
                let mean = sum_of(x, x, |x, _| x) / width as f32;
                let variance = sum_of(x, x, |x, _| (x - mean) * (x - mean)) / width as f32;
                let inverse = (1.0 / (f64::from(variance) + epsilon).sqrt()) as f32;
                for channel in 0..width {
                    out[channel].write((x[channel] - mean) * inverse * gamma[channel] + beta[channel]);
                }
                moments.push([mean, inverse]);
            }
        },
    );
    // SAFETY: all rows were written.
    unsafe { out.set_len(x.len()) };
    let output = row_major(out, x.shape());
    (output, Saved { x, gamma, moments })
}

/// Returns the gradients with respect to `x`, plus another one, `gamma` and `beta`. Sums over rows are in
/// double precision.
fn backward(saved: &Saved, gradient: &[f32], other: Option<&[f32]>) -> [Vec<f32>; 3] {
    let Saved { x, gamma, moments } = saved;
    let width = gamma.len();
    assert_eq!(gradient.len(), x.len());
    let mut of_x = Vec::with_capacity(x.len());
    let into = &mut of_x.spare_capacity_mut()[..x.len()];
    let (mut of_gamma, mut of_beta) = (vec![0.0; width], vec![0.0; width]);
    let (mut normalized, mut scaled) = (vec![0.0; width], vec![0.0; width]);
    vectorized(
        #[inline(always)]
        || {
            let (gamma, normalized, scaled) =
                (&gamma[..width], &mut normalized[..width], &mut scaled[..width]);
            let (of_gamma, of_beta) = (&mut of_gamma[..width], &mut of_beta[..width]);
            let rows =
                into.chunks_exact_mut(width).zip(x.chunks_exact(width).zip(gradient.chunks_exact(width)));
            for (row, ((into, (x, gradient)), [mean, inverse])) in rows.zip(moments).enumerate() {
                // One length for all, so that the loop needs no checks.
                let (into, x, gradient) = (&mut into[..width], &x[..width], &gradient[..width]);
                for channel in 0..width {
                    normalized[channel] = (x[channel] - mean) * inverse;
                    scaled[channel] = gradient[channel] * gamma[channel];
                    of_gamma[channel] += f64::from(gradient[channel]) * f64::from(normalized[channel]);
                    of_beta[channel] += f64::from(gradient[channel]);
                }
                let first = sum_of(scaled, scaled, |h, _| h) / width as f32;
                let second = sum_of(scaled, normalized, |h, x| h * x) / width as f32;
                let of_x =
                    |channel: usize| (scaled[channel] - first - normalized[channel] * second) * inverse;
                match other {
                    Some(other) => {
                        let other = &other[row * width..][..width];
                        for channel in 0..width {
                            into[channel].write(of_x(channel) + other[channel]);
                        }
                    }
                    None => (0..width).for_each(|channel| {
                        into[channel].write(of_x(channel));
                    }),
                }
            }
        },
    );
    // SAFETY: all rows were written.
    unsafe { of_x.set_len(x.len()) };
    let rounded = |sums: Vec<f64>| sums.into_iter().map(|sum| sum as f32).collect();
    [of_x, rounded(of_gamma), rounded(of_beta)]
}
