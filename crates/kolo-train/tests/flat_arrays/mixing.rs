//! Mixup of batches of images.

use std::sync::Arc;

use kolo_comm::{Group, threads};
use kolo_data::{AugmentKey, Batch, DataError, DataSet, Part};
use kolo_train::{Job, Membership, Recipe, Trained, Trainer};

use crate::model::{FlatArrays, INPUTS, Perceptron, Plane};
use crate::{job, recipe, train};

/// The points of [`Plane`] as images of two channels and one pixel, in two classes.
struct Pixels;

impl DataSet for Pixels {
    type Batch = Batch;

    fn samples(&self, part: Part) -> usize {
        Plane.samples(part)
    }

    fn batch(&self, part: Part, indices: &[usize], key: Option<AugmentKey>) -> Result<Batch, DataError> {
        let (images, targets) = Plane.batch(part, indices, key)?;
        let labels = targets.into_iter().map(|target| u32::from(target > 0.0)).collect();
        Ok(Batch { images, labels, shape: [indices.len(), INPUTS, 1, 1] })
    }
}

fn trained(job: Job, group: Group) -> Trained<Perceptron> {
    let trainer = Trainer::<FlatArrays, Perceptron, _>::of(job, Arc::new(Pixels), |model, batch, pass| {
        let class = |image: usize| batch.labels[image] as f32;
        let target = |image: usize| match pass.mixing {
            Some(mixing) => {
                let own = mixing.own_share as f32;
                own * class(image) + (1.0 - own) * class(mixing.partners[image])
            }
            None => class(image),
        };
        model.forward(&(batch.images.clone(), (0..batch.len()).map(target).collect()))
    });
    trainer.train_as(Membership::Fixed(group), Perceptron::new()).unwrap()
}

fn weights(job: Job, group: Group) -> Option<String> {
    trained(job, group).summary.map(|summary| summary.weights_sha256)
}

#[test]
fn mixed_batches_give_the_same_bits_on_any_workers_and_after_a_resume() {
    let plain = weights(Job::new(recipe()), Group::alone());
    let mixing = || Recipe { mixup: Some(0.4), cutmix: Some(1.0), ..recipe() };
    let whole = weights(Job::new(mixing()), Group::alone());
    assert_ne!(whole, plain);
    for world in [2, 3] {
        let found = threads::spawn(world, |group| weights(Job::new(mixing()), group)).unwrap();
        assert_eq!(found[0], whole, "{world} workers");
    }
    let folder = tempfile::tempdir().unwrap();
    weights(job(Recipe { steps: Some(7), ..mixing() }, folder.path(), false), Group::alone());
    assert_eq!(weights(job(mixing(), folder.path(), true), Group::alone()), whole);
}

#[test]
fn batches_that_are_no_images_are_not_mixed() {
    let job = Job::new(Recipe { cutmix: Some(1.0), ..recipe() });
    let error = train(job, Membership::Fixed(Group::alone()), |_| false).unwrap_err();
    assert!(error.is_input(), "{error}");
    assert!(error.to_string().contains("--cutmix 1: only batches of images"), "{error}");
}
