//! The character model of Kolo's examples in a plain training loop of Burn, or in Kolo's trainer with one
//! worker. Prints the median of a step's seconds.
//!
//! `cargo run --release --manifest-path bench/burn/Cargo.toml --bin char_model -- plain|trainer SHARDS STEPS`

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use burn::grad_clipping::GradientClippingConfig;
use burn::optim::{AdamWConfig, GradientsAccumulator, GradientsParams};
use burn::tensor::Device;
use kolo_data::{DataSet, Part};
use kolo_ddp::Sampler;
use kolo_ddp::table::Choice;
use kolo_burn_train::{OptimizerChoice, Recipe, Trainer, TransformChoices};

use crate::example::{CharModel, DOCUMENTS, Text};

#[path = "../../../../examples/char_model.rs"]
#[allow(dead_code)]
mod example;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Windows of a step.
const BATCH: usize = 16;
const WARM_UP: usize = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [how, shards, steps] = arguments.as_slice() else {
        return Err("arguments: plain|trainer SHARDS STEPS".into());
    };
    let (shards, steps) = (shards.parse()?, steps.parse()?);
    let mut times = match how.as_str() {
        "plain" => plain(shards, steps)?,
        "trainer" => trainer(shards, steps)?,
        other => return Err(format!("`{other}` is neither plain nor trainer").into()),
    };
    times.drain(..WARM_UP);
    times.sort_by(f64::total_cmp);
    println!("{}", times[times.len() / 2]);
    Ok(())
}

/// What Burn's users write: each shard's gradients are added, then its own AdamW steps.
fn plain(shards: usize, steps: usize) -> Result<Vec<f64>, Box<dyn Error>> {
    let (text, device) = (Text::of(&DOCUMENTS), Device::flex().autodiff());
    let mut model = CharModel::new(text.vocabulary, &device);
    let clipping = GradientClippingConfig::Norm(1.0);
    let mut optimizer = AdamWConfig::new().with_weight_decay(0.1).with_grad_clipping(Some(clipping)).init();
    let sampler = Sampler::new(text.samples(Part::Train), BATCH / shards, shards, 0)?;
    let mut times = Vec::new();
    for step in 0..steps {
        let begun = Instant::now();
        let order = sampler.epoch(step / (sampler.steps() - 1));
        let mut gradients = GradientsAccumulator::new();
        for shard in 0..shards {
            // The last step of an epoch, which may be short, is left out.
            let windows = text.batch(Part::Train, &order.shard(step % (sampler.steps() - 1), shard), None)?;
            let loss = model.loss(windows, &device, None).into_mean() / shards as f32;
            gradients.accumulate(&model, GradientsParams::from_grads(loss.backward(), &model));
        }
        model = optimizer.step(3e-3, model, gradients.grads());
        times.push(begun.elapsed().as_secs_f64());
    }
    Ok(times)
}

fn trainer(shards: usize, steps: usize) -> Result<Vec<f64>, Box<dyn Error>> {
    let text = Text::of(&DOCUMENTS);
    let model = CharModel::new(text.vocabulary, &Device::flex().autodiff());
    let mut recipe = Recipe {
        epochs: steps,
        steps: Some(steps as u64),
        shards,
        batch_size: BATCH / shards,
        optimizer: OptimizerChoice(Choice::new("adamw").with("weight_decay", 0.1)),
        transforms: TransformChoices(vec![Choice::new("clip").with("clip_norm", 1.0)]),
        ..Recipe::default()
    };
    recipe.rate.lr = 3e-3;
    let times = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (seen, mut last) = (times.clone(), Instant::now());
    // No dropout on either side.
    Trainer::new(recipe, Arc::new(text), |model: &CharModel, windows, context| {
        model.loss(windows, context.device, None)
    })
    // From one step to the next, with all that the trainer does between them.
    .on_step(move |_, _| {
        seen.lock().unwrap().push(last.elapsed().as_secs_f64());
        last = Instant::now();
    })
    .train(model)?;
    Ok(std::mem::take(&mut *times.lock().unwrap()))
}
