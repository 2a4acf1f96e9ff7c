//! Values of a lower type in `f32`: an operation that rounds its input and, in the backward pass, the
//! gradient.

use burn::backend::Bytes;
use burn::backend::DType;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, TensorMetadata};
use burn::tensor::Tensor;

use super::kind::Precision;
use crate::lanes::vectorized;
use crate::recomputed::is_recomputed;

/// Rounds each value to the nearest one of the lower type, ties to even; the gradient likewise.
pub(super) fn rounded<const D: usize>(x: Tensor<D>, precision: Precision) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as Rounding>::round_to(x.into_dispatch(), precision))
}

/// Rounds like [`rounded`], as a step of the graph behind another tensor.
///
/// A backward pass takes the steps with the longest way from the leaves first. A step with a leaf as its only
/// parent would come last of all: until then the gradient would stay in memory, and no hook would see it.
pub(super) fn rounded_behind<const D: usize, const E: usize>(
    leaf: Tensor<D>,
    other: Tensor<E>,
    precision: Precision,
) -> Tensor<D> {
    let (leaf, other) = (leaf.into_dispatch(), other.into_dispatch());
    Tensor::from_dispatch(<Dispatch as Rounding>::round_behind(leaf, other, precision))
}

/// Rounds like [`rounded_behind`] if the tensor is a use of a parameter that is computed again, and like
/// [`rounded`] otherwise.
pub(super) fn rounded_parameter<const D: usize, const E: usize>(
    x: Tensor<D>,
    other: Tensor<E>,
    precision: Precision,
) -> Tensor<D> {
    let (x, other) = (x.into_dispatch(), other.into_dispatch());
    Tensor::from_dispatch(<Dispatch as Rounding>::round_parameter(x, other, precision))
}

#[burn::backend::backend_extension(Autodiff, Flex)]
trait Rounding: Backend {
    fn round_to(x: FloatTensor<Self>, precision: Precision) -> FloatTensor<Self>;

    fn round_behind(
        leaf: FloatTensor<Self>,
        other: FloatTensor<Self>,
        precision: Precision,
    ) -> FloatTensor<Self>;

    fn round_parameter(
        x: FloatTensor<Self>,
        other: FloatTensor<Self>,
        precision: Precision,
    ) -> FloatTensor<Self>;
}

impl Rounding for Flex {
    fn round_to(x: FlexTensor, precision: Precision) -> FlexTensor {
        round(x, precision)
    }

    fn round_behind(leaf: FlexTensor, _: FlexTensor, precision: Precision) -> FlexTensor {
        round(leaf, precision)
    }

    fn round_parameter(x: FlexTensor, _: FlexTensor, precision: Precision) -> FlexTensor {
        round(x, precision)
    }
}

impl<C: CheckpointStrategy> Rounding for Autodiff<Flex, C> {
    fn round_to(x: FloatTensor<Self>, precision: Precision) -> FloatTensor<Self> {
        let (x, node) = x.into_parts();
        recorded::<C, 1>([node], round(x, precision), precision)
    }

    fn round_behind(
        leaf: FloatTensor<Self>,
        other: FloatTensor<Self>,
        precision: Precision,
    ) -> FloatTensor<Self> {
        let (leaf, node) = leaf.into_parts();
        recorded::<C, 2>([node, other.node()], round(leaf, precision), precision)
    }

    fn round_parameter(
        x: FloatTensor<Self>,
        other: FloatTensor<Self>,
        precision: Precision,
    ) -> FloatTensor<Self> {
        match is_recomputed(x.id()) {
            true => Self::round_behind(x, other, precision),
            false => Self::round_to(x, precision),
        }
    }
}

/// Adds the step to the graph. It has gradients for its first parent.
fn recorded<C: CheckpointStrategy, const N: usize>(
    parents: [NodeGuard; N],
    output: FlexTensor,
    precision: Precision,
) -> FloatTensor<Autodiff<Flex, C>> {
    match Backward::<Flex, N>::prepare::<C>(RoundOp, parents).compute_bound().stateful() {
        OpsKind::Tracked(prepared) => prepared.finish(precision, output),
        OpsKind::UnTracked(prepared) => prepared.finish(output),
    }
}

#[derive(Debug)]
struct RoundOp;

impl<const N: usize> Backward<Flex, N> for RoundOp {
    type State = Precision;

    fn backward(self, ops: Ops<Precision, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<Flex>(&ops.node);
        let Some(Some(parent)) = ops.parents.first() else { return };
        gradients.register::<Flex>(parent.id, round(gradient, ops.state));
    }
}

/// Rounds the values of a tensor, keeping their memory order; other tensors that share its memory do not
/// change.
fn round(tensor: FlexTensor, precision: Precision) -> FlexTensor {
    // False for a view of a part of a tensor, or for one that repeats elements.
    let is_whole = tensor.storage::<f32>().len() == tensor.shape().num_elements();
    let mut tensor = if is_whole { tensor } else { tensor.to_contiguous() };
    if tensor.is_unique() {
        round_in_place(tensor.storage_mut(), precision);
        return tensor;
    }
    let values = round_all(tensor.storage(), precision);
    FlexTensor::new(Bytes::from_elems(values), tensor.layout().clone(), DType::F32)
}

fn round_in_place(values: &mut [f32], precision: Precision) {
    vectorized(
        #[inline(always)]
        || match precision {
            Precision::F32 => {}
            Precision::Bf16 => values.iter_mut().for_each(|value| *value = to_bf16(*value)),
            Precision::F16 => values.iter_mut().for_each(|value| *value = to_f16(*value)),
        },
    );
}

fn round_all(values: &[f32], precision: Precision) -> Vec<f32> {
    let mut rounded = vec![0.0; values.len()];
    vectorized(
        #[inline(always)]
        || {
            let pairs = rounded.iter_mut().zip(values);
            match precision {
                Precision::F32 => pairs.for_each(|(rounded, value)| *rounded = *value),
                Precision::Bf16 => pairs.for_each(|(rounded, value)| *rounded = to_bf16(*value)),
                Precision::F16 => pairs.for_each(|(rounded, value)| *rounded = to_f16(*value)),
            }
        },
    );
    rounded
}

const SIGN: u32 = 1 << 31;

/// Drops the lowest `bits` bits of the fraction, rounding to nearest, ties to even.
#[inline(always)]
fn drop_bits(magnitude: u32, bits: u32) -> u32 {
    let half = (1 << (bits - 1)) - 1 + (magnitude >> bits & 1);
    magnitude.wrapping_add(half) & !((1 << bits) - 1)
}

#[inline(always)]
fn to_bf16(value: f32) -> f32 {
    let magnitude = value.to_bits() & !SIGN;
    // The carry turns values that are too large into infinity.
    let rounded = f32::from_bits(drop_bits(magnitude, 16) | value.to_bits() & SIGN);
    if value.is_nan() { value } else { rounded }
}

#[inline(always)]
fn to_f16(value: f32) -> f32 {
    /// Largest `f16`; values that round to more are infinite.
    const MOST: f32 = 65504.0;
    /// Smallest normal `f16`, 2⁻¹⁴; smaller ones are 2⁻²⁴ apart.
    const LEAST: f32 = 1.0 / 16384.0;
    let magnitude = value.abs();
    let normal = f32::from_bits(drop_bits(magnitude.to_bits(), 13));
    let normal = if normal > MOST { f32::INFINITY } else { normal };
    // `f32` numbers between a half and one are 2⁻²⁴ apart.
    let small = (magnitude + 0.5) - 0.5;
    let rounded = if magnitude < LEAST { small } else { normal };
    if value.is_nan() { value } else { rounded.copysign(value) }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{bf16, f16};

    use super::*;

    /// Compares with the conversions of the crate `half`: in every octave, at and next to every number of the
    /// lower types, and at and next to every midpoint.
    #[test]
    fn rounding_is_that_of_the_types() {
        let spread = (0..=u32::MAX).step_by(4093);
        let of_bf16 = (0..=u16::MAX).flat_map(|bits| {
            let bits = u32::from(bits) << 16;
            [bits, bits | 1, bits | 0x7fff, bits | 0x8000, bits | 0x8001]
        });
        let of_f16 = (0..=u16::MAX).flat_map(|bits| {
            let bits = f16::from_bits(bits).to_f32().to_bits();
            [bits, bits | 1, bits.wrapping_sub(1), bits.wrapping_add(0x1000), bits.wrapping_add(0x1001)]
        });
        let values: Vec<f32> = spread.chain(of_bf16).chain(of_f16).map(f32::from_bits).collect();
        type Nearest = fn(f32) -> f32;
        let nearest: [(Precision, Nearest); 3] = [
            (Precision::F32, |value| value),
            (Precision::Bf16, |value| bf16::from_f32(value).to_f32()),
            (Precision::F16, |value| f16::from_f32(value).to_f32()),
        ];
        for (precision, nearest) in nearest {
            let mut in_place = values.clone();
            round_in_place(&mut in_place, precision);
            let rounded = round_all(&values, precision);
            for (value, (rounded, in_place)) in values.iter().zip(rounded.iter().zip(&in_place)) {
                assert_eq!(rounded.to_bits(), in_place.to_bits());
                let (expected, context) = (nearest(*value), (precision, value.to_bits()));
                assert_eq!(expected.is_nan(), rounded.is_nan(), "{context:x?}");
                assert!(expected.is_nan() || expected.to_bits() == rounded.to_bits(), "{context:x?}");
            }
        }
    }
}
