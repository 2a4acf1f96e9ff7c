//! Comparison of the layers with Burn's, and tests of masks and dropout.

mod against_burn;
mod dropout;
mod masks;

use burn::tensor::{Device, Tensor, TensorData};

use crate::tests::noise;

fn device() -> Device {
    Device::flex().autodiff()
}

/// Creates a tensor of values that depend only on `seed`.
fn tensor<const D: usize>(seed: usize, shape: [usize; D], device: &Device) -> Tensor<D> {
    let values: Vec<f32> = (0..shape.iter().product()).map(|index| noise(seed, index)).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter().collect()
}
