//! The module, and the loss of a window of text.

use std::path::Path;

use burn::module::Module;
use burn::nn::Embedding;
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_flex_nn::{embedding, matmul, smoothed_linear_cross_entropy};
use kolo_burn::{Activation, Dropout, DropoutKey, Loss, Transformer, TransformerConfig};
use kolo_burn_train::{Mean, Perplexity, TrainingContext};
use kolo_data::{Batch, ImageDataSet, Tokenizer};
use kolo_weights::WeightsFile;

use crate::error::Error;
use crate::init::Init;

/// Width of a head, the same in all published sizes.
const HEAD: usize = 64;

/// Standard deviation of the embeddings' initial values, as that of all weights.
const DEVIATION: f64 = 0.02;

/// The shape of a GPT-2; [`init`](Self::init) makes the network.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpt2Config {
    /// Number of blocks.
    pub layers: usize,
    /// Width of the residual stream, a multiple of 64. A head is 64 wide.
    pub width: usize,
    /// Most tokens that the model sees at once.
    pub positions: usize,
    /// Number of different tokens.
    pub vocabulary: usize,
    /// Share of embeddings, attention weights, and outputs of attention and feed-forward networks that
    /// training drops.
    pub dropout: f64,
    /// See [`TransformerConfig::activation_checkpointing`].
    pub activation_checkpointing: bool,
}

impl Gpt2Config {
    /// Returns the shape of the network of these weights, which are at `path`.
    ///
    /// # Errors
    ///
    /// They are of another network.
    pub fn of(weights: &WeightsFile, path: &Path) -> Result<Self, Error> {
        let other = |tensor: &str| Error::NoGpt2 { path: path.into(), tensor: tensor.into() };
        let shape = |name: &str| match weights.shape(name) {
            Some(&[rows, columns]) => Ok([rows, columns]),
            _ => Err(other(name)),
        };
        let ([vocabulary, width], [positions, _]) = (shape("wte.weight")?, shape("wpe.weight")?);
        if width == 0 || !width.is_multiple_of(HEAD) {
            return Err(other("wte.weight"));
        }
        let has = |number: &usize| weights.shape(&format!("transformer.h.{number}.ln_1.gamma")).is_some();
        let layers = (0..).take_while(has).count();
        Ok(Gpt2Config { layers, width, positions, vocabulary, dropout: 0.0, activation_checkpointing: false })
    }

    /// Refuses weights at `path` whose tokens are not those of a tokenizer with so many.
    ///
    /// # Errors
    ///
    /// Both numbers, if they differ.
    pub fn check_vocabulary(&self, path: &Path, tokens: usize) -> Result<(), Error> {
        let vocabulary = self.vocabulary;
        let other = || Error::OtherVocabulary { path: path.into(), vocabulary, tokens };
        if vocabulary == tokens { Ok(()) } else { Err(other()) }
    }

    /// Number of heads of each attention.
    pub fn heads(&self) -> usize {
        self.width / HEAD
    }

    /// Makes the network with GPT-2's initial values ([`TransformerConfig::init`]). They depend on `seed` and
    /// names alone.
    ///
    /// # Panics
    ///
    /// If the width is no multiple of 64, or if dropout is not at least 0 and below 1.
    pub fn init(&self, seed: u64, device: &Device) -> Gpt2 {
        assert!(
            self.width > 0 && self.width.is_multiple_of(HEAD),
            "a width of {} in heads of {HEAD}",
            self.width
        );
        let init = Init { seed, device };
        let transformer = TransformerConfig::new(self.width, self.heads(), self.layers)
            .with_activation(Activation::GeluTanh)
            .with_dropout(self.dropout)
            .with_activation_checkpointing(self.activation_checkpointing)
            .with_seed(seed);
        Gpt2 {
            wte: init.embedding("wte", [self.vocabulary, self.width], DEVIATION),
            wpe: init.embedding("wpe", [self.positions, self.width], DEVIATION),
            dropout: Dropout::new(self.dropout),
            drops: self.dropout > 0.0,
            transformer: transformer.init(device),
        }
    }
}

/// GPT-2; built by [`Gpt2Config::init`]. The embedding of tokens is also the last layer.
#[derive(Module, Debug)]
pub struct Gpt2 {
    /// Vectors of tokens: `[vocabulary, width]`.
    pub wte: Embedding,
    /// Vectors of positions: `[positions, width]`.
    pub wpe: Embedding,
    /// Of the sum of both, in training.
    pub dropout: Dropout,
    drops: bool,
    /// Blocks, and the last normalization.
    pub transformer: Transformer,
}

impl Gpt2 {
    /// Returns the scores of the token after each position, before softmax; drops values if there is a key.
    ///
    /// # Shapes
    ///
    /// - `tokens`: `[batch, time]`
    /// - output: `[batch · time, vocabulary]`
    ///
    /// # Panics
    ///
    /// If there are more tokens in a row than positions, or if a token is not in the vocabulary.
    pub fn scores(&self, tokens: Tensor<2, Int>, key: Option<&DropoutKey>) -> Tensor<2> {
        matmul(self.last(tokens, key), self.wte.weight.val().transpose())
    }

    /// Returns the vectors after the last block, of which the scores are products: `[batch · time, width]`.
    fn last(&self, tokens: Tensor<2, Int>, key: Option<&DropoutKey>) -> Tensor<2> {
        let [batch, time] = tokens.dims();
        let key = key.filter(|_| self.drops);
        let positions = self.wpe.weight.val().narrow(0, 0, time);
        let mut x = embedding(self.wte.weight.val(), tokens) + positions.unsqueeze::<3>();
        if let Some(key) = key {
            x = self.dropout.forward(x, "embeddings", key);
        }
        let x = self.transformer.forward(x, key);
        let [.., width] = x.dims();
        x.reshape([batch * time, width])
    }

    /// Returns the loss of windows of text in training, in nats, and counts their tokens.
    ///
    /// # Panics
    ///
    /// Those of [`scores`](Self::scores).
    pub fn loss(&self, batch: Batch, context: &TrainingContext<'_>) -> Loss {
        self.cross_entropy(&batch, context.device, Some(context.dropout), context.label_smoothing)
    }

    /// Returns perplexity, loss and bits per byte of windows in evaluation; `lengths` are the bytes of each
    /// token.
    pub(crate) fn tally(&self, batch: Batch, device: &Device, lengths: &[usize]) -> TextTally {
        let mean = Mean::from(self.cross_entropy(&batch, device, None, 0.0));
        let (_, targets) = windows(&batch, device);
        let bytes: usize = targets.into_iter().flatten().filter_map(|token| lengths.get(token)).sum();
        let bits = Mean { sum: mean.sum / std::f64::consts::LN_2, count: bytes as f64 };
        (Perplexity(mean), (mean, bits))
    }

    fn cross_entropy(
        &self,
        batch: &Batch,
        device: &Device,
        key: Option<&DropoutKey>,
        label_smoothing: f64,
    ) -> Loss {
        let (tokens, targets) = windows(batch, device);
        let count = targets.iter().flatten().count();
        let (x, head) = (self.last(tokens, key), self.wte.weight.val().transpose());
        Loss::sum(smoothed_linear_cross_entropy(x, head, targets, label_smoothing as f32), count)
    }
}

/// Perplexity and loss of tokens, and bits per byte of their text: the metrics of `TEXT`.
pub(crate) type TextTally = (Perplexity, (Mean, Mean));

/// Returns the bytes of each token of a text; of a text without a tokenizer, tokens are bytes.
pub(crate) fn lengths(data: &dyn ImageDataSet) -> Vec<usize> {
    let bytes = Tokenizer::bytes();
    let tokenizer = data.tokenizer().unwrap_or(&bytes);
    (0..tokenizer.vocabulary()).map(|token| tokenizer.bytes_of(token).len()).collect()
}

/// Returns the tokens that the model sees, `[windows, context]`, and the one that follows each. Behind the
/// end of the text there is none to predict; the model sees any token there, which changes no other position.
pub(super) fn windows(batch: &Batch, device: &Device) -> (Tensor<2, Int>, Vec<Option<usize>>) {
    let [count, .., width] = batch.shape;
    let windows = || batch.images.chunks_exact(width);
    let seen = windows().flat_map(|window| &window[..width - 1]).map(|token| token.max(0.0) as i32);
    let seen = TensorData::new(seen.collect::<Vec<i32>>(), [count, width - 1]);
    let target = |token: &f32| (*token >= 0.0).then_some(*token as usize);
    (Tensor::from_data(seen, device), windows().flat_map(|window| &window[1..]).map(target).collect())
}
