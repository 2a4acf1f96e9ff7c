//! Effects of a trainer's own code on a job, as its launcher shows them:
//! `kolo launch --nproc 3 -- target/debug/examples/trainer_trials poison RUN_FOLDER`.
//!
//! The first argument selects the effect: `poison` (the worker that prepares sample 13 fails), or `upload`
//! (rank 0 waits for seconds in `on_epoch`, and then adds a line to the file `uploads` of the run folder).

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::Device;
use kolo::data::{AugmentKey, Batch, DataError, DataSet, Part};
use kolo::train::{Recipe, Trainer, cross_entropy};
use kolo::{image_tensors, linear};

const POISON: usize = 13;
/// Longer than ranks wait, with `--timeout 1`, for a worker that only waits.
const UPLOAD: Duration = Duration::from_secs(8);

#[derive(Module, Debug)]
struct OneLayer {
    layer: Linear,
}

/// Computed samples; one of them may fail.
struct Samples {
    is_poisoned: bool,
}

impl DataSet for Samples {
    type Batch = Batch;

    fn samples(&self, part: Part) -> usize {
        if part == Part::Train { 64 } else { 0 }
    }

    fn batch(&self, _: Part, indices: &[usize], _: Option<AugmentKey>) -> Result<Batch, DataError> {
        assert!(!(self.is_poisoned && indices.contains(&POISON)), "this file is cut off");
        let images =
            indices.iter().flat_map(|&i| (0..4).map(move |p| ((i * 7 + p * 3) % 11) as f32)).collect();
        let labels = indices.iter().map(|i| (i % 2) as u32).collect();
        Ok(Batch { images, labels, shape: [indices.len(), 1, 2, 2] })
    }
}

fn main() -> ExitCode {
    kolo::main(run)
}

fn run() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, way, folder] = arguments.as_slice() else { return Err("give a way and a run folder".into()) };
    let folder = PathBuf::from(folder);
    let device = Device::flex().autodiff();
    let model = OneLayer { layer: LinearConfig::new(4, 2).init(&device) };
    let recipe = Recipe { epochs: 2, shards: 4, batch_size: 2, ..Recipe::default() };
    let data = Arc::new(Samples { is_poisoned: way == "poison" });
    let trainer = Trainer::new(recipe, data, |model: &OneLayer, batch, context| {
        let (images, labels) = image_tensors(batch, context.device);
        cross_entropy(linear(&model.layer, images.flatten(1, 3)), labels)
    });
    let (is_upload, uploads) = (way == "upload", folder.join("uploads"));
    let trainer = trainer.run_folder(folder).on_epoch(move |row, _| {
        if is_upload {
            std::thread::sleep(UPLOAD);
            let file = std::fs::OpenOptions::new().create(true).append(true).open(&uploads);
            let told = file.and_then(|mut file| writeln!(file, "epoch {}", row.epoch));
            told.unwrap_or_else(|error| eprintln!("{}: {error}", uploads.display()));
        }
    });
    trainer.train(model)?;
    Ok(())
}
