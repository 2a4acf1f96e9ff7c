//! Gaussian error linear unit (Hendrycks and Gimpel, [arXiv:1606.08415](https://arxiv.org/abs/1606.08415)): x
//! · Φ(x), with Φ the distribution function of the normal distribution.
//!
//! Φ uses the rational approximation 7.1.26 of Abramowitz and Stegun, *Handbook of Mathematical Functions*,
//! with an error below 1.5e-7: Φ(-|x|) = ½ t (a₁ + t (a₂ + …)) e^(-x²/2) with t = 1 / (1 + p |x| / √2). The
//! density in the gradient has the same exponential.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex};
use burn::tensor::Tensor;

use crate::lanes::{exp, vectorized};
use crate::memory::{Values, row_major};
use crate::on_flex;

/// Computes [`burn::tensor::activation::gelu`], within 1e-6, and its gradient. On other backends and types it
/// is composed of Burn's `erf`, because the gradient of Burn's own function is that of another one, the
/// approximation by tanh, from which it differs by up to 9e-4.
///
/// # Shapes
///
/// - `x`, output: any, the same
pub fn gelu<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    if !on_flex(&x) {
        return composed(x);
    }
    Tensor::from_dispatch(<Dispatch as Gelu>::gelu(x.into_dispatch()))
}

/// x · ½ (1 + erf(x / √2))
fn composed<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let distribution = x.clone().div_scalar(std::f32::consts::SQRT_2).erf().add_scalar(1.0).mul_scalar(0.5);
    x * distribution
}

#[burn::backend::backend_extension(Autodiff, Flex)]
trait Gelu: Backend {
    fn gelu(x: FloatTensor<Self>) -> FloatTensor<Self>;
}

impl Gelu for Flex {
    fn gelu(x: FlexTensor) -> FlexTensor {
        let x = Values::row_major(&x);
        row_major(mapped(&x, value_and_slope), x.shape())
    }
}

impl<C: CheckpointStrategy> Gelu for Autodiff<Flex, C> {
    fn gelu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let (x, node) = x.into_parts();
        match Backward::<Flex, 1>::prepare::<C>(GeluOp, [node]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let x = Values::row_major(&x);
                let (values, slopes) = with_slopes(&x, value_and_slope);
                prepared.finish(slopes, row_major(values, x.shape()))
            }
            OpsKind::UnTracked(prepared) => prepared.finish(<Flex as Gelu>::gelu(x)),
        }
    }
}

#[derive(Debug)]
struct GeluOp;

impl Backward<Flex, 1> for GeluOp {
    /// Slope at each element.
    type State = Vec<f32>;

    fn backward(self, ops: Ops<Vec<f32>, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = Values::row_major(&gradients.consume::<Flex>(&ops.node));
        let [Some(parent)] = ops.parents else { return };
        let of_x = row_major(multiplied(ops.state, &gradient), gradient.shape());
        gradients.register::<Flex>(parent.id, of_x);
    }
}

/// Returns the values of a function of each element, which comes with its derivative.
pub(crate) fn mapped(x: &[f32], value_and_slope: impl Fn(f32) -> [f32; 2]) -> Vec<f32> {
    vectorized(
        #[inline(always)]
        || x.iter().map(|x| value_and_slope(*x)[0]).collect(),
    )
}

/// Returns the values and the derivatives of a function of each element.
pub(crate) fn with_slopes(x: &[f32], value_and_slope: impl Fn(f32) -> [f32; 2]) -> (Vec<f32>, Vec<f32>) {
    let mut slopes = vec![0.0; x.len()];
    let values = vectorized(
        #[inline(always)]
        || {
            let value = |(slope, x): (&mut f32, &f32)| {
                let [value, at] = value_and_slope(*x);
                *slope = at;
                value
            };
            slopes.iter_mut().zip(x).map(value).collect()
        },
    );
    (values, slopes)
}

/// Multiplies slopes by the gradient of the function's values.
pub(crate) fn multiplied(mut slopes: Vec<f32>, gradient: &[f32]) -> Vec<f32> {
    vectorized(
        #[inline(always)]
        || slopes.iter_mut().zip(gradient).for_each(|(slope, gradient)| *slope *= gradient),
    );
    slopes
}

/// Returns the function and its derivative at `x`.
#[inline(always)]
pub(crate) fn value_and_slope(x: f32) -> [f32; 2] {
    let [distribution, density] = normal(x);
    [x * distribution, distribution + x * density]
}

/// Returns distribution function and density of the standard normal distribution at `x`.
#[inline(always)]
fn normal(x: f32) -> [f32; 2] {
    let size = x.abs();
    let t = 1.0 / (1.0 + 0.327_591_1 * std::f32::consts::FRAC_1_SQRT_2 * size);
    let mut p = 1.061_405_4_f32;
    for coefficient in [-1.453_152_1, 1.421_413_8, -0.284_496_72, 0.254_829_6] {
        p = p * t + coefficient;
    }
    let e = exp(-0.5 * size * size);
    let below = 0.5 * p * t * e;
    let distribution = if x < 0.0 { below } else { 1.0 - below };
    // 1 / √(2 π).
    [distribution, 0.398_942_3 * e]
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};

    use super::*;

    /// Other devices compute what the kernel does, and the same gradient.
    #[test]
    fn the_composed_function_is_the_kernel() {
        let device = Device::flex().autodiff();
        let values: Vec<f32> = (-600..=600).map(|x| x as f32 / 100.0).collect();
        let data = TensorData::new(values.clone(), [values.len()]);
        let passes = |function: fn(Tensor<1>) -> Tensor<1>| {
            let x = Tensor::<1>::from_data(data.clone(), &device).require_grad();
            let output = function(x.clone());
            let gradient = x.grad(&output.clone().sum().backward()).unwrap();
            [output.into_data(), gradient.into_data()].map(|data| data.try_to_vec::<f32>().unwrap())
        };
        for (composed, kernel) in passes(composed).into_iter().zip(passes(gelu)) {
            for ((x, a), b) in values.iter().zip(composed).zip(kernel) {
                assert!((a - b).abs() < 2e-6, "at {x}: {a} and {b}");
            }
        }
    }
}
