//! Values: the network in plain lines in double precision, and its gradients by differences.

use std::collections::BTreeMap;
use std::convert::Infallible;

use burn::module::Param;
use burn::tensor::{Device, Tensor};
use kolo_burn::DropoutKey;
use kolo_burn_train::{OptimizerChoice, Tally, TrainingContext};
use kolo_comm::Group;
use kolo_data::{Batch, NO_TOKEN, SampleShape, Tokenizer};

use super::entry::Gpt2Entry;
use super::model::windows;
use super::*;
use crate::image_model::Blueprint;
use crate::table::{MODELS, NamedModel};

const CONFIG: Gpt2Config = Gpt2Config {
    layers: 2,
    width: 128,
    positions: 6,
    vocabulary: 11,
    dropout: 0.0,
    activation_checkpointing: false,
};
const TIME: usize = 5;

/// Values of parameters by their paths, row by row.
type Values = BTreeMap<String, Vec<f64>>;

/// Returns the network with values of no small size, and these.
fn network(config: Gpt2Config, device: &Device) -> (Gpt2, Values) {
    let mut all = Values::new();
    let set = |path: &str, shape: &[usize], _| {
        let key = kolo_ddp::key::Key::new(7).with_str(path);
        let (size, middle) = match shape.len() {
            1 => (0.3, if path.ends_with("gamma") { 1.0 } else { 0.0 }),
            _ if path.starts_with('w') => (0.7, 0.0),
            _ => (1.2 / (shape[0] as f64).sqrt(), 0.0),
        };
        let value = |index| (middle + size * key.with(index).normal()) as f32;
        let values: Vec<f32> = (0..shape.iter().product::<usize>() as u64).map(value).collect();
        all.insert(path.into(), values.iter().map(|value| f64::from(*value)).collect());
        Ok::<_, Infallible>(Some(values))
    };
    let Ok(model) = kolo_burn::with_values(config.init(0, device), set);
    (model, all)
}

/// Two windows; the text ends in the second one.
fn batch() -> Batch {
    let tokens = [[3.0, 1.0, 4.0, 1.0, 5.0, 9.0], [2.0, 10.0, 0.0, 7.0, NO_TOKEN, NO_TOKEN]];
    Batch { images: tokens.concat(), labels: vec![0; 2], shape: [2, 1, 1, TIME + 1] }
}

/// The mean loss of the batch by Radford et al. 2019, section 2.3, and the last row of scores.
fn plain(values: &Values) -> (f64, Vec<f64>) {
    let (mut sum, mut count, mut last) = (0.0, 0.0, Vec::new());
    for window in batch().images.chunks_exact(TIME + 1) {
        let tokens: Vec<usize> =
            window.iter().filter(|token| **token >= 0.0).map(|token| *token as usize).collect();
        let scores = plain_scores(values, &tokens[..tokens.len() - 1]);
        for (scores, next) in scores.iter().zip(&tokens[1..]) {
            let total: f64 = scores.iter().map(|score| score.exp()).sum();
            (sum, count) = (sum + total.ln() - scores[*next], count + 1.0);
        }
        last = scores.into_iter().next_back().unwrap();
    }
    (sum / count, last)
}

fn plain_scores(values: &Values, tokens: &[usize]) -> Vec<Vec<f64>> {
    let (width, head) = (CONFIG.width, 64);
    let row = |name: &str, row: usize| values[name][row * width..][..width].to_vec();
    let sum = |a: &[f64], b: &[f64]| -> Vec<f64> { a.iter().zip(b).map(|(a, b)| a + b).collect() };
    let norm = |name: &str, x: &[f64]| -> Vec<f64> {
        let mean = x.iter().sum::<f64>() / width as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
        let (gamma, beta) = (&values[&format!("{name}.gamma")], &values[&format!("{name}.beta")]);
        (0..width).map(|i| (x[i] - mean) / (variance + 1e-5).sqrt() * gamma[i] + beta[i]).collect()
    };
    let linear = |name: &str, x: &[f64]| -> Vec<f64> {
        let (weight, bias) = (&values[&format!("{name}.weight")], &values[&format!("{name}.bias")]);
        let of = |j: usize| (0..x.len()).map(|i| x[i] * weight[i * bias.len() + j]).sum::<f64>() + bias[j];
        (0..bias.len()).map(of).collect()
    };
    let gelu =
        |x: f64| 0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh());
    let embedded = tokens
        .iter()
        .enumerate()
        .map(|(time, token)| sum(&row("wte.weight", *token), &row("wpe.weight", time)));
    let mut x: Vec<Vec<f64>> = embedded.collect();
    for layer in 0..CONFIG.layers {
        let name = |part: &str| format!("transformer.h.{layer}.{part}");
        let qkv: Vec<Vec<f64>> =
            x.iter().map(|x| linear(&name("attn.c_attn"), &norm(&name("ln_1"), x))).collect();
        for time in (0..x.len()).rev() {
            let mut heads = vec![0.0; width];
            for start in (0..width).step_by(head) {
                let dot = |other: usize| -> f64 {
                    let products = (start..start + head).map(|i| qkv[time][i] * qkv[other][width + i]);
                    (products.sum::<f64>() / (head as f64).sqrt()).exp()
                };
                let total: f64 = (0..=time).map(dot).sum();
                for (other, row) in qkv.iter().enumerate().take(time + 1) {
                    let weight = dot(other) / total;
                    let values = heads[start..start + head].iter_mut().zip(&row[2 * width + start..]);
                    values.for_each(|(sum, value)| *sum += weight * value);
                }
            }
            x[time] = sum(&x[time], &linear(&name("attn.c_proj"), &heads));
            let hidden = linear(&name("mlp.c_fc"), &norm(&name("ln_2"), &x[time]));
            let hidden: Vec<f64> = hidden.into_iter().map(gelu).collect();
            x[time] = sum(&x[time], &linear(&name("mlp.c_proj"), &hidden));
        }
    }
    let scores = |x: &Vec<f64>| {
        let x = norm("transformer.ln_f", x);
        let of = |token| row("wte.weight", token).iter().zip(&x).map(|(a, b)| a * b).sum();
        (0..CONFIG.vocabulary).map(of).collect()
    };
    x.iter().map(scores).collect()
}

fn gradient<const D: usize>(of: &Param<Tensor<D>>, gradients: &burn::tensor::Gradients) -> Vec<f64> {
    of.grad(gradients).unwrap().into_data().iter().collect()
}

#[test]
fn loss_and_gradients_are_those_of_plain_lines() {
    let device = Device::flex().autodiff();
    let (model, values) = network(CONFIG, &device);
    let (expected, _) = plain(&values);
    let key = DropoutKey { seed: 0, epoch: 0, step: 0, shard: 0 };
    let context = TrainingContext {
        dropout: &key,
        cross_shard: None,
        device: &device,
        label_smoothing: 0.0,
        mixing: None,
    };
    let loss = model.loss(batch(), &context).into_mean();
    let found = f64::from(loss.clone().into_scalar::<f32>());
    assert!((found - expected).abs() < 1e-4 * expected, "{found} {expected}");
    let gradients = loss.backward();
    let block = |number: usize| &model.transformer.h[number];
    let bias = |layer: &burn::nn::Linear| gradient(layer.bias.as_ref().unwrap(), &gradients);
    let weight = |layer: &burn::nn::Linear| gradient(&layer.weight, &gradients);
    for (path, found) in [
        ("wte.weight", gradient(&model.wte.weight, &gradients)),
        ("wpe.weight", gradient(&model.wpe.weight, &gradients)),
        ("transformer.h.0.ln_1.gamma", gradient(&block(0).ln_1.gamma, &gradients)),
        ("transformer.h.1.attn.c_attn.weight", weight(&block(1).attn.c_attn)),
        ("transformer.h.0.attn.c_proj.bias", bias(&block(0).attn.c_proj)),
        ("transformer.h.0.mlp.c_fc.weight", weight(&block(0).mlp.c_fc)),
        ("transformer.h.1.mlp.c_fc.bias", bias(&block(1).mlp.c_fc)),
        ("transformer.h.1.mlp.c_proj.weight", weight(&block(1).mlp.c_proj)),
    ] {
        let most = found.iter().fold(0.0f64, |most, value| most.max(value.abs()));
        for index in (0..4).map(|n| n * 37 % found.len()) {
            let moved = |by: f64| {
                let mut values = values.clone();
                values.get_mut(path).unwrap()[index] += by;
                plain(&values).0
            };
            let expected = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!(
                (found[index] - expected).abs() < 1e-3 * most,
                "{path} {index}: {} {expected}",
                found[index]
            );
        }
    }
}

#[test]
fn perplexity_counts_each_token_once() {
    let device = Device::flex();
    let (model, values) = network(CONFIG, &device);
    let (expected, _) = plain(&values);
    // Token 9 is no text, and token t has t bytes otherwise.
    let lengths: Vec<usize> = (0..11).map(|token| if token == 9 { 0 } else { token }).collect();
    let tally = model.tally(batch(), &device, &lengths);
    assert_eq!(tally.1.0.count, 8.0, "five tokens, and three before the end of the text");
    let [perplexity, loss, bits] = tally.finish()[..] else { panic!() };
    // Predicted are 1, 4, 1, 5 and 9, then 10, 0 and 7.
    let bytes = (1 + 4 + 1 + 5 + 10 + 7) as f64;
    assert!((bits * bytes / (8.0 * expected / 2.0f64.ln()) - 1.0).abs() < 1e-4, "{bits}");
    assert!((loss - expected).abs() < 1e-4 * expected, "{loss} {expected}");
    assert!((perplexity / expected.exp() - 1.0).abs() < 1e-3, "{perplexity} {}", expected.exp());
}

#[test]
fn the_generator_has_the_models_scores_and_forgets_the_older_half() {
    let device = Device::flex();
    let (model, values) = network(CONFIG, &device);
    let mut generator = Generator::of(&model, CONFIG.heads(), 4, Tokenizer::bytes());
    let mut found = Vec::new();
    let tokens = [3, 1, 4, 1, 5, 9];
    for (number, token) in tokens.into_iter().enumerate() {
        found = generator.scores(token);
        // The fifth token follows the last two of four.
        let start = if number < 4 { 0 } else { 2 };
        let expected = plain_scores(&values, &tokens[start..=number]).pop().unwrap();
        for (found, expected) in found.iter().zip(&expected) {
            assert!((f64::from(*found) - expected).abs() < 1e-3, "token {number}: {found} {expected}");
        }
    }
    // The module's own scores of the same tokens.
    let images = [4.0, 1.0, 5.0, 9.0, NO_TOKEN].to_vec();
    let (seen, _) = windows(&Batch { images, labels: vec![0], shape: [1, 1, 1, 5] }, &device);
    let own: Vec<f32> = model.scores(seen, None).into_data().iter().collect();
    for (found, own) in found.iter().zip(&own[3 * CONFIG.vocabulary..]) {
        assert!((found - own).abs() < 1e-3, "{found} {own}");
    }
}

#[test]
fn the_same_seed_gives_the_same_text_of_any_length() {
    let device = Device::flex();
    let config = Gpt2Config { vocabulary: 257, positions: 16, layers: 1, ..CONFIG };
    let (model, _) = network(config, &device);
    let mut generator = Generator::of(&model, config.heads(), 16, Tokenizer::bytes());
    let sampling = Sampling { temperature: 1.0, top_k: None, top_p: 1.0, seed: 3 };
    let first = generator.continued("a text of more than sixteen bytes", 40, &sampling).unwrap();
    let mut text = |count, seed| {
        let text = "a text of more than sixteen bytes";
        generator.continued(text, count, &Sampling { seed, ..sampling }).unwrap()
    };
    assert_eq!(text(40, 3), first);
    let shorter = text(20, 3);
    assert!(first.text.starts_with(&shorter.text) && shorter.tokens == first.tokens.min(20), "{first:?}");
    assert_ne!(text(40, 4), first);
    assert!(generator.continued("", 3, &sampling).unwrap().tokens <= 3);
}

#[test]
fn the_sizes_are_the_published_ones() {
    // 12 width² + 13 width in each block, and the last normalization.
    let count = |layers: usize, width: usize, positions: usize, vocabulary: usize| {
        layers * (12 * width * width + 13 * width) + 2 * width + (positions + vocabulary) * width
    };
    let (_, values) = network(CONFIG, &Device::flex());
    assert_eq!(values.values().map(Vec::len).sum::<usize>(), count(2, 128, 6, 11));
    // `sum(p.numel() for p in GPT2LMHeadModel(GPT2Config.from_pretrained(name)).parameters())` of the tied
    // model.
    let published =
        [("small", 124_439_808), ("medium", 354_823_168), ("large", 774_030_080), ("xl", 1_557_611_200)];
    let entries = &super::entry::SIZES;
    for (name, expected) in published {
        let name = format!("gpt2:{name}");
        let Gpt2Entry { layers, width, positions, .. } =
            entries.iter().find(|entry| entry.name == name).unwrap();
        assert_eq!(count(*layers, *width, *positions, 50_257), expected, "{name}");
    }
    let known: Vec<&str> =
        MODELS.iter().filter(|model| model.traits().reads_text).map(|model| model.name()).collect();
    assert!(entries.iter().map(|entry| entry.name).eq(known));
}

#[test]
fn a_step_moves_each_parameter_and_dropout_depends_on_its_key() {
    let device = Device::flex().autodiff();
    let samples = SampleShape { channels: 1, height: 1, width: TIME + 1, classes: 11, is_text: true };
    let blueprint = Blueprint { dropout: 0.2, ..Blueprint::plain(1, samples, &device) };
    let tiny = &super::entry::SIZES[0];
    let model = tiny.build(&blueprint);
    let key = |step| DropoutKey { seed: 0, epoch: 0, step, shard: 0 };
    let (seen, _) = windows(&batch(), &device);
    let scores = |key: Option<&DropoutKey>| -> Vec<f32> {
        model.scores(seen.clone(), key).into_data().iter().collect()
    };
    assert_eq!(scores(Some(&key(1))), scores(Some(&key(1))));
    assert!(scores(Some(&key(1))) != scores(Some(&key(2))) && scores(Some(&key(1))) != scores(None));

    let optimizer = OptimizerChoice::default().build().unwrap();
    let mut stepper =
        tiny.stepper(Group::alone(), &blueprint, &kolo_ddp::Config::default(), optimizer).unwrap();
    let values = |stepper: &dyn crate::Stepper| {
        let mut values = Vec::new();
        stepper.with_replica(&mut |replica| values = replica.values().unwrap().to_vec());
        values
    };
    let before = values(&*stepper);
    let report = stepper.step(batch(), 0.1).unwrap();
    assert!(report.loss.is_finite() && report.count == 8.0, "{}", report.count);
    let after = values(&*stepper);
    stepper.with_replica(&mut |replica| {
        for span in replica.layout().spans() {
            assert!(before[span.range()] != after[span.range()], "{}", span.spec.name);
        }
    });
}

#[test]
fn samples_and_options_of_the_other_kind_are_refused() {
    let tiny = &super::entry::SIZES[0];
    let text = |context: usize| SampleShape {
        channels: 1,
        height: 1,
        width: context + 1,
        classes: 257,
        is_text: true,
    };
    let usual = tiny.usual();
    usual.check().unwrap();
    let refusal = |model: &dyn NamedModel, recipe: &kolo_recipe::Recipe, samples| {
        model.check(recipe, samples).err().map(|error| error.to_string())
    };
    assert_eq!(refusal(tiny, &usual, text(256)), None);
    assert_eq!(
        refusal(tiny, &usual, text(257)).unwrap(),
        "--context 257: gpt2:tiny sees at most 256 tokens at once; give at most as many"
    );
    let images = SampleShape { is_text: false, ..text(8) };
    assert!(refusal(tiny, &usual, images).unwrap().starts_with("gpt2:tiny learns from text"));
    let small = crate::find("small").ok().unwrap();
    assert!(refusal(small, &small.usual(), text(8)).unwrap().starts_with("small learns from images"));
    let mixed = kolo_recipe::Recipe { mixup: Some(0.2), ..usual };
    assert!(
        refusal(tiny, &mixed, text(8)).unwrap().starts_with("--mixup: gpt2:tiny does not have images to mix")
    );
}
