//! Some steps of models of each kind, and with each optimizer. It prints a hash of the weights after them,
//! which `bench/processors.py` compares between processors.
//!
//! `cargo run --release -p kolo-models --example trained_bits`

use std::error::Error;
use std::hash::{DefaultHasher, Hasher};

use burn::module::Module;
use burn::nn::{Embedding, EmbeddingConfig};
use burn::tensor::{Device, Int, Tensor, TensorData};
use kolo_burn::{Ddp, DropoutKey, Loss, Transformer, TransformerConfig, matmul, next_token_loss};
use kolo_burn_train::TrainingContext;
use kolo_comm::Group;
use kolo_data::{Batch, SampleShape};
use kolo_ddp::optimizer::{OPTIMIZERS, Settings, named};
use kolo_ddp::{Config, Replica};
use kolo_models::{Blueprint, ImageModel, VggConfig, find};

const RATE: f64 = 1e-3;

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::flex().autodiff();
    let color = SampleShape { channels: 3, height: 32, width: 32, classes: 10, is_text: false };
    let gray = SampleShape { channels: 1, height: 28, width: 28, classes: 10, is_text: false };
    named_model("small", gray, "adamw", &device)?;
    for optimizer in OPTIMIZERS {
        named_model("mlp", gray, optimizer.name, &device)?;
    }
    let config = VggConfig { widths: [8, 12, 16, 20, 24], hidden: 40, ..VggConfig::vgg16(3, 10) };
    train("a narrow VGG", config.init(7, &device), |model, dropout| {
        let (cross_shard, mixing, device) = (None, None, &device);
        model.loss(
            batch(color),
            &TrainingContext { dropout, cross_shard, device, label_smoothing: 0.1, mixing },
        )
    })?;
    train("characters", TextModel::new(&device), |model, dropout| model.loss(&device, dropout))?;
    let text = SampleShape { channels: 1, height: 1, width: 41, classes: 257, is_text: true };
    named_model("gpt2:tiny", text, "adamw", &device)?;
    named_model("resnet18", color, "adamw", &device)
}

/// Takes two steps of a model of the table.
fn named_model(
    name: &str,
    samples: SampleShape,
    optimizer: &str,
    device: &Device,
) -> Result<(), Box<dyn Error>> {
    let blueprint = Blueprint { dropout: 0.1, ..Blueprint::plain(7, samples, device) };
    let built = named(optimizer, &Settings::default())?;
    let mut stepper = find(name)?.stepper(Group::alone(), &blueprint, &Config::default(), built)?;
    for _ in 0..2 {
        stepper.step(batch(samples), RATE)?;
    }
    stepper.with_replica(&mut |replica| print_hash(&format!("{name} by {optimizer}"), replica));
    Ok(())
}

/// Takes two steps of any model.
fn train<M: Module>(
    name: &str,
    model: M,
    loss: impl Fn(&M, &DropoutKey) -> Loss,
) -> Result<(), Box<dyn Error>> {
    let optimizer = named("adamw", &Settings::default())?;
    let mut ddp = Ddp::new(Group::alone(), model, &Config::default(), optimizer)?;
    for step in 0..2 {
        let loss = loss(ddp.model(), &DropoutKey { seed: 7, epoch: 0, step, shard: 0 });
        ddp.backward(loss)?;
        ddp.step(RATE)?;
    }
    ddp.with_replica(|replica| print_hash(name, replica));
    Ok(())
}

fn print_hash(name: &str, replica: &mut Replica) {
    let mut hash = DefaultHasher::new();
    let values = replica.values().expect("weights after the step");
    assert!(values.iter().all(|value| value.is_finite()), "{name}: weights that are not finite");
    values.iter().for_each(|value| hash.write_u32(value.to_bits()));
    println!("{name}: {:016x}", hash.finish());
}

/// Returns three images, or windows of a text.
fn batch(samples: SampleShape) -> Batch {
    let SampleShape { channels, height, width, classes, is_text } = samples;
    let len = 3 * channels * height * width;
    let value = |i: usize| match is_text {
        true => (i * 7_919 % classes) as f32,
        false => (i * 7_919 % 1_013) as f32 / 500.0 - 1.0,
    };
    Batch {
        images: (0..len).map(value).collect(),
        labels: (0..3).map(|i| (7 * i % classes) as u32).collect(),
        shape: [3, channels, height, width],
    }
}

/// A small language model.
#[derive(Module, Debug)]
struct TextModel {
    characters: Embedding,
    positions: Embedding,
    transformer: Transformer,
}

impl TextModel {
    const VOCABULARY: usize = 61;
    const TIME: usize = 40;

    fn new(device: &Device) -> Self {
        device.seed(7);
        let embedding = |count| EmbeddingConfig::new(count, 32).init(device);
        TextModel {
            characters: embedding(Self::VOCABULARY),
            positions: embedding(Self::TIME),
            transformer: TransformerConfig::new(32, 4, 2).with_dropout(0.1).init(device),
        }
    }

    fn loss(&self, device: &Device, dropout: &DropoutKey) -> Loss {
        let tokens = |first: usize| {
            let tokens = (0..2 * Self::TIME).map(|i| ((i + first) * 7 % Self::VOCABULARY) as i64);
            let data = TensorData::new(tokens.collect::<Vec<i64>>(), [2, Self::TIME]);
            Tensor::<2, Int>::from_data(data, device)
        };
        let positions = Tensor::arange(0..Self::TIME as i64, device).unsqueeze();
        let x = self.characters.forward(tokens(0)) + self.positions.forward(positions);
        let x = self.transformer.forward(x, Some(dropout));
        next_token_loss(matmul(x, self.characters.weight.val().transpose().unsqueeze()), tokens(1))
    }
}
