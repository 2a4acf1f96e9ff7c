//! Gradient transforms: a user's own, and several one after another.

use std::sync::{Arc, Mutex};

use crate::common::checkpoints::at;
use crate::common::smooth::Smooth;
use crate::common::{NAMES, WIDTH, clip, refusal, replica, run_shard};
use kolo_comm::{Group, threads};
use kolo_ddp::checkpoint;
use kolo_ddp::optimizer::Settings;
use kolo_ddp::transform::{Decision, GradientTransform};
use kolo_ddp::{BucketCaps, Config, Layout, Slice};

/// Halves the gradient; counts how often it has seen each element, and records the scales that it was given.
#[derive(Default)]
struct Halve {
    seen: Arc<Mutex<Vec<u32>>>,
    scales: Arc<Mutex<Vec<f64>>>,
    offsets: Vec<usize>,
}

impl GradientTransform for Halve {
    fn init(&mut self, layout: &Layout) {
        self.offsets = layout.spans().iter().map(|span| span.offset).collect();
        *self.seen.lock().unwrap() = vec![0; layout.len()];
    }

    fn see(&mut self, slice: &Slice, gradient: &[f32]) {
        assert_eq!(slice.elements.len(), gradient.len());
        let start = self.offsets[slice.span.0] + slice.elements.start;
        self.seen.lock().unwrap()[start..start + gradient.len()].iter_mut().for_each(|seen| *seen += 1);
    }

    fn decide(&mut self, scale: f64) -> Decision {
        self.scales.lock().unwrap().push(scale);
        Decision { factor: 0.5, norm: None }
    }
}

/// Returns the values after three steps with `transform` added, if there is one.
fn train(group: Group, config: &Config, transform: Option<Halve>, rate: f64) -> Vec<f32> {
    let shards = group.world_size();
    let config = Config { shards: Some(shards), ..config.clone() };
    let mut replica = replica(Arc::new(group), &config, "sgd", Settings::default());
    if let Some(transform) = transform {
        replica.add_transform(transform);
    }
    for step in 0..3 {
        for shard in replica.shards() {
            run_shard(&mut replica, &[step * 10 + shard]);
        }
        replica.step(rate).unwrap();
    }
    let mut values = replica.values().unwrap().to_vec();
    // The running mean is not transformed.
    values.truncate((NAMES.len() - 1) * WIDTH);
    values
}

/// Half the gradient is half the rate of plain SGD, to the bit.
#[test]
fn an_own_transform_sees_every_gradient_once_and_scales_it() {
    let small = BucketCaps { first: 4 * WIDTH, other: 8 * WIDTH };
    let config = Config { caps: Some(small), ..Config::default() };
    for halved in threads::spawn(2, |group| {
        let halve = Halve::default();
        let seen = halve.seen.clone();
        let values = train(group, &config, Some(halve), 0.1);
        let seen = seen.lock().unwrap();
        let (trained, mean) = seen.split_at((NAMES.len() - 1) * WIDTH);
        assert!(trained.iter().all(|seen| *seen == 3) && mean.iter().all(|seen| *seen == 0));
        values
    })
    .unwrap()
    {
        let expected = threads::spawn(2, |group| train(group, &config, None, 0.05)).unwrap().remove(0);
        assert_eq!(halved, expected);
    }
}

/// A job that is cut continues as if it had not been, if the transform is added before the checkpoint is
/// read or after; with another transform it is refused.
#[test]
fn what_a_transform_knows_is_in_checkpoints() {
    let step = |replica: &mut kolo_ddp::Replica, number: usize| {
        run_shard(replica, &[number * 10 + 1]);
        replica.step(0.1).unwrap();
    };
    let fresh = || replica(Arc::new(Group::alone()), &Config::default(), "sgd", Settings::default());
    let folder = tempfile::tempdir().unwrap();
    let mut whole = fresh();
    whole.add_transform(Smooth::default());
    (0..4).for_each(|number| step(&mut whole, number));
    let path = checkpoint::save(folder.path(), &mut whole, &at(4)).unwrap();
    (4..8).for_each(|number| step(&mut whole, number));
    for adds_first in [true, false] {
        let mut cut = fresh();
        if adds_first {
            cut.add_transform(Smooth::default());
        }
        checkpoint::load(&path, &mut cut).unwrap();
        if !adds_first {
            cut.add_transform(Smooth::default());
        }
        (4..8).for_each(|number| step(&mut cut, number));
        assert!(cut.values().unwrap() == whole.values().unwrap());
    }
    let mut other = fresh();
    other.add_transform(Halve::default());
    let error = checkpoint::load(&path, &mut other).unwrap_err().to_string();
    assert!(error.contains("Halve` cannot go on from what is kept for it: it keeps nothing"), "{error}");
}

/// A transform receives the scale after those before it.
#[test]
fn transforms_follow_one_another() {
    let config = Config { transforms: clip(1e-3), ..Config::default() };
    let halve = Halve::default();
    let scales = halve.scales.clone();
    train(Group::alone(), &config, Some(halve), 0.1);
    // Gradients are far longer than that, so the clipped ones are far below the 1 of a step of one sample.
    assert!(scales.lock().unwrap().iter().all(|scale| *scale < 0.1), "{scales:?}");
    let mut replica = replica(Arc::new(Group::alone()), &config, "sgd", Settings::default());
    run_shard(&mut replica, &[1]);
    let norm = replica.step(0.1).unwrap().gradient_norm.unwrap();
    assert!((scales.lock().unwrap().len() == 3) && norm > 0.1, "{norm}");
}

#[test]
fn wrong_transforms_are_named() {
    for (transforms, text) in [
        (clip(0.0), "clip_norm of clip is 0; it must be greater than 0"),
        (vec![kolo_ddp::table::Choice::new("shear")], "unknown gradient transform `shear`; known are clip"),
    ] {
        let error = refusal(Group::alone(), &Config { transforms, ..Config::default() });
        assert!(error.contains(text), "{error}");
    }
}
