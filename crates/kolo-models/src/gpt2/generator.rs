//! Continues texts, one token after another. Each token goes through the network once: the keys and values of
//! those before it are kept. One token is a product of each matrix with one vector, which waits for memory
//! and not for arithmetic, so plain loops suffice.

use std::path::Path;

use burn::module::Param;
use burn::nn::{LayerNorm, Linear};
use burn::tensor::{Device, Tensor};
use kolo_data::{CONTEXT, Tokenizer};
use kolo_ddp::key::Key;
use kolo_weights::{
    Description, WeightsError, WeightsFile, Which, check_tokenizer, is_transformers, weights_in,
};

use super::model::{Gpt2, Gpt2Config};
use super::sampling::Sampling;
use crate::error::Error;
use crate::inference::{Given, Subject};
use crate::table;

/// Constant that layer normalizations add to the variance.
const EPSILON: f32 = 1e-5;

/// A trained GPT-2 that continues texts.
#[derive(Debug)]
pub struct Generator {
    tokenizer: Tokenizer,
    /// Vectors of tokens, and of positions.
    tokens: Vec<f32>,
    positions: Vec<f32>,
    width: usize,
    heads: usize,
    blocks: Vec<Block>,
    last: Norm,
    /// Most tokens that are seen at once.
    context: usize,
    /// Tokens whose keys and values are kept.
    seen: Vec<usize>,
}

/// Text that a model has written.
#[derive(Clone, Debug, PartialEq)]
pub struct Continuation {
    /// The text. Bytes that are not UTF-8 are U+FFFD; a character that --tokens cuts off is left out.
    pub text: String,
    /// Number of its tokens.
    pub tokens: usize,
}

#[derive(Debug)]
struct Block {
    ln_1: Norm,
    c_attn: Product,
    c_proj: Product,
    ln_2: Norm,
    c_fc: Product,
    mlp_proj: Product,
    /// Of each seen token, side by side.
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// A layer normalization.
#[derive(Debug)]
struct Norm {
    scale: Vec<f32>,
    shift: Vec<f32>,
}

/// A linear layer; its weights are `[inputs, outputs]`.
#[derive(Debug)]
struct Product {
    weight: Vec<f32>,
    bias: Vec<f32>,
}

impl Generator {
    /// Makes the model of the weights at a path: a run folder, a checkpoint, a file of `kolo export`, or a
    /// folder for transformers.
    ///
    /// # Errors
    ///
    /// There are no weights, they are damaged, their model is no language model, or they are of another
    /// tokenizer.
    pub fn find(path: &Path, which: Option<Which>) -> Result<Self, Error> {
        let (place, weights, context, tokenizer) = match is_transformers(path) {
            true if which.is_some() => {
                return Err(WeightsError::NoRun { path: path.into() }.into());
            }
            true => {
                let description = Description::beside(&weights_in(path)?)?;
                let context = description.and_then(|description| description.context);
                (path.into(), WeightsFile::read(path)?, context, Tokenizer::beside(path))
            }
            false => {
                let subject = Subject::find(path, which, &Given::default()).map_err(|error| match error {
                    Error::Weights(WeightsError::Undescribed { path }) => Error::NoModelKnown { path },
                    other => other,
                })?;
                let model = table::find(&subject.config.model)?;
                if !model.traits().reads_text {
                    return Err(Error::NoText { path: path.into(), model: model.name() });
                }
                let input = &subject.config.input;
                let context = input.context.unwrap_or(CONTEXT);
                let tokenizer = input.tokenizer().map(Path::to_owned);
                (subject.path, subject.weights, Some(context), tokenizer)
            }
        };
        let config = Gpt2Config::of(&weights, path)?;
        let tokenizer = Tokenizer::find(tokenizer.as_deref())?;
        config.check_vocabulary(path, tokenizer.vocabulary())?;
        check_tokenizer(&place, &tokenizer)?;
        let model = weights.into_module(config.init(0, &Device::flex()))?;
        Ok(Generator::of(&model, config.heads(), context.unwrap_or(config.positions), tokenizer))
    }

    /// Takes the weights of a model with so many heads, which sees at most `context` tokens at once of this
    /// tokenizer.
    pub fn of(model: &Gpt2, heads: usize, context: usize, tokenizer: Tokenizer) -> Self {
        let transformer = &model.transformer;
        let blocks = transformer.h.iter().map(|block| Block {
            ln_1: Norm::of(&block.ln_1),
            c_attn: Product::of(&block.attn.c_attn),
            c_proj: Product::of(&block.attn.c_proj),
            ln_2: Norm::of(&block.ln_2),
            c_fc: Product::of(&block.mlp.c_fc),
            mlp_proj: Product::of(&block.mlp.c_proj),
            keys: Vec::new(),
            values: Vec::new(),
        });
        let [positions, width] = model.wpe.weight.dims();
        let unscaled = || Norm { scale: vec![1.0; width], shift: vec![0.0; width] };
        Generator {
            tokenizer,
            tokens: values(&model.wte.weight),
            positions: values(&model.wpe.weight),
            width,
            heads,
            blocks: blocks.collect(),
            last: transformer.ln_f.as_ref().map_or_else(unscaled, Norm::of),
            context: context.clamp(1, positions),
            seen: Vec::new(),
        }
    }

    /// Continues a text by at most `count` tokens, or up to the end of the document. An empty text begins a
    /// document. The same arguments give the same text.
    ///
    /// The model sees as many tokens as in training. When it has seen so many, it forgets the older half.
    ///
    /// # Errors
    ///
    /// A score is not finite, or the tokenizer cannot express the text.
    pub fn continued(
        &mut self,
        text: &str,
        count: usize,
        sampling: &Sampling,
    ) -> Result<Continuation, Error> {
        self.forget();
        let end = usize::from(self.tokenizer.end_of_document());
        let prompt = self.tokenizer.encode(text).map_err(Error::NotEncoded)?.into_iter().map(usize::from);
        let begin = text.is_empty().then_some(end);
        // Tokens that would be forgotten need not be seen.
        let prompt: Vec<usize> = begin.into_iter().chain(prompt).collect();
        let mut scores = Vec::new();
        for token in &prompt[prompt.len().saturating_sub(self.context)..] {
            scores = self.scores(*token);
        }
        let key = Key::new(sampling.seed).with_str("generate");
        let (mut bytes, mut tokens) = (Vec::new(), 0);
        for number in 0..count {
            if !scores.iter().all(|score| score.is_finite()) {
                return Err(Error::ScoresNotFinite);
            }
            let token = sampling.choose(&scores, key.with(number as u64).unit());
            if token == end {
                return Ok(Continuation { text: String::from_utf8_lossy(&bytes).into(), tokens });
            }
            bytes.extend(self.tokenizer.bytes_of(token));
            tokens += 1;
            if number + 1 < count {
                scores = self.scores(token);
            }
        }
        let whole = bytes.len() - cut_off(&bytes);
        Ok(Continuation { text: String::from_utf8_lossy(&bytes[..whole]).into(), tokens })
    }

    /// Returns the scores of the token after this one, before softmax.
    pub fn scores(&mut self, token: usize) -> Vec<f32> {
        if self.seen.len() == self.context {
            let kept = self.seen[self.context - self.context / 2..].to_vec();
            self.forget();
            kept.into_iter().for_each(|token| drop(self.hidden(token)));
        }
        let x = self.hidden(token);
        let x = self.last.apply(&x);
        let rows = self.tokens.chunks_exact(self.width);
        rows.map(|row| row.iter().zip(&x).map(|(a, b)| a * b).sum()).collect()
    }

    fn forget(&mut self) {
        self.seen.clear();
        for block in &mut self.blocks {
            block.keys.clear();
            block.values.clear();
        }
    }

    /// Returns the residual stream after all blocks.
    fn hidden(&mut self, token: usize) -> Vec<f32> {
        let width = self.width;
        let row = |table: &[f32], row: usize| table[row * width..][..width].to_vec();
        let mut x = row(&self.tokens, token);
        add(&mut x, &row(&self.positions, self.seen.len()));
        self.seen.push(token);
        for block in &mut self.blocks {
            let attended = block.attend(self.heads, &block.ln_1.apply(&x));
            add(&mut x, &block.c_proj.apply(&attended));
            let mut hidden = block.c_fc.apply(&block.ln_2.apply(&x));
            hidden.iter_mut().for_each(|value| *value = gelu(*value));
            add(&mut x, &block.mlp_proj.apply(&hidden));
        }
        x
    }
}

/// Number of bytes at the end that begin a character of UTF-8 and lack its rest.
fn cut_off(bytes: &[u8]) -> usize {
    let last = bytes.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
    std::str::from_utf8(last).err().filter(|error| error.error_len().is_none()).map_or(0, |_| last.len())
}

impl Block {
    /// Keeps key and value of a token, and returns what its heads see, side by side.
    fn attend(&mut self, heads: usize, x: &[f32]) -> Vec<f32> {
        let width = x.len();
        let (head, qkv) = (width / heads, self.c_attn.apply(x));
        self.keys.extend_from_slice(&qkv[width..2 * width]);
        self.values.extend_from_slice(&qkv[2 * width..]);
        let mut out = vec![0.0; width];
        for start in (0..width).step_by(head) {
            let query = &qkv[start..][..head];
            let of = |all: &[f32], time: usize| -> Vec<f32> { all[time * width + start..][..head].to_vec() };
            let times = self.keys.len() / width;
            let score = |time| query.iter().zip(of(&self.keys, time)).map(|(q, k)| q * k).sum::<f32>();
            let mut weights: Vec<f32> = (0..times).map(|time| score(time) / (head as f32).sqrt()).collect();
            let largest = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            weights.iter_mut().for_each(|weight| *weight = libm::expf(*weight - largest));
            let sum: f32 = weights.iter().sum();
            for (time, weight) in weights.iter().enumerate() {
                let value = of(&self.values, time);
                out[start..][..head].iter_mut().zip(value).for_each(|(out, v)| *out += weight / sum * v);
            }
        }
        out
    }
}

impl Norm {
    fn of(layer: &LayerNorm) -> Self {
        let scale = values(&layer.gamma);
        let shift = layer.beta.as_ref().map_or_else(|| vec![0.0; scale.len()], values);
        Norm { scale, shift }
    }

    fn apply(&self, x: &[f32]) -> Vec<f32> {
        let mean = x.iter().sum::<f32>() / x.len() as f32;
        let variance = x.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / x.len() as f32;
        let factor = 1.0 / (variance + EPSILON).sqrt();
        let affine = self.scale.iter().zip(&self.shift);
        x.iter().zip(affine).map(|(x, (scale, shift))| (x - mean) * factor * scale + shift).collect()
    }
}

impl Product {
    fn of(layer: &Linear) -> Self {
        let [_, outputs] = layer.weight.dims();
        let bias = layer.bias.as_ref().map_or_else(|| vec![0.0; outputs], values);
        Product { weight: values(&layer.weight), bias }
    }

    fn apply(&self, x: &[f32]) -> Vec<f32> {
        let mut out = self.bias.clone();
        for (x, row) in x.iter().zip(self.weight.chunks_exact(out.len())) {
            out.iter_mut().zip(row).for_each(|(out, weight)| *out += x * weight);
        }
        out
    }
}

/// GELU by tanh, as the trained model has it.
fn gelu(x: f32) -> f32 {
    /// √(2/π).
    const SCALE: f32 = 0.797_884_6;
    0.5 * x * (1.0 + libm::tanhf(SCALE * (x + 0.044_715 * x * x * x)))
}

fn add(x: &mut [f32], other: &[f32]) {
    x.iter_mut().zip(other).for_each(|(x, other)| *x += other);
}

/// Elements of a parameter in row-major order.
fn values<const D: usize>(parameter: &Param<Tensor<D>>) -> Vec<f32> {
    parameter.val().into_data().iter().collect()
}
