//! Divided parameters have the bits of whole ones, in every kind of layer, and hold no memory between uses.

use burn::module::{Module, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::tensor::activation::{relu, tanh};
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_flex_nn::{conv2d, matmul};
use kolo_comm::{Group, threads};
use kolo_ddp::optimizer::{self, Settings};
use kolo_ddp::{BucketCaps, Config, Sharding, checkpoint};

use crate::tests::noise;
use crate::{Ddp, Loss, Precision, checkpointed, linear, with_precision, with_values};

const STEPS: usize = 3;
const SHARDS: usize = 4;

/// Layers whose weights are larger than a block, and a few smaller ones.
#[derive(Module, Debug)]
struct Net {
    embedding: Embedding,
    first: Linear,
    /// Used twice, with the same weights as `first`.
    tied: Linear,
    conv: Conv2d,
    block: Linear,
    small: Linear,
    last: Linear,
}

const WIDTH: usize = 144;

impl Net {
    fn new(device: &Device) -> Self {
        let square = || LinearConfig::new(WIDTH, WIDTH).init(device);
        let conv = Conv2dConfig::new([48, 48], [3, 3]).with_padding(PaddingConfig2d::Same);
        let first = square();
        let mut tied = square();
        tied.weight = first.weight.clone();
        let net = Net {
            embedding: EmbeddingConfig::new(160, WIDTH).init(device),
            first,
            tied,
            conv: conv.init(device),
            block: square(),
            small: LinearConfig::new(WIDTH, 3).init(device),
            last: square(),
        };
        let mut number = 0;
        let filled = with_values(net, |_, shape, _| {
            number += 1;
            let values = (0..shape.iter().product()).map(|index| noise(number, index) * 0.1);
            Ok::<_, std::convert::Infallible>(Some(values.collect()))
        });
        filled.unwrap()
    }

    fn forward(&self, tokens: &[i32]) -> Tensor<2> {
        let device = self.small.weight.base().device();
        let tokens = Tensor::<1, Int>::from_data(TensorData::new(tokens.to_vec(), [tokens.len()]), &device);
        let x = self.embedding.forward(tokens.unsqueeze()).squeeze_dim::<2>(0);
        let x = tanh(self.first.forward(x));
        let x = tanh(linear(&self.tied, x.clone()) + self.tied.forward(x));
        let [rows, _] = x.dims();
        let image = relu(conv2d(&self.conv, x.reshape([rows, 48, 3, 1]))).reshape([rows, WIDTH]);
        let x =
            checkpointed(&self.block, image, |block, x| tanh(linear(block, x.clone()) + block.forward(x)));
        let scores = matmul(tanh(linear(&self.last, x.clone())), self.embedding.weight.val().transpose());
        scores.narrow(1, 0, 3) + self.small.forward(x)
    }
}

/// Hash of the weights, when all ranks have it.
fn hash_of<M: Module>(ddp: Ddp<M>) -> String {
    let hash = ddp.weights_sha256().unwrap();
    ddp.end().unwrap();
    hash
}

fn config(sharding: Sharding) -> Config {
    Config { shards: Some(SHARDS), sharding, caps: Some(BucketCaps::of_mib(0.125)), ..Config::default() }
}

/// Bits of the weights after some steps, and losses of evaluations between them.
fn train(group: Group, sharding: Sharding, precision: Precision) -> (String, Vec<u32>, Vec<u32>) {
    let device = Device::flex().autodiff();
    let adam = optimizer::named("adam", &Settings::default()).unwrap();
    let rank = group.rank().0;
    let mut ddp = Ddp::new(group, Net::new(&device), &config(sharding), adam).unwrap();
    let mut evaluated = Vec::new();
    for step in 0..STEPS {
        for shard in ddp.shards() {
            let tokens: Vec<i32> = (0..5 + shard as i32).map(|i| (i * 31 + 7 * step as i32) % 160).collect();
            let loss = with_precision(precision, || ddp.model().forward(&tokens).powi_scalar(2).sum());
            ddp.backward(Loss::sum(loss, tokens.len())).unwrap();
        }
        ddp.step(0.01).unwrap();
        // Uneven numbers of batches: rank 1 evaluates more often than others.
        for _ in 0..=rank {
            let scores = ddp.model().valid().forward(&[1, 2, 3, 5, 150]);
            evaluated = scores.into_data().iter::<f32>().map(f32::to_bits).collect();
        }
    }
    let hash = ddp.with_replica(checkpoint::weights_sha256).unwrap();
    let module = ddp.into_model().unwrap().into_module();
    let weights = module.tied.weight.val().into_data().iter::<f32>().map(f32::to_bits).collect();
    assert!(!module.valid().embedding.weight.base().into_data().iter::<f32>().all(|value| value == 0.0));
    (hash, evaluated, weights)
}

#[test]
fn every_kind_of_layer_has_the_bits_of_whole_parameters() {
    for precision in [Precision::F32, Precision::Bf16] {
        let expected = train(Group::alone(), Sharding::Nothing, precision);
        for world in [2, 3, 5] {
            let ends = threads::spawn(world, |group| train(group, Sharding::Parameters, precision)).unwrap();
            assert!(ends.iter().all(|end| *end == expected), "{precision:?}, {world} ranks");
        }
    }
}

/// A chain of layers of one kind, each with a weight of more than a block.
#[derive(Module, Debug)]
struct Chain {
    layers: Vec<Linear>,
    convs: Vec<Conv2d>,
}

const LAYERS: usize = 4;

/// A layer that keeps a parameter from the forward to the backward pass gathers it once, all others twice.
/// Burn's
/// `Linear` does not need the first one's weights again, since its input needs no gradient.
#[test]
fn no_layer_keeps_a_parameter_between_the_passes() {
    type Layer = fn(&Chain, usize, Tensor<2>) -> Tensor<2>;
    let convolve = |chain: &Chain, layer: usize, x: Tensor<2>| -> Tensor<2> {
        let [rows, _] = x.dims();
        conv2d(&chain.convs[layer], x.reshape([rows, 48, 3, 1])).reshape([rows, WIDTH])
    };
    let kinds: [(&str, Layer); 7] = [
        ("linear", |chain, layer, x| linear(&chain.layers[layer], x)),
        ("Burn's linear", |chain, layer, x| chain.layers[layer].forward(x)),
        ("linear_gelu", |chain, layer, x| burn_flex_nn::linear_gelu(&chain.layers[layer], x)),
        ("linear_add", |chain, layer, x| burn_flex_nn::linear_add(&chain.layers[layer], x.clone(), x, None)),
        ("matmul", |chain, layer, x| matmul(x, chain.layers[layer].weight.val())),
        ("conv2d", convolve),
        ("Burn's conv2d", |chain, layer, x| {
            let [rows, _] = x.dims();
            chain.convs[layer].forward(x.reshape([rows, 48, 3, 1])).reshape([rows, WIDTH])
        }),
    ];
    for (name, layer) in kinds {
        let run = |group: Group, sharding| {
            let device = Device::flex().autodiff();
            let conv =
                || Conv2dConfig::new([48, 48], [3, 3]).with_padding(PaddingConfig2d::Same).init(&device);
            let layers = (0..LAYERS).map(|_| LinearConfig::new(WIDTH, WIDTH).init(&device)).collect();
            let chain = Chain { layers, convs: (0..LAYERS).map(|_| conv()).collect() };
            let mut number = 0;
            let chain = with_values(chain, |_, shape, _| {
                number += 1;
                let values = (0..shape.iter().product()).map(|index| noise(number, index) * 0.1);
                Ok::<_, std::convert::Infallible>(Some(values.collect()))
            });
            let sgd = optimizer::named("sgd", &Settings::default()).unwrap();
            let mut ddp = Ddp::new(group, chain.unwrap(), &config(sharding), sgd).unwrap();
            let mut gathers = 0;
            for _ in 0..2 {
                for shard in ddp.shards() {
                    let before = ddp.with_replica(|replica| replica.gathers_for_tests());
                    let values: Vec<f32> = (0..2 * WIDTH).map(|index| noise(shard, index)).collect();
                    let x = Tensor::<2>::from_data(TensorData::new(values, [2, WIDTH]), &device);
                    let y = (0..LAYERS).fold(x, |x, number| tanh(layer(ddp.model(), number, x)));
                    ddp.backward(Loss::sum(y.powi_scalar(2).sum(), 2)).unwrap();
                    gathers = ddp.with_replica(|replica| replica.gathers_for_tests()) - before;
                }
                ddp.step(0.01).unwrap();
            }
            (hash_of(ddp), gathers)
        };
        let (expected, _) = run(Group::alone(), Sharding::Nothing);
        for (hash, gathers) in threads::spawn(2, |group| run(group, Sharding::Parameters)).unwrap() {
            assert_eq!(hash, expected, "{name}");
            let is_burns = name == "Burn's linear";
            assert_eq!(gathers as usize, 2 * LAYERS - usize::from(is_burns), "{name}");
        }
    }
}

#[test]
fn a_parameter_with_a_reparameterization_is_refused_by_name() {
    use burn::module::{Reparameterization, Reparameterizer};
    /// The negative of a parameter.
    #[derive(Module, Debug)]
    struct Negative;
    impl Reparameterization for Negative {
        const NAME: &'static str = "negative";
        fn apply<const D: usize>(&self, base: Tensor<D>) -> Tensor<D> {
            base.neg()
        }
    }
    struct OfLast;
    impl Reparameterizer for OfLast {
        type Reparam = Negative;
        fn reparameterize<const D: usize>(
            &mut self,
            path: &str,
            param: Param<Tensor<D>>,
        ) -> (Param<Tensor<D>>, Option<Negative>) {
            (param, (path == "last.weight").then_some(Negative))
        }
    }
    let errors = threads::spawn(2, |group| {
        let net = Net::new(&Device::flex().autodiff()).apply_reparameterization(OfLast);
        let sgd = optimizer::named("sgd", &Settings::default()).unwrap();
        Ddp::new(group, net, &config(Sharding::Parameters), sgd).unwrap_err().to_string()
    });
    for error in errors.unwrap() {
        assert!(error.contains("`last.weight` has a reparameterization"), "{error}");
    }
}
