//! Divided parameters have the bits of whole ones, in every kind of layer, and hold no memory between uses.

use burn::module::Module;
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
        let x = checkpointed(&self.block, image, |block, x| tanh(linear(block, x.clone()) + block.forward(x)));
        let scores = matmul(tanh(linear(&self.last, x.clone())), self.embedding.weight.val().transpose());
        scores.narrow(1, 0, 3) + self.small.forward(x)
    }
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
