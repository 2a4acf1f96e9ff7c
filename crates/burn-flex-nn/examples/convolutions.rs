//! The convolutions of ResNet-18 one by one, on one core: milliseconds of each pass, here and by `flex`
//! itself.
//!
//! `cargo run --release -p burn-flex-nn --example convolutions [IMAGE SIZE] [BATCH SIZE] [SECONDS A PASS]`
//!
//! The fastest of each counts, after one to warm up. `bench/peers/convolutions.py` puts PyTorch's beside
//! them.

use std::hint::black_box;
use std::time::{Duration, Instant};

use burn::backend::flex::FlexTensor;
use burn::backend::ops::{ConvOptions, ModuleOps};
use burn::backend::{Flex, TensorData};
use burn_flex_nn::conv::{Axis, Geometry, forward, input_gradient, weight_gradient};

// As `kolo` has it. With MIMALLOC_PURGE_DELAY=-1 outputs do not get freshly cleared pages at every call.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A kind of layer, and how many of it the network has.
struct Layer {
    channels: [usize; 2],
    size: usize,
    kernel: usize,
    stride: usize,
    count: usize,
}

fn resnet18(image: usize) -> Vec<Layer> {
    let layer = |channels, size, kernel, stride, count| Layer { channels, size, kernel, stride, count };
    let mut size = image.div_ceil(2).div_ceil(2);
    let mut layers = vec![layer([3, 64], image, 7, 2, 1), layer([64, 64], size, 3, 1, 4)];
    for width in [64, 128, 256] {
        layers.push(layer([width, 2 * width], size, 3, 2, 1));
        layers.push(layer([width, 2 * width], size, 1, 2, 1));
        size = size.div_ceil(2);
        layers.push(layer([2 * width, 2 * width], size, 3, 1, 3));
    }
    layers
}

impl Layer {
    fn geometry(&self, samples: usize) -> Geometry {
        let padding = self.kernel / 2;
        let axis = Axis {
            input: self.size,
            output: (self.size + 2 * padding - self.kernel) / self.stride + 1,
            kernel: self.kernel,
            stride: self.stride,
            padding,
            dilation: 1,
        };
        Geometry { rows: axis, columns: axis, samples, groups: 1, channels: self.channels }
    }
}

fn noise(len: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7_919) % 1_000) as f32 / 1_000.0 - 0.5).collect()
}

fn tensor(dims: [usize; 4]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(noise(dims.iter().product()), dims))
}

/// In milliseconds.
fn fastest(time: Duration, pass: &dyn Fn()) -> f64 {
    pass();
    let mut fastest = f64::INFINITY;
    let end = Instant::now() + time;
    loop {
        let begun = Instant::now();
        pass();
        fastest = fastest.min(begun.elapsed().as_secs_f64() * 1e3);
        if Instant::now() >= end {
            return fastest;
        }
    }
}

fn main() {
    let argument = |index, default: f64| {
        std::env::args().nth(index).map_or(default, |text| text.parse().expect("a number"))
    };
    let (image, samples) = (argument(1, 32.0) as usize, argument(2, 32.0) as usize);
    let time = Duration::from_secs_f64(argument(3, 0.1));
    println!(
        "layer                     count  forward  input  weights    by flex: forward  input  weights   (ms)"
    );
    let mut totals = [0.0; 6];
    for layer in resnet18(image) {
        let geometry = layer.geometry(samples);
        let Geometry {
            rows: Axis { input, output, kernel, stride, padding, .. }, channels: [from, to], ..
        } = geometry;
        let (x, weights) = (noise(geometry.input_len()), noise(geometry.weight_len()));
        let gradient = noise(geometry.output_len());
        let (x_tensor, weight_tensor) =
            (tensor([samples, from, input, input]), tensor([to, from, kernel, kernel]));
        let gradient_tensor = tensor([samples, to, output, output]);
        let options = || ConvOptions::new([stride; 2], [padding; 2], [1; 2], 1);
        let tensors = || (x_tensor.clone(), weight_tensor.clone(), gradient_tensor.clone());
        let passes: [&dyn Fn(); 6] = [
            &|| drop(black_box(forward(&geometry, &x, &weights))),
            &|| drop(black_box(input_gradient(&geometry, &gradient, &weights))),
            &|| drop(black_box(weight_gradient(&geometry, &x, &gradient))),
            &|| drop(black_box(Flex::conv2d(tensors().0, tensors().1, None, options()))),
            &|| {
                let (x, weights, gradient) = tensors();
                drop(black_box(Flex::conv2d_x_backward(x, weights, gradient, options())));
            },
            &|| {
                let (x, weights, gradient) = tensors();
                drop(black_box(Flex::conv2d_weight_backward(x, weights, gradient, options())));
            },
        ];
        let mut times = passes.map(|pass| fastest(time, pass));
        if from == 3 {
            // Nobody asks for the gradient of the images.
            (times[1], times[4]) = (0.0, 0.0);
        }
        let name = format!("{kernel}x{kernel}/{stride} {from} -> {to} at {input}x{input}");
        let [a, b, c, d, e, f] = times;
        println!("{name:27} x{}  {a:8.3} {b:8.3} {c:8.3}   {d:8.3} {e:8.3} {f:8.3}", layer.count);
        totals.iter_mut().zip(times).for_each(|(total, time)| *total += layer.count as f64 * time);
    }
    let [a, b, c, d, e, f] = totals;
    let (ours, flex) = (a + b + c, d + e + f);
    println!(
        "{:31} {a:8.3} {b:8.3} {c:8.3}   {d:8.3} {e:8.3} {f:8.3}",
        format!("all: {ours:.1} and {flex:.1}")
    );
}
