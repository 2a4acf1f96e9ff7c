//! Initial values, keyed by (seed, parameter name, element).
//!
//! Burn's own initializers draw lazily from one generator per process, in the order in which parameters are
//! first used. So the same seed gives the same weights only if no other code draws and no thread works in
//! parallel. Here each element is a pure function of its key, so no order can disturb it.

use burn::module::Param;
use burn::nn::conv::Conv2d;
use burn::nn::{BatchNorm, BatchNormConfig, Embedding, Linear, PaddingConfig2d};
use burn::tensor::{Device, Tensor};

use kolo_ddp::key::Key;

pub(super) struct Init<'a> {
    /// Seed of all values.
    pub seed: u64,
    /// Device of the parameters.
    pub device: &'a Device,
}

impl Init<'_> {
    /// Makes a square convolution without bias, padded so that stride 1 keeps the image's size; `channels` is
    /// `[in, out]`.
    pub fn conv(&self, path: &str, channels: [usize; 2], kernel: usize, stride: usize) -> Conv2d {
        let [input, output] = channels;
        let fan_out = output * kernel * kernel;
        let std = (2.0 / fan_out as f64).sqrt();
        let key = Key::new(self.seed).with_str(path).with_str("weight");
        let padding = kernel / 2;
        Conv2d {
            weight: self.param([output, input, kernel, kernel], move |i| std * key.with(i).normal()),
            bias: None,
            stride: [stride, stride],
            kernel_size: [kernel, kernel],
            dilation: [1, 1],
            groups: 1,
            padding: PaddingConfig2d::Explicit(padding, padding, padding, padding),
        }
    }

    /// Like [`Init::conv`] with stride 1, and with a bias of zero.
    pub fn biased_conv(&self, path: &str, channels: [usize; 2], kernel: usize) -> Conv2d {
        Conv2d { bias: Some(self.zeros(channels[1])), ..self.conv(path, channels, kernel, 1) }
    }

    /// Makes a batch normalization: scale one, shift zero, epsilon 1e-5, momentum 0.1.
    pub fn batch_norm(&self, channels: usize) -> BatchNorm {
        BatchNormConfig::new(channels).with_epsilon(1e-5).with_momentum(0.1).init(self.device)
    }

    /// Makes a linear layer with bias; its weight is `[input, output]`.
    pub fn linear(&self, path: &str, input: usize, output: usize) -> Linear {
        let bound = 1.0 / (input as f64).sqrt();
        let key = Key::new(self.seed).with_str(path);
        let uniform = |name| {
            let key = key.with_str(name);
            move |i: u64| bound * (2.0 * key.with(i).unit() - 1.0)
        };
        Linear {
            weight: self.param([input, output], uniform("weight")),
            bias: Some(self.param([output], uniform("bias"))),
        }
    }

    /// Makes a linear layer with a normal weight of standard deviation `std` and a bias of zero; `shape` is
    /// `[input, output]`, the weight's.
    pub fn normal_linear(&self, path: &str, shape: [usize; 2], std: f64) -> Linear {
        let key = Key::new(self.seed).with_str(path).with_str("weight");
        let weight = self.param(shape, move |i| std * key.with(i).normal());
        Linear { weight, bias: Some(self.zeros(shape[1])) }
    }

    /// Makes a table of vectors with normal elements of standard deviation `std`; `shape` is `[vectors,
    /// width]`.
    pub fn embedding(&self, path: &str, shape: [usize; 2], std: f64) -> Embedding {
        let key = Key::new(self.seed).with_str(path).with_str("weight");
        Embedding { weight: self.param(shape, move |i| std * key.with(i).normal()) }
    }

    /// Makes a vector of zeros.
    pub fn zeros(&self, length: usize) -> Param<Tensor<1>> {
        self.param([length], |_| 0.0)
    }

    fn param<const D: usize>(
        &self,
        shape: [usize; D],
        value: impl Fn(u64) -> f64 + Send + Sync + 'static,
    ) -> Param<Tensor<D>> {
        kolo_burn::lazy_param(shape, self.device, move |i| value(i) as f32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_values_of_seed_zero_never_change() {
        // A change here changes every run that names a seed: it must be intended, and be in the change log.
        let key = Key::new(0).with_str("conv1").with_str("weight");
        let bits: Vec<u32> = (0..3).map(|i| (key.with(i).normal() as f32).to_bits()).collect();
        assert_eq!(bits, [1_026_554_353, 1_041_494_370, 3_214_121_211]);
    }
}
