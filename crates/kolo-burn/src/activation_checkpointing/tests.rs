//! Blocks with and without checkpointing: the same bits in every output, gradient and running statistic.

mod refusals;

use std::collections::BTreeMap;

use burn::module::{Module, ModuleVisitor, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, PaddingConfig2d};
use burn::tensor::activation::tanh;
use burn::tensor::{Bool, Device, Gradients, Tensor, TensorData};
use burn_flex_nn::{batch_norm_add_relu, batch_norm_relu, conv2d, fork};
use kolo_ddp::SpanId;

use crate::tests::marks::{Event, Events};
use crate::tests::noise;
use crate::transformer::{Norm, Transformer, TransformerConfig};
use crate::{DropoutKey, Precision, checkpointed, linear, with_precision};

const KEY: DropoutKey = DropoutKey { seed: 1, epoch: 2, step: 3, shard: 4 };

fn device() -> Device {
    Device::flex().autodiff()
}

fn tensor<const D: usize>(seed: usize, dims: [usize; D], device: &Device) -> Tensor<D> {
    let values: Vec<f32> = (0..dims.iter().product()).map(|index| noise(seed, index)).collect();
    Tensor::from_data(TensorData::new(values, dims), device)
}

fn bits<const D: usize>(tensor: Tensor<D>) -> Vec<u32> {
    tensor.into_data().iter::<f32>().map(f32::to_bits).collect()
}

/// Bits of all gradients, in the module's order; empty for what has none.
fn gradients<M: Module>(module: &M, gradients: &Gradients) -> Vec<Vec<u32>> {
    struct Find<'a>(&'a Gradients, Vec<Vec<u32>>);
    impl ModuleVisitor for Find<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.1.push(param.val().grad(self.0).map_or_else(Vec::new, bits));
        }
    }
    let mut find = Find(gradients, Vec::new());
    module.visit(&mut find);
    find.1
}

/// Bits of all tensors of floats, running statistics too.
fn values<M: Module>(module: &M) -> Vec<Vec<u32>> {
    struct Read(Vec<Vec<u32>>);
    impl ModuleVisitor for Read {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0.push(bits(param.val()));
        }
    }
    let mut read = Read(Vec::new());
    module.valid().visit(&mut read);
    read.0
}

/// Contributions to each parameter, in their order.
fn contributions(events: &Events) -> BTreeMap<SpanId, Vec<Vec<u32>>> {
    let mut found = BTreeMap::<SpanId, Vec<Vec<u32>>>::new();
    for event in events.all() {
        if let Event::Gradient(span, bits) = event {
            found.entry(span).or_default().push(bits);
        }
    }
    found
}

/// Passes of a module with and without checkpointing, by Burn alone and under Kolo's hook. The input of the
/// blocks is the result of an operation.
fn expect_same<M: Module, const D: usize, const E: usize>(
    what: &str,
    make: impl Fn(bool) -> M,
    x: Tensor<D>,
    run: impl Fn(&M, Tensor<D>, bool) -> Tensor<E>,
) -> Vec<Vec<u32>> {
    let all = [false, true].map(|checkpoints| {
        let module = make(checkpoints);
        let x = x.clone().detach().require_grad();
        let run = || run(&module, x.clone().mul_scalar(1.25), checkpoints);
        let loss = |y: Tensor<E>| {
            let weights = tensor(99, y.dims(), &y.device());
            (y * weights).sum()
        };
        let y = run();
        let found = loss(y.clone()).backward();
        let mut found_bits = gradients(&module, &found);
        found_bits.push(bits(x.grad(&found).unwrap()));
        let events = Events::default();
        events.backward(&module, loss(run()));
        (bits(y), found_bits, contributions(&events), values(&module))
    });
    let [plain, checkpointed] = &all;
    assert!(plain.0 == checkpointed.0, "{what}: outputs");
    let different = plain.1.iter().zip(&checkpointed.1).filter(|(one, other)| one != other).count();
    assert_eq!(different, 0, "{what}: gradients of {}", plain.1.len());
    assert!(plain.2 == checkpointed.2, "{what}: contributions to gradients");
    assert!(plain.3 == checkpointed.3, "{what}: values and statistics");
    assert!(plain.1.iter().flatten().any(|bits| f32::from_bits(*bits) != 0.0), "{what}");
    plain.1.clone()
}

fn transformer(norm: Norm, checkpoints: bool, device: &Device) -> Transformer {
    let config = TransformerConfig::new(16, 4, 3).with_dropout(0.3).with_norm(norm);
    config.with_activation_checkpointing(checkpoints).init(device)
}

#[test]
fn a_transformer_with_dropout_and_padding_has_the_same_bits() {
    for device in [device(), device().gradient_checkpointing()] {
        for (norm, precision) in
            [(Norm::Pre, Precision::F32), (Norm::Post, Precision::F32), (Norm::Pre, Precision::Bf16)]
        {
            let hidden = (0..3 * 7).map(|at| at % 7 > 4 + at / 7).collect::<Vec<bool>>();
            let padding = Tensor::<2, Bool>::from_data(TensorData::new(hidden, [3, 7]), &device);
            let models = [false, true].map(|checkpoints| transformer(norm, checkpoints, &device));
            for dropout in [Some(&KEY), None] {
                expect_same(
                    &format!("{norm:?} {precision:?} {dropout:?}"),
                    |checkpoints| transformer(norm, checkpoints, &device),
                    tensor(1, [3, 7, 16], &device),
                    |model, x, _| with_precision(precision, || model.forward_padded(x, &padding, dropout)),
                );
            }
            // Evaluation is without a graph.
            let x = tensor(1, [3, 7, 16], &Device::flex());
            let [plain, other] = models.map(|model| bits(model.valid().forward(x.clone(), None)));
            assert!(plain == other);
        }
    }
}

/// Residual block of convolutions and batch normalizations, as in a ResNet.
#[derive(Module, Debug)]
struct Convolutions {
    conv1: Conv2d,
    bn1: BatchNorm,
    conv2: Conv2d,
    bn2: BatchNorm,
}

impl Convolutions {
    fn new() -> Self {
        let conv = |seed| {
            let padding = PaddingConfig2d::Explicit(1, 1, 1, 1);
            let layer = Conv2dConfig::new([4, 4], [3, 3]).with_padding(padding).init(&device());
            let weight = Param::from_tensor(tensor(seed, [4, 4, 3, 3], &device()));
            Conv2d { weight, bias: Some(Param::from_tensor(tensor(seed + 1, [4], &device()))), ..layer }
        };
        let norm = || BatchNormConfig::new(4).init(&device());
        Convolutions { conv1: conv(1), bn1: norm(), conv2: conv(3), bn2: norm() }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let [x, shortcut] = fork(x);
        let x = batch_norm_relu(&self.bn1, conv2d(&self.conv1, x));
        batch_norm_add_relu(&self.bn2, conv2d(&self.conv2, x), shortcut)
    }

    fn forward_by_burn(&self, x: Tensor<4>) -> Tensor<4> {
        let y = tanh(self.bn1.forward(self.conv1.forward(x.clone())));
        tanh(x + self.bn2.forward(self.conv2.forward(y)))
    }
}

#[test]
fn a_block_of_convolutions_has_the_same_bits_and_moves_its_statistics_once() {
    let before = values(&Convolutions::new());
    type Forward = fn(&Convolutions, Tensor<4>) -> Tensor<4>;
    for forward in [Convolutions::forward as Forward, Convolutions::forward_by_burn] {
        let make = |_| Convolutions::new();
        // The same block twice: its statistics move twice in a pass.
        let run = |module: &Convolutions, x, checkpoints| match checkpoints {
            true => checkpointed(module, checkpointed(module, x, forward), forward),
            false => forward(module, forward(module, x)),
        };
        expect_same("convolutions", make, tensor(5, [3, 4, 6, 5], &device()), run);
        let module = Convolutions::new();
        run(&module, tensor(5, [3, 4, 6, 5], &device()), true).sum().backward();
        let moved = values(&module).iter().zip(&before).filter(|(one, other)| one != other).count();
        assert_eq!(moved, 4, "two means and two variances");
    }
}

/// Two layers in a row, and the sum with the input.
#[derive(Module, Debug)]
struct Pair {
    first: Linear,
    second: Linear,
}

fn layer(seed: usize) -> Linear {
    Linear {
        weight: Param::from_tensor(tensor(seed, [6, 6], &device())),
        bias: Some(Param::from_tensor(tensor(seed + 1, [6], &device()))),
    }
}

impl Pair {
    fn new(seed: usize) -> Self {
        Pair { first: layer(seed), second: layer(seed + 2) }
    }

    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let y = tanh(linear(&self.first, x.clone()));
        tanh(x + linear(&self.second, y))
    }

    fn run(&self, x: Tensor<2>, checkpoints: bool) -> Tensor<2> {
        if checkpoints { checkpointed(self, x, Pair::forward) } else { self.forward(x) }
    }
}

fn x() -> Tensor<2> {
    tensor(7, [5, 6], &device())
}

#[test]
fn a_block_that_is_used_four_times_has_the_same_bits() {
    let run = |pair: &Pair, x, checkpoints| (0..4).fold(x, |x, _| pair.run(x, checkpoints));
    expect_same("four times", |_| Pair::new(1), x(), run);
    let by_burn = |pair: &Pair, x: Tensor<2>| pair.second.forward(tanh(pair.first.forward(x)));
    let run = move |pair: &Pair, x, checkpoints| {
        (0..3).fold(x, |x, _| if checkpoints { checkpointed(pair, x, by_burn) } else { by_burn(pair, x) })
    };
    expect_same("Burn's layers", |_| Pair::new(1), x(), run);
}

/// A weight in both layers of two blocks, and transposed behind them.
#[test]
fn tied_weights_have_the_same_bits() {
    let make = |_| {
        let (mut one, mut other) = (Pair::new(1), Pair::new(5));
        one.second.weight = one.first.weight.clone();
        other.first.weight = one.first.weight.clone();
        other.second.weight = one.first.weight.clone();
        vec![one, other]
    };
    let run = |pairs: &Vec<Pair>, x, checkpoints| {
        let x = pairs.iter().fold(x, |x, pair| pair.run(x, checkpoints));
        x.matmul(pairs[0].first.weight.val().transpose())
    };
    let gradients = expect_same("tied", make, x(), run);
    assert!(gradients[0] == gradients[2] && gradients[0] != gradients[1]);
}

#[test]
fn frozen_parameters_have_no_gradient_and_the_others_the_same_bits() {
    let first = |_| {
        let pair = Pair::new(1);
        vec![Pair { first: pair.first.no_grad(), second: pair.second }, Pair::new(5)]
    };
    let all = |_| vec![Pair::new(1).no_grad(), Pair::new(5)];
    let run = |pairs: &Vec<Pair>, x, checkpoints| pairs.iter().fold(x, |x, p| p.run(x, checkpoints));
    let gradients = expect_same("a frozen layer", first, x(), run);
    assert!(gradients[0].is_empty() && gradients[1].is_empty() && !gradients[2].is_empty());
    let gradients = expect_same("a frozen block", all, x(), run);
    assert!(gradients[..4].iter().all(Vec::is_empty) && !gradients[4].is_empty());
    assert!(!checkpointed(&Pair::new(1).no_grad(), x(), Pair::forward).is_tracked());
}

#[test]
fn numbers_that_are_not_finite_have_the_same_bits() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
        let x = x().slice_assign([2..3, 1..2], Tensor::from_data([[value]], &device()));
        expect_same(&value.to_string(), |_| Pair::new(1), x, |pair, x, checkpoints| pair.run(x, checkpoints));
    }
}

/// The input of the second block is also added behind it, and a block is within another.
#[test]
fn blocks_beside_other_uses_and_within_blocks_have_the_same_bits() {
    let make = |_| vec![Pair::new(1), Pair::new(5)];
    let beside = |pairs: &Vec<Pair>, x, checkpoints| {
        let x = pairs[0].run(x, checkpoints);
        pairs[1].run(x.clone(), checkpoints) + x
    };
    expect_same("beside", make, x(), beside);
    let within = |pairs: &Vec<Pair>, x, checkpoints| match checkpoints {
        true => checkpointed(pairs, x, |pairs, x| pairs.iter().fold(x, |x, pair| pair.run(x, true))),
        false => pairs.iter().fold(x, |x, pair| pair.run(x, false)),
    };
    expect_same("within", make, x(), within);
    // The output depends on no input, or on nothing at all.
    let weight = |pair: &Pair, x: Tensor<2>| pair.first.weight.val().slice(0..1).expand(x.dims());
    expect_same(
        "without input",
        |_| Pair::new(1),
        x(),
        move |pair, x, checkpoints| {
            let x = x.clone() + if checkpoints { checkpointed(pair, x, weight) } else { weight(pair, x) };
            linear(&pair.second, x)
        },
    );
    let leaf = x().require_grad();
    let gradients = checkpointed(&Pair::new(1), leaf.clone(), |_, x| x.detach()).sum().backward();
    assert!(leaf.grad(&gradients).is_none());
    let x = leaf.clone().mul_scalar(2.0);
    let gradients = checkpointed(&Pair::new(1), x, |_, x| x.detach()).sum().backward();
    assert!(bits(leaf.grad(&gradients).unwrap().abs()).iter().all(|bits| *bits == 0));
}

/// Each mark in a graph holds the events; a mark of a pass without a graph does not.
#[test]
fn activations_are_not_kept_and_each_block_hands_on_its_gradients_in_its_place() {
    let pairs: Vec<Pair> = (0..3).map(|number| Pair::new(5 * number)).collect();
    let run = |events: &Events, checkpoints: bool| {
        pairs.iter().enumerate().fold(x(), |x, (number, pair)| {
            let (inside, x) = (events.clone(), events.mark(x, 10 * number));
            let forward =
                move |pair: &Pair, x| (0..3).fold(pair.forward(x), |x, _| inside.mark(x, 10 * number + 1));
            if checkpoints { checkpointed(pair, x, forward) } else { forward(pair, x) }
        })
    };
    let kept = [false, true].map(|checkpoints| {
        let events = Events::default();
        let y = run(&events, checkpoints);
        let holders = events.holders();
        events.backward(&pairs, y.sum());
        let shown = events.all().into_iter().map(|event| match event {
            Event::Mark(number) => format!("mark {number}"),
            Event::Gradient(span, _) => format!("pair {}", span.0 / 4),
        });
        let mut shown: Vec<String> = shown.collect();
        shown.dedup();
        let expected = ["mark 21", "pair 2", "mark 20", "mark 11", "pair 1", "mark 10", "mark 1", "pair 0"];
        assert_eq!(shown, expected);
        holders
    });
    // This test, the marks in front of two blocks, and three marks in each of three blocks or its function.
    assert_eq!(kept, [1 + 2 + 9, 1 + 2 + 3]);
}
