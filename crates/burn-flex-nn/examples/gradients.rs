//! Convolutions for `bench/peers/gradients.py`, which compares them with PyTorch's: for each line of standard
//! input (`samples groups input output height width`, then kernel, stride, padding and dilation, height and
//! width each; channels are of a group) the output and the gradients of input, weights and bias, as
//! little-endian `f32` one after the other. All numbers that go in follow from their index.

use std::io::{self, BufRead, Write};

use burn::module::Param;
use burn::nn::PaddingConfig2d;
use burn::nn::conv::Conv2d;
use burn::tensor::{Device, Tensor, TensorData};
use burn_flex_nn::{arrange, conv2d};

fn noise<const D: usize>(seed: usize, dims: [usize; D], device: &Device) -> Tensor<D> {
    let value = |i: usize| ((i * 7_919 + seed * 104_729) % 1_000) as f32 / 1_000.0 - 0.5;
    let values: Vec<f32> = (0..dims.iter().product()).map(value).collect();
    Tensor::from_data(TensorData::new(values, dims), device)
}

fn main() -> io::Result<()> {
    let device = Device::flex().autodiff();
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let numbers: Vec<usize> =
            line?.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        let [samples, groups, input, output, height, width, kh, kw, sh, sw, ph, pw, dh, dw] = numbers[..]
        else {
            panic!("14 numbers a line, not {numbers:?}");
        };
        let layer = arrange(Conv2d {
            weight: Param::from_tensor(noise(1, [groups * output, input, kh, kw], &device)),
            bias: Some(Param::from_tensor(noise(2, [groups * output], &device))),
            stride: [sh, sw],
            kernel_size: [kh, kw],
            dilation: [dh, dw],
            groups,
            padding: PaddingConfig2d::Explicit(ph, pw, ph, pw),
        });
        let x = noise(3, [samples, groups * input, height, width], &device).require_grad();
        let y = conv2d(&layer, x.clone());
        let gradients = (y.clone() * noise(4, y.dims(), &device)).sum().backward();
        let bias = layer.bias.as_ref().and_then(|bias| bias.grad(&gradients)).expect("it is used");
        for data in [
            y.into_data(),
            x.grad(&gradients).expect("it is used").into_data(),
            layer.weight.grad(&gradients).expect("it is used").into_data(),
            bias.into_data(),
        ] {
            let bytes: Vec<u8> = data.iter::<f32>().flat_map(f32::to_le_bytes).collect();
            out.write_all(&bytes)?;
        }
    }
    Ok(())
}
