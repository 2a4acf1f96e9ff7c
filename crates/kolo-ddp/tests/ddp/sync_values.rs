//! The values of every optimizer with every way to synchronize and both precisions, compared with a plain
//! loop in one process: the papers' equations in double precision, no buckets, no shards' trees, over steps
//! of 64, 7 and 1 samples with rates that change.
//!
//! Other tests compare bits of different numbers of ranks, which agree on a wrong number as well.

use std::ops::Range;
use std::sync::Arc;

use crate::common::{lively, noise};
use crate::equations::{Read, Tensor, norm, rule};
use kolo_comm::{Group, threads};
use kolo_ddp::optimizer::{self, OPTIMIZERS, Optimizer, Settings};
use kolo_ddp::sync::SYNCS;
use kolo_ddp::table::Entry;
use kolo_ddp::{BucketCaps, Config, Kind, LossScaling, ParamSpec, Replica, SpanId};

const SHARDS: usize = 4;
const STEPS: u64 = 14;
/// Limit of the error, relative to the norm of a tensor's values.
const LIMIT: f64 = 1e-5;
/// Shapes, and true if weight decay applies.
const TENSORS: [(&[usize], bool); 7] = [
    (&[6, 4], true),
    (&[0, 8], true),
    (&[5, 3, 2, 2], true),
    (&[], true),
    (&[37], false),
    (&[0], false),
    (&[9], false),
];
/// The tensor that starts with zeros, and the one that is a running mean.
const ZEROS: usize = 4;
const MEAN: usize = 6;

/// Samples of a step: with one sample, three of the shards have none.
fn count(step: u64) -> usize {
    [64, 1, 7, 64, 33, 1, 1, 7][step as usize % 8]
}

fn rate(step: u64) -> f64 {
    0.02 * ((step + 1) as f64 / 5.0).min(1.0) * (1.0 - step as f64 / 20.0)
}

/// The samples of a shard, by number.
fn samples(step: u64, shard: usize) -> Vec<usize> {
    let first = |shard: usize| shard * count(step) / SHARDS;
    (first(shard)..first(shard + 1)).map(|sample| 100 * step as usize + sample).collect()
}

fn len(tensor: usize) -> usize {
    TENSORS[tensor].0.iter().product()
}

fn start(tensor: usize) -> Vec<f32> {
    let size = if tensor == ZEROS { 0.0 } else { 1.5 };
    (0..len(tensor)).map(|i| size * noise(tensor + 1, i)).collect()
}

/// The gradient of ½ (θ − target)², whose targets are the samples'; or the change of the running mean.
fn gradient(tensor: usize, element: usize, value: f64, samples: &[usize]) -> f64 {
    let factor = if tensor == MEAN { -0.1 } else { 1.0 };
    factor * samples.iter().map(|sample| value - f64::from(noise(17 * sample + tensor, element))).sum::<f64>()
}

/// A way to synchronize, for the reference.
#[derive(Clone, Copy)]
enum Way {
    /// After every step.
    EveryStep,
    /// Updates are one step late.
    Delayed,
    /// After every `steps` of them, from the step `together` on.
    Rounds { steps: u64, together: u64, outer_lr: f64, outer_momentum: f64, restart: bool },
}

/// Every form of a way of the table, with its reference.
fn ways(name: &str) -> Vec<(String, Way)> {
    let rounds = |steps, together, outer_lr, outer_momentum, restart| Way::Rounds {
        steps,
        together,
        outer_lr,
        outer_momentum,
        restart,
    };
    match name {
        "every-step" => vec![(name.into(), Way::EveryStep)],
        "delayed" => vec![("delayed:1".into(), Way::Delayed)],
        "local" => vec![
            ("local:H=3".into(), rounds(3, 0, 1.0, 0.0, false)),
            ("local:H=4,restart_inner".into(), rounds(4, 0, 1.0, 0.0, true)),
        ],
        "post-local" => vec![
            ("post-local:H=3,T=5".into(), rounds(3, 5, 1.0, 0.0, false)),
            ("post-local:H=3,T=5,restart_inner".into(), rounds(3, 5, 1.0, 0.0, true)),
        ],
        "diloco" => vec![
            ("diloco:H=3,outer_lr=0.6,outer_momentum=0.8".into(), rounds(3, 0, 0.6, 0.8, false)),
            ("diloco:H=4,outer_lr=0.6,outer_momentum=0.8,restart_inner".into(), rounds(4, 0, 0.6, 0.8, true)),
        ],
        // The progress of workers is not deterministic: see `stale.rs`.
        "stale" => Vec::new(),
        other => panic!("no reference for `--sync {other}`: write it here"),
    }
}

/// A model with an optimizer, in one process.
struct Model<'a> {
    entry: &'static Entry<dyn Optimizer>,
    settings: &'a Read,
    tensors: Vec<Tensor>,
    /// Steps that the optimizer has counted.
    steps: i32,
}

impl Model<'_> {
    fn restart(&mut self) {
        self.steps = 0;
        for Tensor { m, v, .. } in &mut self.tensors {
            m.fill(0.0);
            v.fill(0.0);
        }
    }

    fn values(&self) -> Vec<Vec<f64>> {
        self.tensors.iter().map(|tensor| tensor.w.clone()).collect()
    }

    fn set(&mut self, values: &[Vec<f64>]) {
        self.tensors.iter_mut().zip(values).for_each(|(tensor, values)| tensor.w.clone_from(values));
    }

    /// Steps by the samples of some shards, whose gradient is taken at these values.
    ///
    /// Without samples there is no gradient, and the tensors stay as they are. The optimizer does not count
    /// the step, as in PyTorch if a gradient is `None`, so that Adam corrects its moments for as many updates
    /// as they have had.
    fn step_at(&mut self, step: u64, shards: Range<usize>, values: &[Vec<f64>]) {
        let samples: Vec<usize> = shards.flat_map(|shard| samples(step, shard)).collect();
        if samples.is_empty() {
            return;
        }
        self.steps += 1;
        for (n, (tensor, values)) in self.tensors.iter_mut().zip(values).enumerate() {
            let mean = |(i, value): (usize, &f64)| gradient(n, i, *value, &samples) / samples.len() as f64;
            let mean: Vec<f64> = values.iter().enumerate().map(mean).collect();
            if n == MEAN {
                tensor.w.iter_mut().zip(mean).for_each(|(value, change)| *value += change);
                continue;
            }
            rule(self.entry.name)(tensor, &mean, self.steps, rate(step), self.settings);
        }
    }

    fn step(&mut self, step: u64, shards: Range<usize>) {
        self.step_at(step, shards, &self.values());
    }
}

/// The values after all steps.
fn reference(
    entry: &'static Entry<dyn Optimizer>,
    settings: &Settings,
    way: Way,
    islands: usize,
) -> Vec<Vec<f64>> {
    let settings = Read(entry.complete(settings).unwrap());
    let tensors = || {
        let tensor = |n: usize| {
            let values = start(n).into_iter().map(f64::from).collect();
            Tensor::new(TENSORS[n].0.to_vec(), values, TENSORS[n].1)
        };
        (0..TENSORS.len()).map(tensor).collect()
    };
    let model = || Model { entry, settings: &settings, tensors: tensors(), steps: 0 };
    match way {
        Way::EveryStep => {
            let mut model = model();
            for step in 0..STEPS {
                model.step(step, 0..SHARDS);
            }
            model.values()
        }
        // Li et al. 2018, with a pipeline of two.
        Way::Delayed => {
            let mut model = model();
            let mut late = model.values();
            for step in 0..STEPS {
                let before = model.values();
                model.step_at(step, 0..SHARDS, &late);
                late = before;
            }
            model.values()
        }
        // Stich 2019, algorithm 1; Lin et al. 2020 with steps together; Douillard et al. 2023, algorithm 1.
        Way::Rounds { steps, together, outer_lr, outer_momentum, restart } => {
            let mut all: Vec<Model> = (0..islands).map(|_| model()).collect();
            let mut outer = all[0].values();
            let mut velocity: Vec<Vec<f64>> = outer.iter().map(|values| vec![0.0; values.len()]).collect();
            let size = SHARDS / islands;
            let mut of_round = 0;
            for step in 0..STEPS {
                if step < together {
                    for model in &mut all {
                        model.step(step, 0..SHARDS);
                    }
                    outer = all[0].values();
                    continue;
                }
                if of_round == 0 && restart {
                    all.iter_mut().for_each(Model::restart);
                }
                for (island, model) in all.iter_mut().enumerate() {
                    model.step(step, island * size..(island + 1) * size);
                }
                of_round += 1;
                if of_round < steps && step + 1 < STEPS {
                    continue;
                }
                of_round = 0;
                let ends: Vec<Vec<Vec<f64>>> = all.iter().map(Model::values).collect();
                for (n, outer) in outer.iter_mut().enumerate() {
                    let (outer_lr, outer_momentum) =
                        if n == MEAN { (1.0, 0.0) } else { (outer_lr, outer_momentum) };
                    for (i, value) in outer.iter_mut().enumerate() {
                        let change = ends.iter().map(|end| *value - end[n][i]).sum::<f64>() / islands as f64;
                        velocity[n][i] = outer_momentum * velocity[n][i] + change;
                        *value -= outer_lr * (change + outer_momentum * velocity[n][i]);
                    }
                }
                all.iter_mut().for_each(|model| model.set(&outer));
            }
            outer
        }
    }
}

/// Returns a replica's values after all steps.
fn trained(group: Group, config: &Config, optimizer: Box<dyn Optimizer>) -> Vec<f32> {
    let spec = |n: usize| {
        let (shape, decay) = TENSORS[n];
        let kind = if n == MEAN { Kind::Statistic } else { Kind::Parameter { decay } };
        ParamSpec::new(format!("p{n}"), shape.to_vec(), kind)
    };
    let specs = (0..TENSORS.len()).map(spec).collect();
    let values = (0..TENSORS.len()).flat_map(start).collect();
    let mut replica = Replica::new(Arc::new(group), specs, values, config, optimizer).unwrap();
    for step in 0..STEPS {
        if step + 1 == STEPS {
            replica.end_round();
        }
        for shard in replica.shards() {
            let (samples, scale) = (samples(step, shard), f64::from(replica.loss_scale()));
            let gradients: Vec<Vec<f32>> = (0..TENSORS.len())
                .map(|n| {
                    let values = replica.latest(SpanId(n)).iter().enumerate();
                    let scale = if n == MEAN { 1.0 } else { scale };
                    let scaled = |(i, value): (usize, &f32)| {
                        (scale * gradient(n, i, f64::from(*value), &samples)) as f32
                    };
                    values.map(scaled).collect()
                })
                .collect();
            let mut pass = replica.begin_shard(samples.len() as f64, samples.len() as f64).unwrap();
            if !samples.is_empty() {
                for (n, gradient) in gradients.iter().enumerate().rev() {
                    pass.ready(SpanId(n), gradient);
                }
            }
            pass.finish().unwrap();
        }
        replica.step(rate(step)).unwrap();
    }
    replica.values().unwrap().to_vec()
}

#[test]
fn every_optimizer_with_every_way_to_synchronize_comes_to_the_values_of_a_plain_loop() {
    let scaling = LossScaling { initial: 64.0, growth: 2.0, backoff: 0.5, growth_interval: 3 };
    let mut cells = 0;
    for entry in OPTIMIZERS {
        let settings = lively(entry);
        for (sync, way) in SYNCS.iter().flat_map(|sync| ways(sync.name)) {
            let (is_rare, is_late) = (matches!(way, Way::Rounds { .. }), matches!(way, Way::Delayed));
            for islands in if is_rare { vec![2, 4] } else { vec![1] } {
                let expected = reference(entry, &settings, way, islands);
                // Loss scaling and late updates exclude each other.
                for loss_scaling in [None, Some(scaling)].into_iter().take(if is_late { 1 } else { 2 }) {
                    let config = Config {
                        shards: Some(SHARDS),
                        caps: Some(BucketCaps { first: 64, other: 128 }),
                        sync: sync.parse().unwrap(),
                        islands: is_rare.then_some(islands),
                        loss_scaling,
                        // Late updates are all made then, which the reference does at the end only.
                        backup_every: 100,
                        ..Config::default()
                    };
                    for world in 1..=3 {
                        let run =
                            |group| trained(group, &config, optimizer::named(entry.name, &settings).unwrap());
                        for values in threads::spawn(world, run).unwrap() {
                            let mut values = &values[..];
                            for (n, expected) in expected.iter().enumerate() {
                                let (found, rest) = values.split_at(expected.len());
                                values = rest;
                                let pairs = found.iter().zip(expected);
                                let distance =
                                    pairs.map(|(a, b)| (f64::from(*a) - b).powi(2)).sum::<f64>().sqrt();
                                let context = format!(
                                    "{} --sync {sync}, {islands} islands, {world} ranks, scaled {}, tensor {n}: {:e}",
                                    entry.name,
                                    loss_scaling.is_some(),
                                    distance / norm(expected)
                                );
                                assert!(distance <= LIMIT * norm(expected), "{context}");
                            }
                        }
                        cells += 1;
                    }
                }
            }
        }
    }
    assert!(cells >= 7 * 27 * 3, "{cells} cells");
}
