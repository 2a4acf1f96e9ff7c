//! A language model over characters, with everything that the trainer has: it reads what Kolo's own
//! documents say and learns to go on.
//!
//! `cargo run --release --example char_model -- runs/characters`, or on workers that may come and go
//! `target/release/kolo launch --nproc 4 -- target/release/examples/char_model runs/characters`. Both end in
//! the same weights, whoever is killed meanwhile; a folder with a part of the run is gone on with.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;

use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig, Initializer};
use burn::tensor::{Device, Int, Tensor, TensorData};
use kolo::data::{AugmentKey, DataError, DataSet, Part};
use kolo::train::{Metric, OptimizerChoice, Recipe, Trainer, TransformChoices};
use kolo::{Choice, DropoutKey, Loss, Transformer, TransformerConfig, linear_next_token_loss};

pub(crate) const DOCUMENTS: [&str; 4] = [
    include_str!("../README.md"),
    include_str!("../docs/architecture.md"),
    include_str!("../docs/elastic.md"),
    include_str!("../docs/exact.md"),
];
/// Characters that the model sees at once.
const TIME: usize = 64;

/// Windows of a text, of which the last tenth is to test on.
pub(crate) struct Text {
    /// Each character's place among those that occur.
    ids: Vec<i32>,
    pub(crate) vocabulary: usize,
}

impl Text {
    pub(crate) fn of(documents: &[&str]) -> Self {
        let text = documents.concat();
        let mut known: Vec<char> = text.chars().collect();
        known.sort_unstable();
        known.dedup();
        let ids = text.chars().map(|c| known.binary_search(&c).expect("it occurs") as i32).collect();
        Text { ids, vocabulary: known.len() }
    }
}

impl DataSet for Text {
    /// A window after another, each of [`TIME`] characters and the one that follows.
    type Batch = Vec<i32>;

    fn samples(&self, part: Part) -> usize {
        let windows = (self.ids.len() - 1) / TIME;
        if part == Part::Test { windows / 10 } else { windows - windows / 10 }
    }

    fn batch(&self, part: Part, indices: &[usize], _: Option<AugmentKey>) -> Result<Vec<i32>, DataError> {
        let first = if part == Part::Test { self.samples(Part::Train) } else { 0 };
        let window = |index: &usize| &self.ids[(first + index) * TIME..][..TIME + 1];
        Ok(indices.iter().flat_map(window).copied().collect())
    }
}

#[derive(Module, Debug)]
pub(crate) struct CharModel {
    characters: Embedding,
    positions: Embedding,
    transformer: Transformer,
}

impl CharModel {
    pub(crate) fn new(vocabulary: usize, device: &Device) -> Self {
        let small = Initializer::Normal { mean: 0.0, std: 0.02 };
        let embedding = |count| EmbeddingConfig::new(count, 64).with_initializer(small.clone()).init(device);
        CharModel {
            characters: embedding(vocabulary),
            positions: embedding(TIME),
            transformer: TransformerConfig::new(64, 4, 2).with_dropout(0.1).init(device),
        }
    }

    pub(crate) fn loss(&self, windows: Vec<i32>, device: &Device, dropout: Option<&DropoutKey>) -> Loss {
        let batch = windows.len() / (TIME + 1);
        let windows = Tensor::<2, Int>::from_data(TensorData::new(windows, [batch, TIME + 1]), device);
        let (seen, next) = (windows.clone().narrow(1, 0, TIME), windows.narrow(1, 1, TIME));
        let positions = self.positions.forward(Tensor::arange(0..TIME as i64, device).unsqueeze());
        let x = self.transformer.forward(self.characters.forward(seen) + positions, dropout);
        // The embedding once more: a character is likely where its vector is alike.
        linear_next_token_loss(x, self.characters.weight.val().transpose(), next)
    }
}

fn main() -> ExitCode {
    kolo::main(run)
}

fn run() -> Result<(), Box<dyn Error + Send + Sync>> {
    let text = Text::of(&DOCUMENTS);
    let device = Device::flex().autodiff();
    device.seed(0);
    let model = CharModel::new(text.vocabulary, &device);
    let mut recipe = Recipe {
        model: "char-model".into(),
        data: "documents".into(),
        epochs: 20,
        shards: 4, // of every step, whoever works on them
        batch_size: 4,
        optimizer: OptimizerChoice(Choice::new("adamw").with("weight_decay", 0.1)),
        transforms: TransformChoices(vec![Choice::new("clip").with("clip_norm", 1.0)]),
        ..Recipe::default()
    };
    recipe.rate.lr = 3e-3;
    Trainer::new(recipe, Arc::new(text), |model: &CharModel, windows, context| {
        model.loss(windows, context.device, Some(context.dropout))
    })
    .counting("characters")
    .evaluate([Metric::LOSS], |model, windows, device| [model.loss(windows, device, None).into()])
    .run_folder(std::env::args().nth(1).unwrap_or("runs/char-model".into()))
    .train(model)?;
    Ok(())
}
