//! Compares outputs and gradients with Burn's own layers on `flex`, for hundreds of random shapes.

use burn::module::{Param, ParamId};
use burn::nn::conv::Conv2d;
use burn::nn::pool::MaxPool2dConfig;
use burn::nn::{BatchNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::{self, log_softmax, relu};
use burn::tensor::{Device, Int, Tensor, TensorData, module};
use burn_flex_nn::{
    DropoutMask, arrange, batch_norm, batch_norm_add_relu, batch_norm_relu, conv2d, cross_entropy,
    fork_layer_norm, gelu, global_average_pool, layer_norm, linear, linear_add, linear_gelu,
    linear_gelu_tanh, matmul, max_pool2d, smoothed_cross_entropy, smoothed_linear_cross_entropy,
};

/// Random numbers by Marsaglia's xorshift64 (2003).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number in `1 ..= most`.
    fn up_to(&mut self, most: usize) -> usize {
        1 + (self.next() >> 20) as usize % most
    }

    fn tensor<const D: usize>(&mut self, dims: [usize; D], device: &Device) -> Tensor<D> {
        let values =
            (0..dims.iter().product()).map(|_| (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0);
        Tensor::from_data(TensorData::new(values.collect::<Vec<f32>>(), dims), device)
    }
}

fn close(what: &str, ours: TensorData, burns: TensorData) {
    assert_eq!(ours.shape(), burns.shape(), "{what}");
    let (ours, burns): (Vec<f32>, Vec<f32>) = (ours.iter().collect(), burns.iter().collect());
    let size = burns.iter().fold(1e-3f32, |most, value| most.max(value.abs()));
    for (index, (ours, burns)) in ours.iter().zip(&burns).enumerate() {
        assert!((ours - burns).abs() < 1e-5 * size, "{what}, element {index}: {ours}, Burn's {burns}");
    }
}

fn convolution(random: &mut Random, device: &Device) -> (Conv2d, [usize; 4]) {
    let groups = [1, 1, 1, 2, 3][random.up_to(5) - 1];
    let (input, output) = match groups {
        1 => (random.up_to(40), random.up_to(70)),
        _ => (3 + random.up_to(6), 3 + random.up_to(20)),
    };
    let kernel = [random.up_to(5), random.up_to(5)];
    let dilation = [random.up_to(2), random.up_to(2)];
    let [p, q] = [random.up_to(3) - 1, random.up_to(3) - 1];
    let padding = match random.up_to(4) {
        1 => PaddingConfig2d::Valid,
        2 => PaddingConfig2d::Explicit(p, q, q, p),
        _ => PaddingConfig2d::Explicit(p, q, p, q),
    };
    let layer = Conv2d {
        weight: Param::from_tensor(random.tensor([output * groups, input, kernel[0], kernel[1]], device)),
        bias: (random.up_to(2) == 1).then(|| Param::from_tensor(random.tensor([output * groups], device))),
        stride: [random.up_to(3), random.up_to(3)],
        kernel_size: kernel,
        dilation,
        groups,
        padding,
    };
    let covered = |axis: usize| dilation[axis] * (kernel[axis] - 1);
    let x = [random.up_to(9), input * groups, covered(0) + random.up_to(9), covered(1) + random.up_to(9)];
    (layer, x)
}

#[test]
fn convolutions() {
    let device = Device::flex().autodiff();
    let mut random = Random(88_172_645_463_325_252);
    for _ in 0..300 {
        let (mut layer, dims) = convolution(&mut random, &device);
        if random.up_to(2) == 1 {
            layer = arrange(layer);
        }
        let x = random.tensor(dims, &device).require_grad();
        let expected = layer.forward(x.clone());
        let direction = random.tensor(expected.dims(), &device);
        let pass = |y: Tensor<4>| {
            let gradients = (y * direction.clone()).sum().backward();
            let bias = layer.bias.as_ref().map(|bias| bias.grad(&gradients).unwrap().into_data());
            let of_x = x.grad(&gradients).unwrap().into_data();
            (of_x, layer.weight.grad(&gradients).unwrap().into_data(), bias)
        };
        let ours = conv2d(&layer, x.clone());
        let what = |part: &str| format!("{part} of {layer:?} for {dims:?}");
        close(&what("output"), ours.to_data(), expected.to_data());
        let (ours, expected) = (pass(ours), pass(expected));
        close(&what("gradient of the input"), ours.0, expected.0);
        close(&what("gradient of the weights"), ours.1, expected.1);
        if let (Some(ours), Some(expected)) = (ours.2, expected.2) {
            close(&what("gradient of the bias"), ours, expected);
        }
    }
}

#[test]
fn without_gradients_the_output_is_the_same() {
    let device = Device::flex();
    let mut random = Random(521_288_629);
    for _ in 0..30 {
        let (layer, dims) = convolution(&mut random, &device);
        let x = random.tensor(dims, &device);
        close("output", conv2d(&layer, x.clone()).into_data(), layer.forward(x).into_data());
    }
}

#[test]
fn same_padding() {
    let device = Device::flex();
    let mut random = Random(362_436_069);
    for kernel in 1..5 {
        for stride in 1..4 {
            let layer = Conv2d {
                weight: Param::from_tensor(random.tensor([6, 5, kernel, kernel], &device)),
                bias: None,
                stride: [stride, stride],
                kernel_size: [kernel, kernel],
                dilation: [1, 1],
                groups: 1,
                padding: PaddingConfig2d::Same,
            };
            let x = random.tensor([2, 5, 7, 6], &device);
            close("output", conv2d(&layer, x.clone()).into_data(), layer.forward(x).into_data());
        }
    }
}

#[test]
fn batch_normalizations() {
    let device = Device::flex().autodiff();
    let mut random = Random(123_456_789);
    for round in 0..60 {
        let dims = [random.up_to(5), random.up_to(40), random.up_to(6), 1 + random.up_to(6)];
        let mut layer = BatchNormConfig::new(dims[1]).with_momentum(0.3).init(&device);
        layer.gamma = Param::from_tensor(random.tensor([dims[1]], &device));
        let burns = layer.clone();
        let (x, shortcut) =
            (random.tensor(dims, &device).require_grad(), random.tensor(dims, &device).require_grad());
        let direction = random.tensor(dims, &device);
        let pass = |y: Tensor<4>, gamma: &Param<Tensor<1>>, beta: &Param<Tensor<1>>| {
            let output = y.to_data();
            let gradients = (y * direction.clone()).sum().backward();
            let mut all = vec![output];
            all.extend(
                [x.grad(&gradients), shortcut.grad(&gradients)].into_iter().flatten().map(Tensor::into_data),
            );
            all.extend([gamma, beta].map(|param| param.grad(&gradients).unwrap().into_data()));
            all
        };
        let (ours, expected) = match round % 3 {
            0 => (batch_norm(&layer, x.clone()), burns.forward(x.clone())),
            1 => (batch_norm_relu(&layer, x.clone()), relu(burns.forward(x.clone()))),
            _ => (
                batch_norm_add_relu(&layer, x.clone(), shortcut.clone()),
                relu(burns.forward(x.clone()) + shortcut.clone()),
            ),
        };
        let ours = pass(ours, &layer.gamma, &layer.beta);
        let expected = pass(expected, &burns.gamma, &burns.beta);
        assert_eq!(ours.len(), expected.len());
        for (ours, expected) in ours.into_iter().zip(expected) {
            close(&format!("batch norm {} of {dims:?}", round % 3), ours, expected);
        }
        for (ours, expected) in
            [(&layer.running_mean, &burns.running_mean), (&layer.running_var, &burns.running_var)]
        {
            close("running statistics", ours.value_sync().into_data(), expected.value_sync().into_data());
        }
    }
}

#[test]
fn in_evaluation_running_statistics_normalize() {
    use burn::module::Module;
    let device = Device::flex().autodiff();
    let mut random = Random(88_675_123);
    let layer = BatchNormConfig::new(5).init(&device);
    let x = random.tensor([4, 5, 3, 3], &device);
    batch_norm(&layer, x.clone());
    let (layer, x) = (layer.valid(), x.inner());
    close("output", batch_norm_relu(&layer, x.clone()).into_data(), relu(layer.forward(x)).into_data());
}

#[test]
fn max_pools() {
    let device = Device::flex().autodiff();
    let mut random = Random(5_783_321);
    for _ in 0..60 {
        let kernel = [random.up_to(3), random.up_to(3)];
        let padding = kernel.map(|kernel| kernel / 2);
        let layer = MaxPool2dConfig::new(kernel)
            .with_strides([random.up_to(3), random.up_to(3)])
            .with_padding(PaddingConfig2d::Explicit(padding[0], padding[1], padding[0], padding[1]))
            .init();
        let dims = [random.up_to(4), random.up_to(9), 2 + random.up_to(8), 2 + random.up_to(8)];
        let x = random.tensor(dims, &device).require_grad();
        let direction = random.tensor(layer.forward(x.clone()).dims(), &device);
        let pass = |y: Tensor<4>| {
            let gradients = (y.clone() * direction.clone()).sum().backward();
            [y.into_data(), x.grad(&gradients).unwrap().into_data()]
        };
        let (ours, expected) = (pass(max_pool2d(&layer, x.clone())), pass(layer.forward(x.clone())));
        for (ours, expected) in ours.into_iter().zip(expected) {
            close(&format!("{layer:?} of {dims:?}"), ours, expected);
        }
    }
}

/// Also of images in row-major order, and of a view of a part.
#[test]
fn averages() {
    let device = Device::flex().autodiff();
    let mut random = Random(88_172_645_463_325_252);
    for round in 0..30 {
        let dims = [random.up_to(5), random.up_to(40), random.up_to(8), random.up_to(8)];
        let view = |x: Tensor<4>| match round % 3 {
            0 => x,
            1 => x.permute([2, 3, 0, 1]),
            _ => x.narrow(2, dims[2] / 2, dims[2] - dims[2] / 2),
        };
        compare(
            &format!("{dims:?}, round {round}"),
            &[random.tensor::<4>(dims, &device)],
            |x| global_average_pool(view(x[0].clone())),
            |x| view(x[0].clone()).flatten::<3>(2, 3).mean_dim(2).squeeze_dim::<2>(2),
        );
    }
}

/// Of batches that are broadcast, and of factors in any memory order, some of which cannot be read in place.
#[test]
fn products() {
    let device = Device::flex().autodiff();
    let mut random = Random(88_172_645_463_325_252);
    for round in 0..80 {
        let most = if round < 70 { 40 } else { 1100 };
        let [rows, inner, columns] = [random.up_to(40), random.up_to(most), random.up_to(40)];
        let batch = [random.up_to(3), random.up_to(4)];
        let mut one = |len: usize| if random.up_to(3) == 1 { 1 } else { len };
        let [a_batch, b_batch] = [batch.map(&mut one), batch.map(&mut one)];
        // Memory orders of the two factors.
        let orders = [random.up_to(5), random.up_to(5)];
        let view = |x: Tensor<4>, order: usize| match order {
            1 => x,
            2 => x.swap_dims(2, 3),
            3 => x.flip([3]),
            4 => x.permute([1, 0, 2, 3]),
            _ => x.permute([3, 2, 1, 0]),
        };
        // The dimensions of the tensor of which the view is the factor.
        let source = |[x, y, z, w]: [usize; 4], order: usize| match order {
            2 => [x, y, w, z],
            4 => [y, x, z, w],
            5 => [w, z, y, x],
            _ => [x, y, z, w],
        };
        let a = source([a_batch[0], a_batch[1], rows, inner], orders[0]);
        let b = source([b_batch[0], b_batch[1], inner, columns], orders[1]);
        let all = [random.tensor(a, &device), random.tensor(b, &device)];
        compare(
            &format!("{a_batch:?} and {b_batch:?} of {rows}, {inner}, {columns}, {orders:?}"),
            &all,
            |x| matmul(view(x[0].clone(), orders[0]), view(x[1].clone(), orders[1])),
            |x| view(x[0].clone(), orders[0]).matmul(view(x[1].clone(), orders[1])),
        );
    }
}

/// Products of whole numbers are exact, so that they can be added up in plain lines. The gradient of a
/// transposed factor lies in that factor's order.
#[test]
fn products_of_whole_numbers_are_exact() {
    let device = Device::flex().autodiff();
    let a = Tensor::<2>::from_data([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], &device).require_grad();
    let b = Tensor::<2>::from_data([[1.0, 0.0, 2.0], [-1.0, 3.0, 1.0]], &device).require_grad();
    let product = matmul(a.clone(), b.clone().transpose());
    assert_eq!(product.to_data(), TensorData::from([[7.0f32, 8.0], [16.0, 17.0]]));
    let gradients = product.sum().backward();
    // Sums of the other factor's columns.
    let [of_a, of_b] = [a, b].map(|factor| factor.grad(&gradients).unwrap().into_data());
    assert_eq!(of_a, TensorData::from([[0.0f32, 3.0, 3.0], [0.0, 3.0, 3.0]]));
    assert_eq!(of_b, TensorData::from([[5.0f32, 7.0, 9.0], [5.0, 7.0, 9.0]]));
}

/// Compares the outputs and input gradients of two functions of the same inputs.
fn compare<const D: usize, const E: usize>(
    what: &str,
    inputs: &[Tensor<D>],
    ours: impl Fn(Vec<Tensor<D>>) -> Tensor<E>,
    burns: impl Fn(Vec<Tensor<D>>) -> Tensor<E>,
) {
    let mut random = Random(362_436_069);
    let mut weights = None;
    let mut run = |function: &dyn Fn(Vec<Tensor<D>>) -> Tensor<E>| {
        let inputs: Vec<Tensor<D>> = inputs.iter().map(|input| input.clone().require_grad()).collect();
        let output = function(inputs.clone());
        let weights = weights.get_or_insert_with(|| random.tensor(output.dims(), &output.device())).clone();
        let gradients = (output.clone() * weights).sum().backward();
        let gradients = inputs.iter().map(|input| input.grad(&gradients).expect("it is used").into_data());
        (output.into_data(), gradients.collect::<Vec<_>>())
    };
    let (ours, burns) = (run(&ours), run(&burns));
    close(&format!("output of {what}"), ours.0, burns.0);
    for (index, (ours, burns)) in ours.1.into_iter().zip(burns.1).enumerate() {
        close(&format!("gradient of input {index}, {what}"), ours, burns);
    }
}

#[test]
fn gelus() {
    let device = Device::flex().autodiff();
    let mut random = Random(88_172_645_463_325_252);
    for scale in [0.1, 1.0, 10.0] {
        let x = random.tensor::<3>([3, 7, 41], &device) * scale;
        compare(
            &format!("a scale of {scale}"),
            &[x.detach()],
            |x| gelu(x[0].clone()),
            |x| activation::gelu(x[0].clone()),
        );
    }
    // Far from zero nothing overflows.
    let x = Tensor::<1>::from_floats([-1e30, -100.0, -14.0, 0.0, 14.0, 100.0, 1e30], &device).require_grad();
    let output = gelu(x.clone());
    let gradient =
        x.grad(&output.clone().sum().backward()).unwrap().into_data().iter::<f32>().collect::<Vec<_>>();
    assert_eq!(output.into_data().iter::<f32>().collect::<Vec<_>>(), [0.0, 0.0, 0.0, 0.0, 14.0, 100.0, 1e30]);
    assert_eq!(gradient, [0.0, 0.0, 0.0, 0.5, 1.0, 1.0, 1.0]);
}

#[test]
fn layer_normalizations() {
    let device = Device::flex().autodiff();
    let mut random = Random(88_172_645_463_325_252);
    for _ in 0..50 {
        let dims = [random.up_to(4), random.up_to(9), random.up_to(70)];
        let epsilon = [1e-5, 0.1][random.up_to(2) - 1];
        let x = (random.tensor::<3>(dims, &device) * 3.0 + 2.0).detach();
        let [gamma, beta] = [(); 2].map(|()| random.tensor::<3>([1, 1, dims[2]], &device));
        let all = [x, gamma, beta];
        let vector = |x: &Tensor<3>| x.clone().reshape([dims[2]]);
        compare(
            &format!("{dims:?}, epsilon {epsilon}"),
            &all,
            |x| layer_norm(x[0].clone(), vector(&x[1]), Some(vector(&x[2])), epsilon),
            |x| module::layer_norm(x[0].clone(), vector(&x[1]), Some(vector(&x[2])), epsilon),
        );
        // The gradients of both branches are added, in either order. The input is no leaf, which would be
        // passed through.
        let branches = |x: &[Tensor<3>], ours: bool| {
            let (x, gamma, beta) = (x[0].clone() * 2.0, vector(&x[1]), Some(vector(&x[2])));
            match ours {
                true => fork_layer_norm(x, gamma, beta, epsilon),
                false => [x.clone(), module::layer_norm(x, gamma, beta, epsilon)],
            }
        };
        for swapped in [false, true] {
            let run = |x: Vec<Tensor<3>>, ours: bool| {
                let [a, b] = branches(&x, ours);
                if swapped { b.sin() * 3.0 + a } else { a.sin() * 3.0 + b }
            };
            compare(&format!("{dims:?}, both"), &all, |x| run(x, true), |x| run(x, false));
        }
    }
}

#[test]
fn cross_entropies() {
    let device = Device::flex().autodiff();
    let mut random = Random(88_172_645_463_325_252);
    for _ in 0..50 {
        let [rows, classes] = [random.up_to(20), random.up_to(90)];
        let scores = (random.tensor::<2>([rows, classes], &device) * 20.0).detach();
        let targets: Vec<Option<usize>> =
            (0..rows).map(|_| (random.up_to(4) > 1).then(|| random.up_to(classes) - 1)).collect();
        let burns = |scores: Tensor<2>| {
            let index: Vec<i64> = targets.iter().map(|target| target.unwrap_or(0) as i64).collect();
            let index = Tensor::<2, Int>::from_data(TensorData::new(index, [rows, 1]), &device);
            let counted: Vec<f32> =
                targets.iter().map(|target| f32::from(u8::from(target.is_some()))).collect();
            let counted = Tensor::<2>::from_data(TensorData::new(counted, [rows, 1]), &device);
            (log_softmax(scores, 1).gather(1, index) * counted).sum().neg()
        };
        let what = format!("{rows} rows of {classes} classes");
        let all = std::slice::from_ref(&scores);
        compare(&what, all, |x| cross_entropy(x[0].clone(), targets.clone()), |x| burns(x[0].clone()));
        // A share of each target is the mean over all classes.
        let smoothed = |scores: Tensor<2>| {
            let logarithms = log_softmax(scores.clone(), 1).mean_dim(1);
            let is_counted = targets.iter().map(|target| f32::from(u8::from(target.is_some())));
            let counted = TensorData::new(is_counted.collect::<Vec<f32>>(), [rows, 1]);
            let spread = (logarithms * Tensor::from_data(counted, &device)).sum().neg();
            burns(scores) * 0.9 + spread * 0.1
        };
        let what = format!("{what}, smoothed");
        let ours = |x: Vec<Tensor<2>>| smoothed_cross_entropy(x[0].clone(), targets.clone(), 0.1);
        compare(&what, all, ours, |x| smoothed(x[0].clone()));
    }
}

/// The weights of the last layer lie in rows or in columns, as an embedding does. Some have more rows than
/// are in memory at a time.
#[test]
fn cross_entropies_of_linear_layers() {
    let device = Device::flex().autodiff();
    let mut random = Random(88_172_645_463_325_252);
    for round in 0..24 {
        let most = if round < 20 { 30 } else { 1100 };
        let [rows, width, classes] = [random.up_to(most), random.up_to(40), random.up_to(90)];
        let x = random.tensor::<2>([rows, width], &device);
        let is_embedding = round % 2 == 0;
        let shape = if is_embedding { [classes, width] } else { [width, classes] };
        let all = [x, random.tensor::<2>(shape, &device)];
        let weight = |x: &[Tensor<2>]| if is_embedding { x[1].clone().transpose() } else { x[1].clone() };
        let targets: Vec<Option<usize>> =
            (0..rows).map(|_| (random.up_to(4) > 1).then(|| random.up_to(classes) - 1)).collect();
        for share in [0.0, 0.1] {
            compare(
                &format!("{rows} rows of {width}, {classes} classes, {share}"),
                &all,
                |x| smoothed_linear_cross_entropy(x[0].clone(), weight(&x), targets.clone(), share),
                |x| smoothed_cross_entropy(x[0].clone().matmul(weight(&x)), targets.clone(), share),
            );
        }
    }
}

/// Also with more terms than a chain of additions has, and more rows than are multiplied at once.
#[test]
fn linear_layers() {
    let device = Device::flex().autodiff();
    let mut random = Random(88_172_645_463_325_252);
    for round in 0..40 {
        let most = if round < 30 { 70 } else { 1100 };
        let [batch, time, inputs, outputs] =
            [random.up_to(4), random.up_to(70), random.up_to(most), random.up_to(70)];
        let x = random.tensor::<3>([batch, time, inputs], &device);
        let weight = random.tensor::<3>([1, inputs, outputs], &device);
        let bias = random.tensor::<3>([1, 1, outputs], &device);
        let residual = random.tensor::<3>([batch, time, outputs], &device);
        let layer = |x: &[Tensor<3>]| Linear {
            weight: Param::initialized(ParamId::new(), x[1].clone().reshape([inputs, outputs])),
            bias: Some(Param::initialized(ParamId::new(), x[2].clone().reshape([outputs]))),
        };
        let what = format!("{batch} x {time} rows of {inputs}, {outputs} outputs");
        let all = [x, weight, bias, residual];
        compare(&what, &all[..3], |x| linear(&layer(&x), x[0].clone()), |x| layer(&x).forward(x[0].clone()));
        let without_bias = |x: &[Tensor<3>]| Linear {
            weight: Param::initialized(ParamId::new(), x[1].clone().reshape([inputs, outputs])),
            bias: None,
        };
        compare(
            &format!("{what}, without bias"),
            &all[..2],
            |x| linear(&without_bias(&x), x[0].clone()),
            |x| without_bias(&x).forward(x[0].clone()),
        );
        let matrix = |x: &Tensor<3>| x.clone().reshape([batch * time, inputs]);
        compare(
            &format!("{what}, of a matrix"),
            &all[..3],
            |x| linear(&layer(&x), matrix(&x[0])),
            |x| layer(&x).forward(matrix(&x[0])),
        );
        let vector = |x: &Tensor<3>| x.clone().narrow(0, 0, 1).narrow(1, 0, 1).reshape([inputs]);
        compare(
            &format!("{what}, of a vector"),
            &all[..3],
            |x| linear(&layer(&x), vector(&x[0])),
            |x| layer(&x).forward(vector(&x[0])),
        );
        compare(
            &what,
            &all[..3],
            |x| linear_gelu(&layer(&x), x[0].clone()),
            |x| gelu(layer(&x).forward(x[0].clone())),
        );
        compare(
            &format!("{what}, GELU by tanh"),
            &all[..3],
            |x| linear_gelu_tanh(&layer(&x), x[0].clone()),
            |x| activation::gelu_approximate(layer(&x).forward(x[0].clone())),
        );
        compare(
            &what,
            &all,
            |x| linear_add(&layer(&x), x[0].clone(), x[3].clone(), None),
            |x| x[3].clone() + layer(&x).forward(x[0].clone()),
        );
        let (mask, factors) = mask([batch, time, outputs], &device);
        compare(
            &format!("{what}, with dropout"),
            &all,
            |x| linear_add(&layer(&x), x[0].clone(), x[3].clone(), Some(mask.clone())),
            |x| x[3].clone() + layer(&x).forward(x[0].clone()) * factors.clone(),
        );
    }
}

/// Returns a mask of all rows of a shape, and its factors.
fn mask(shape: [usize; 3], device: &Device) -> (DropoutMask, Tensor<3>) {
    let [batch, time, columns] = shape;
    let row = |row: usize| (columns, move |column: usize| (5 * row + 3 * column) % 7 > 1);
    let mask = DropoutMask::draw(batch * time, columns, 1.4, row);
    let factor = |i: usize| if (row(i / columns).1)(i % columns) { 1.4 } else { 0.0 };
    let factors: Vec<f32> = (0..batch * time * columns).map(factor).collect();
    (mask, Tensor::from_data(TensorData::new(factors, shape), device))
}

#[test]
#[should_panic(expected = "a mask of 5 rows of 3 for an output of [2, 3]")]
fn a_mask_of_another_shape_is_refused() {
    let device = Device::flex();
    let layer = LinearConfig::new(4, 3).init(&device);
    let mask = DropoutMask::draw(5, 3, 1.0, |_| (3, |_| true));
    linear_add(&layer, Tensor::<2>::zeros([2, 4], &device), Tensor::zeros([2, 3], &device), Some(mask));
}
