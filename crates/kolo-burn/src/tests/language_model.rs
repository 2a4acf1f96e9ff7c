//! A small language model with dropout and tied embedding: the same bits on any number of ranks, and the
//! gradients of the whole batch.

use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig, Initializer};
use burn::tensor::{Device, Int, Tensor, TensorData};
use kolo_comm::{Group, threads};
use kolo_ddp::Config;
use kolo_ddp::optimizer::Settings;

use super::{device, noise, sgd, velocity};
use crate::{
    Ddp, DropoutKey, Loss, Transformer, TransformerConfig, next_token_loss, next_token_loss_ignoring,
};

const VOCABULARY: usize = 11;
const TIME: usize = 8;
const SHARDS: usize = 4;

#[derive(Module, Debug)]
struct LanguageModel {
    wte: Embedding,
    wpe: Embedding,
    transformer: Transformer,
}

impl LanguageModel {
    fn new(dropout: f64, device: &Device) -> Self {
        Self::of(&TransformerConfig::new(16, 2, 2).with_dropout(dropout), device)
    }

    fn of(transformer: &TransformerConfig, device: &Device) -> Self {
        let embedding = |count| {
            EmbeddingConfig::new(count, 16)
                .with_initializer(Initializer::Constant { value: 0.0 })
                .init(device)
        };
        let fill = |mut embedding: Embedding, seed| {
            let shape = embedding.weight.dims();
            let values: Vec<f32> = (0..shape[0] * shape[1]).map(|i| noise(seed, i) * 0.3).collect();
            let values = Tensor::<2>::from_data(TensorData::new(values, shape), device);
            embedding.weight = embedding.weight.map(|_| values.require_grad());
            embedding
        };
        LanguageModel {
            wte: fill(embedding(VOCABULARY), 1),
            wpe: fill(embedding(TIME), 2),
            transformer: transformer.init(device),
        }
    }

    fn forward(&self, tokens: Tensor<2, Int>, dropout: Option<&DropoutKey>) -> Tensor<3> {
        let [_, time] = tokens.dims();
        let positions = Tensor::<1, Int>::arange(0..time as i64, &tokens.device()).unsqueeze();
        let x = self.wte.forward(tokens) + self.wpe.forward(positions);
        let x = self.transformer.forward(x, dropout);
        x.matmul(self.wte.weight.val().transpose().unsqueeze())
    }
}

/// Returns sequences of a learnable rule, and their next tokens; two of three samples end in padding.
fn batch(samples: &[usize]) -> [Tensor<2, Int>; 2] {
    let token = |sample: usize, t: usize| ((sample + 3 * t) % VOCABULARY) as i64;
    let of = |value: &dyn Fn(usize, usize) -> i64| {
        let values: Vec<i64> = samples
            .iter()
            .flat_map(|&sample| (0..TIME).map(move |t| (sample, t)))
            .map(|(s, t)| value(s, t))
            .collect();
        Tensor::from_data(TensorData::new(values, [samples.len(), TIME]), &device())
    };
    let target = |sample: usize, t: usize| if t + sample % 3 < TIME { token(sample, t + 1) } else { -100 };
    [of(&token), of(&target)]
}

fn shard_loss(model: &LanguageModel, step: usize, shard: usize, dropped: bool) -> Loss {
    // Shards differ in their numbers of samples and of tokens.
    let samples: Vec<usize> = (0..1 + shard).map(|sample| 7 * step + 5 * shard + sample).collect();
    let [tokens, targets] = batch(&samples);
    let key = DropoutKey { seed: 3, epoch: 0, step, shard };
    next_token_loss_ignoring(model.forward(tokens, dropped.then_some(&key)), targets, -100)
}

fn ddp(group: Group, shards: usize, dropout: f64) -> Ddp<LanguageModel> {
    ddp_of(LanguageModel::new(dropout, &device()), group, shards)
}

fn ddp_of(model: LanguageModel, group: Group, shards: usize) -> Ddp<LanguageModel> {
    let config = Config { shards: Some(shards), verify_every: 3, ..Config::default() };
    let settings = Settings::default().with("momentum", 0.9);
    Ddp::new(group, model, &config, sgd(&settings)).unwrap()
}

#[test]
fn the_same_bits_on_any_number_of_ranks() {
    let train = |group: Group, checkpoints: bool| {
        let config = TransformerConfig::new(16, 2, 2).with_dropout(0.1);
        let config = config.with_activation_checkpointing(checkpoints);
        let mut ddp = ddp_of(LanguageModel::of(&config, &device()), group, SHARDS);
        let steps = (0..12).map(|step| {
            for shard in ddp.shards() {
                let loss = shard_loss(ddp.model(), step, shard, true);
                ddp.backward(loss).unwrap();
            }
            ddp.step(0.2).unwrap().loss
        });
        let losses: Vec<f64> = steps.collect();
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
        (losses, ddp.with_replica(|replica| bits(replica.values().unwrap())))
    };
    let (losses, bits) = train(Group::alone(), false);
    assert!(losses[11] < 0.8 * losses[0], "it learns: {losses:?}");
    for (world, checkpoints) in [(1, true), (2, false), (2, true), (3, false), (3, true), (4, false)] {
        for (other_losses, other_bits) in threads::spawn(world, |group| train(group, checkpoints)).unwrap() {
            assert_eq!(losses, other_losses, "{world} ranks, activations recomputed: {checkpoints}");
            assert!(bits == other_bits, "{world} ranks, activations recomputed: {checkpoints}");
        }
    }
}

/// The embedding is used twice: Kolo's gradient equals Burn's, which is the sum over both uses.
#[test]
fn a_tied_embedding_has_the_gradient_of_both_uses() {
    let mut ddp = ddp(Group::alone(), 1, 0.0);
    let loss = |model: &LanguageModel| {
        let [tokens, targets] = batch(&[0, 3, 6]);
        next_token_loss(model.forward(tokens, None), targets)
    };
    let count = (3 * TIME) as f32;
    let model = LanguageModel::new(0.0, &device());
    let gradients = loss(&model).sum.backward();
    let expected: Vec<f32> = model.wte.weight.grad(&gradients).unwrap().into_data().iter().collect();
    let whole = loss(ddp.model());
    ddp.backward(whole).unwrap();
    ddp.step(0.1).unwrap();
    let ours = &velocity(&ddp)[span_of(&ddp, "wte.weight")];
    assert_eq!(ours.len(), expected.len());
    for (ours, expected) in ours.iter().zip(expected) {
        assert!((ours - expected / count).abs() < 1e-6, "{ours}, Burn's {}", expected / count);
    }
}

/// Returns the range of a parameter's values in a concatenation of all, in the layout's order.
fn span_of(ddp: &Ddp<LanguageModel>, name: &str) -> std::ops::Range<usize> {
    let mut start = 0;
    for span in ddp.layout().spans() {
        if span.spec.name == name {
            return start..start + span.range().len();
        }
        start += span.range().len();
    }
    panic!("no parameter {name}");
}

#[test]
fn the_names_are_gpt2s() {
    let ddp = ddp(Group::alone(), 1, 0.1);
    let names: Vec<&str> = ddp.layout().spans().iter().map(|span| &*span.spec.name).collect();
    for name in [
        "wte.weight",
        "transformer.h.0.ln_1.gamma",
        "transformer.h.0.attn.c_attn.weight",
        "transformer.h.1.attn.c_proj.bias",
        "transformer.h.1.mlp.c_fc.weight",
        "transformer.h.1.mlp.c_proj.weight",
        "transformer.ln_f.beta",
    ] {
        assert!(names.contains(&name), "{name} of {names:?}");
    }
}
