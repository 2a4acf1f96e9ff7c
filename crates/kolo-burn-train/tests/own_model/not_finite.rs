//! A run whose numbers are not finite any more: it fails with an error, and keeps its last good checkpoint.

use std::path::Path;
use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use kolo_burn::Loss;
use kolo_burn_train::{Error, Membership, Recipe, Trainer, TrainingContext, cross_entropy, image_tensors};
use kolo_comm::{Group, threads};
use kolo_data::Batch;
use kolo_ddp::checkpoint;

use crate::model::{self, CLASSES, Computed, PIXELS, Perceptron};

/// Steps of the run: the flag is 0 in the last one.
const STEPS: u64 = 6;

/// A perceptron and a scale, which a flag turns off. The root of its square has no gradient at 0.
#[derive(Module, Debug)]
struct Scaled {
    inner: Perceptron,
    scale: Param<Tensor<1>>,
}

impl Scaled {
    fn new() -> Self {
        let scale = Param::from_data(TensorData::new(vec![1.0f32], [1]), &Device::flex().autodiff());
        Scaled { inner: Perceptron::new(), scale }
    }

    /// Cross-entropy and 0.01·√((scale·flag)²), whose value is finite and whose gradient is not.
    fn loss(&self, batch: Batch, context: &TrainingContext<'_>, flag: f32) -> Loss {
        let (images, labels) = image_tensors(batch, context.device);
        let count = labels.dims()[0];
        let loss = cross_entropy(self.inner.scores(images), labels).into_mean();
        let flagged = self.scale.val().mul_scalar(flag);
        let penalty = (flagged.clone() * flagged).sqrt().mul_scalar(0.01);
        Loss::mean(loss + penalty, count)
    }
}

fn train(group: Group, folder: &Path, bad_step: Option<u64>) -> Result<(), Error> {
    let shards = 2;
    let recipe = Recipe {
        epochs: 3,
        steps: Some(STEPS),
        shards,
        batch_size: 2,
        checkpoint_steps: Some(1),
        keep_checkpoints: 1,
        ..Recipe::default()
    };
    let own = shards as u64 / group.world_size() as u64;
    let passes = std::sync::atomic::AtomicU64::new(0);
    let loss = move |model: &Scaled, batch: Batch, context: &TrainingContext<'_>| {
        let step = passes.fetch_add(1, std::sync::atomic::Ordering::SeqCst) / own;
        model.loss(batch, context, if Some(step) == bad_step { 0.0 } else { 1.0 })
    };
    let trainer = Trainer::new(recipe, Arc::new(Computed), loss).run_folder(folder);
    trainer.train_as(Membership::Fixed(group), Scaled::new()).map(drop)
}

#[test]
fn a_gradient_that_is_no_number_ends_the_run_and_the_last_good_checkpoint_stays() {
    for world in [1, 2] {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("run");
        let told = threads::spawn(world, |group| train(group, &folder, Some(STEPS - 1)).unwrap_err());
        for error in told.unwrap() {
            let words = error.to_string();
            assert!(matches!(error, Error::Diverged(_)) && !error.is_input(), "{words}");
            assert!(
                words.contains("the gradient of `scale` in step 5 is NaN in shard 0 (rank 0)"),
                "{words}"
            );
            assert!(words.contains("--lr, --clip-norm"), "{words}");
        }
        assert!(!folder.join("summary.json").exists(), "the run has not succeeded");
        let found = checkpoint::newest(&folder.join("checkpoints")).unwrap().unwrap();
        assert_eq!((found.step, found.passed_over.len()), (STEPS - 1, 0));
        // With the operation fixed, the run continues from there.
        train(Group::alone(), &folder, None).unwrap();
        assert!(folder.join("summary.json").exists());
    }
}

#[test]
fn weights_to_begin_with_that_are_no_numbers_are_refused_with_their_file() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("weights.safetensors");
    let bytes = 4 * PIXELS * CLASSES;
    let header = format!(
        r#"{{"layer.weight":{{"dtype":"F32","shape":[{PIXELS},{CLASSES}],"data_offsets":[0,{bytes}]}}}}"#
    );
    let values = f32::NAN.to_le_bytes().repeat(PIXELS * CLASSES);
    let whole = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &values].concat();
    std::fs::write(&file, whole).unwrap();
    let mut job = model::job(place.path(), None, false);
    job.config.init = Some(file.clone());
    let error = model::run(Group::alone(), job).unwrap_err();
    let words = format!("{} holds the value NaN in `layer.weight`; give weights", file.display());
    assert!(error.is_input() && error.to_string().starts_with(&words), "{error}");
}
