//! Dropout in attention and blocks.

use burn::module::Param;
use burn::tensor::{Device, Distribution, Tensor};

use super::{device, tensor, values};
use crate::DropoutKey;
use crate::transformer::{SelfAttention, SelfAttentionConfig, TransformerConfig};

const KEY: DropoutKey = DropoutKey { seed: 1, epoch: 2, step: 3, shard: 4 };

fn bits(tensor: Tensor<3>) -> Vec<u32> {
    values(tensor).iter().map(|value| value.to_bits()).collect()
}

#[test]
fn masks_are_the_keys_and_nothing_elses() {
    let device = device();
    let transformer = TransformerConfig::new(16, 4, 2).with_dropout(0.2).init(&device);
    let x = tensor(1, [3, 7, 16], &device);
    let expected = bits(transformer.forward(x.clone(), Some(&KEY)));
    device.seed(17);
    drop(values(Tensor::<1>::random([100], Distribution::Default, &device)));
    transformer.forward(tensor(2, [5, 3, 16], &device), Some(&DropoutKey { step: 9, ..KEY }));
    assert_eq!(bits(transformer.forward(x.clone(), Some(&KEY))), expected);
    // A sample's masks do not depend on the number of samples.
    assert_eq!(bits(transformer.forward(x.clone().narrow(0, 0, 1), Some(&KEY))), expected[..7 * 16]);

    assert_ne!(bits(transformer.forward(x.clone(), None)), expected);
    for key in [
        DropoutKey { seed: 2, ..KEY },
        DropoutKey { epoch: 0, ..KEY },
        DropoutKey { step: 0, ..KEY },
        DropoutKey { shard: 0, ..KEY },
    ] {
        assert_ne!(bits(transformer.forward(x.clone(), Some(&key))), expected, "{key:?}");
    }
}

/// Compares two blocks with the same weights, then blocks of two transformers in one model.
#[test]
fn each_layer_has_masks_of_its_own() {
    let device = device();
    let config = TransformerConfig::new(16, 4, 2).with_dropout(0.2);
    let [first, second] = &config.init(&device).h[..] else { unreachable!("two layers") };
    let [other, _] = &config.with_name(String::from("decoder")).init(&device).h[..] else {
        unreachable!("two layers")
    };
    let x = tensor(1, [3, 7, 16], &device);
    for block in [second, other] {
        let mut block = block.clone();
        (block.attn.c_attn, block.attn.c_proj) = (first.attn.c_attn.clone(), first.attn.c_proj.clone());
        (block.mlp.c_fc, block.mlp.c_proj) = (first.mlp.c_fc.clone(), first.mlp.c_proj.clone());
        let run = |key: Option<&DropoutKey>| {
            let whole = [first, &block].map(|block| bits(block.forward(x.clone(), None, key)));
            let attention = [first, &block].map(|block| bits(block.attn.forward(x.clone(), None, key)));
            let feed_forward = [first, &block].map(|block| bits(block.mlp.forward(x.clone(), key)));
            [whole, attention, feed_forward].map(|[a, b]| a == b)
        };
        assert_eq!(run(None), [true; 3]);
        assert_eq!(run(Some(&KEY)), [false; 3]);
    }
}

const HEADS: usize = 4;
const HEAD: usize = 64;
const TIME: usize = 40;

/// Creates an attention with equal weights for all positions, values of one, and the identity as projection.
/// Its output is the share of the weights that was kept.
fn even_attention(probability: f64, device: &Device) -> SelfAttention {
    let width = HEADS * HEAD;
    let config = SelfAttentionConfig::new(width, HEADS, String::from("even"));
    let mut attention = config.with_causal(false).with_dropout(probability).init(device);
    attention.c_attn.weight = Param::from_tensor(Tensor::zeros([width, 3 * width], device));
    let bias = vec![Tensor::zeros([2 * width], device), Tensor::ones([width], device)];
    attention.c_attn.bias = Some(Param::from_tensor(Tensor::cat(bias, 0)));
    attention.c_proj.weight = Param::from_tensor(Tensor::eye(width, device));
    attention.c_proj.bias = None;
    attention
}

#[test]
fn weights_and_output_are_dropped_at_the_rate() {
    let device = device();
    for probability in [0.1, 0.5] {
        let attention = even_attention(probability, &device);
        let x = Tensor::zeros([2, TIME, HEADS * HEAD], &device);
        let output = values(attention.forward(x, None, Some(&KEY)));
        let dropped = output.iter().filter(|value| **value == 0.0).count() as f64 / output.len() as f64;
        assert!((dropped - probability).abs() < 0.01, "{dropped} of the output, not {probability}");
        // One number for each head of each query: of its 64 outputs, at least one was kept.
        let kept = output.chunks(HEAD).map(|head| head.iter().copied().fold(0.0, f32::max));
        let kept: Vec<f64> = kept.map(|kept| f64::from(kept) * (1.0 - probability)).collect();
        let mean = kept.iter().sum::<f64>() / kept.len() as f64;
        assert!((mean - 1.0).abs() < 0.02, "a mean of {mean}");
        // The number of kept weights out of 40 is binomial.
        let variance = kept.iter().map(|kept| (kept - mean).powi(2)).sum::<f64>() / kept.len() as f64;
        let expected = probability / (1.0 - probability) / TIME as f64;
        assert!((variance / expected - 1.0).abs() < 0.3, "a variance of {variance}, not {expected}");
        // Each head has its own mask.
        let heads: Vec<&[f64]> = kept.chunks(HEADS).collect();
        for head in 1..HEADS {
            let same = heads.iter().filter(|kept| (kept[0] - kept[head]).abs() < 1e-6).count();
            assert!(same < heads.len() / 2, "{same} of {} rows of heads 0 and {head}", heads.len());
        }
    }
}
