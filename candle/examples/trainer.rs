//! A candle model in Kolo's trainer: run folder, metrics, checkpoints, resume, deaths.
//!
//! `cargo build --release --examples`, then `kolo launch --nproc 2 -- target/release/examples/trainer`. The
//! same command continues a run that has ended early.

use candle_core::{Result, Tensor};
use candle_nn::{Linear, Module, VarBuilder, VarMap, linear};
use kolo_candle::{CandleModel, Loss, Trainer, classification, cross_entropy, image_tensors};
use kolo_data::Batch;
use kolo_train::{Metric, Pass, Recipe, StepRow};

struct Net {
    hidden: Linear,
    out: Linear,
}

impl Net {
    fn new(builder: VarBuilder) -> Result<Self> {
        Ok(Net {
            hidden: linear(28 * 28, 64, builder.pp("hidden"))?,
            out: linear(64, 10, builder.pp("out"))?,
        })
    }

    fn scores(&self, images: &Tensor) -> Result<Tensor> {
        self.out.forward(&self.hidden.forward(&images.flatten_from(1)?)?.relu()?)
    }
}

fn loss(net: &Net, batch: &Batch, pass: &Pass<'_>) -> Result<Loss> {
    let (images, labels) = image_tensors(batch)?;
    cross_entropy(&net.scores(&images)?, &labels, pass)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let model = CandleModel::build(&VarMap::new(), Net::new)?;
    let mut recipe =
        Recipe { model: "net".into(), epochs: 2, shards: 4, batch_size: 32, ..Recipe::default() };
    recipe.rate.lr = 0.05;
    let data = kolo_data::open("fashion-mnist-small")?;
    let trained =
        Trainer::new(recipe, data, |model: &CandleModel<Net>, batch, pass| loss(model, &batch, pass).into())
            .counting("images")
            .tally([Metric::ACCURACY], |model, batch, _| {
                let (images, labels) = image_tensors(&batch).unwrap();
                classification(&model.scores(&images).unwrap(), &labels).unwrap()
            })
            .on_step(|row: &StepRow, _: &CandleModel<Net>| {
                if row.step.is_multiple_of(5) {
                    println!("step {}: loss {}", row.step, row.loss);
                }
            })
            .run_folder("runs/candle")
            .train(model)?;
    // Rank 0 has the summary.
    if let (Some(summary), Some(model)) = (trained.summary, trained.model) {
        model.vars().save("candle.safetensors")?;
        println!("weights {}", summary.weights_sha256);
    }
    Ok(())
}
