//! Gaussian error linear unit (Hendrycks and Gimpel, [arXiv:1606.08415](https://arxiv.org/abs/1606.08415)) in
//! its two forms, as one operation of the graph.

mod normal;
mod tanh;
mod unit;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex};
use burn::tensor::Tensor;
use burn::tensor::activation::gelu_approximate;

pub(crate) use self::unit::{Unit, multiplied};
use crate::lanes::vectorized;
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
    Unit::Normal.of(x)
}

/// Computes [`gelu_approximate`] and its gradient. On `flex` it is one operation of the graph.
///
/// # Shapes
///
/// - `x`, output: any, the same
pub fn gelu_tanh<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    Unit::Tanh.of(x)
}

impl Unit {
    /// Computes the unit of each element.
    pub(crate) fn of<const D: usize>(self, x: Tensor<D>) -> Tensor<D> {
        match (on_flex(&x), self) {
            (true, unit) => Tensor::from_dispatch(<Dispatch as Gelu>::gelu(x.into_dispatch(), unit)),
            (false, Unit::Normal) => composed(x),
            (false, Unit::Tanh) => gelu_approximate(x),
        }
    }
}

/// x · ½ (1 + erf(x / √2))
fn composed<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    let distribution = x.clone().div_scalar(std::f32::consts::SQRT_2).erf().add_scalar(1.0).mul_scalar(0.5);
    x * distribution
}

#[burn::backend::backend_extension(Autodiff, Flex)]
trait Gelu: Backend {
    fn gelu(x: FloatTensor<Self>, unit: Unit) -> FloatTensor<Self>;
}

impl Gelu for Flex {
    fn gelu(x: FlexTensor, unit: Unit) -> FlexTensor {
        let x = Values::row_major(&x);
        let mut values = x.to_vec();
        vectorized(
            #[inline(always)]
            || unit.apply(&mut values),
        );
        row_major(values, x.shape())
    }
}

impl<C: CheckpointStrategy> Gelu for Autodiff<Flex, C> {
    fn gelu(x: FloatTensor<Self>, unit: Unit) -> FloatTensor<Self> {
        let (x, node) = x.into_parts();
        match Backward::<Flex, 1>::prepare::<C>(GeluOp, [node]).compute_bound().stateful() {
            OpsKind::Tracked(prepared) => {
                let x = Values::row_major(&x);
                let (mut values, mut slopes) = (x.to_vec(), Vec::with_capacity(x.len()));
                let into = &mut slopes.spare_capacity_mut()[..x.len()];
                vectorized(
                    #[inline(always)]
                    || unit.apply_with_slopes(&mut values, into),
                );
                // SAFETY: the slope at every value was written.
                unsafe { slopes.set_len(x.len()) };
                prepared.finish(slopes, row_major(values, x.shape()))
            }
            OpsKind::UnTracked(prepared) => prepared.finish(<Flex as Gelu>::gelu(x, unit)),
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
