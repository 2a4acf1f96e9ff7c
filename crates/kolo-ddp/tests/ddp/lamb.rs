//! LAMB through replicas against a plain implementation for one process.

use std::sync::Arc;

use crate::common::{lively, noise, pass};
use kolo_comm::{Group, threads};
use kolo_ddp::{BucketCaps, Config, Kind, ParamSpec, Replica, SpanId, optimizer};

const STEPS: u64 = 50;
const SHARDS: usize = 4;
const RATE: f64 = 0.02;

/// Tensors: name, elements, true if weight decay applies. `large` is cut into three buckets; `zeros` starts
/// with zeros.
const TENSORS: [(&str, usize, bool); 4] =
    [("small", 10, true), ("large", 40_000, true), ("bias", 300, false), ("zeros", 77, false)];

fn start(tensor: usize, element: usize) -> f32 {
    if TENSORS[tensor].0 == "zeros" { 0.0 } else { 1.5 * noise(tensor, element) }
}

/// Gradient of one sample of a shard: of ½(θ − target)², whose target differs by shard and step.
fn gradient<T: From<f32> + std::ops::Sub<Output = T>>(
    value: T,
    element: usize,
    step: u64,
    shard: usize,
) -> T {
    value - T::from(noise(1 + shard + step as usize % 3, element))
}

/// Returns the weights after all steps, by replicas.
fn by_replica(group: Group, caps: BucketCaps) -> Vec<f32> {
    let spec = |&(name, len, decay): &(&str, usize, bool)| {
        ParamSpec::new(name, vec![len], Kind::Parameter { decay })
    };
    let values = TENSORS.iter().enumerate().flat_map(|(n, (_, len, _))| (0..*len).map(move |i| start(n, i)));
    let config = Config { shards: Some(SHARDS), caps: Some(caps), ..Config::default() };
    let lamb = optimizer::find("lamb").unwrap();
    let lamb = lamb.build(&lively(lamb)).unwrap();
    let specs = TENSORS.iter().map(spec).collect();
    let mut replica = Replica::new(Arc::new(group), specs, values.collect(), &config, lamb).unwrap();
    for step in 0..STEPS {
        for shard in replica.shards() {
            let gradients: Vec<Vec<f32>> = (0..TENSORS.len())
                .map(|n| {
                    let values = replica.latest(SpanId(n)).iter().enumerate();
                    values.map(|(i, value)| gradient(*value, i, step, shard)).collect()
                })
                .collect();
            pass(&mut replica, 1.0, 1.0, gradients.iter().enumerate().rev()).unwrap();
        }
        replica.step(RATE).unwrap();
    }
    replica.values().unwrap().to_vec()
}

/// Algorithm 2 of You et al. 2020, line by line, in double precision.
fn by_the_paper() -> Vec<f64> {
    let (beta1, beta2, epsilon, lambda) = (0.9f64, 0.999f64, 1e-6, 0.01);
    let mut weights = Vec::new();
    for (n, (_, len, decay)) in TENSORS.iter().enumerate() {
        let mut x: Vec<f64> = (0..*len).map(|i| f64::from(start(n, i))).collect();
        let (mut m, mut v) = (vec![0.0; *len], vec![0.0; *len]);
        let lambda = if *decay { lambda } else { 0.0 };
        for t in 1..=STEPS as i32 {
            let mut update = vec![0.0; *len];
            for i in 0..*len {
                let shards = (0..SHARDS).map(|shard| gradient(x[i], i, t as u64 - 1, shard));
                let g = shards.sum::<f64>() / SHARDS as f64;
                m[i] = beta1 * m[i] + (1.0 - beta1) * g;
                v[i] = beta2 * v[i] + (1.0 - beta2) * g * g;
                let (m_hat, v_hat) = (m[i] / (1.0 - beta1.powi(t)), v[i] / (1.0 - beta2.powi(t)));
                let r = m_hat / (v_hat.sqrt() + epsilon);
                update[i] = r + lambda * x[i];
            }
            let norm = |vector: &[f64]| vector.iter().map(|value| value * value).sum::<f64>().sqrt();
            let (size, length) = (norm(&x), norm(&update));
            let ratio = if size == 0.0 || length == 0.0 { 1.0 } else { size / length };
            x.iter_mut().zip(&update).for_each(|(x, u)| *x -= RATE * ratio * u);
        }
        weights.extend(x);
    }
    weights
}

#[test]
fn fifty_steps_are_those_of_the_paper() {
    let expected = by_the_paper();
    let small = BucketCaps::of_mib(0.0625);
    for weights in threads::spawn(2, |group| by_replica(group, small)).unwrap() {
        let mut start_of_tensor = 0;
        for (name, len, _) in TENSORS {
            let range = start_of_tensor..start_of_tensor + len;
            start_of_tensor = range.end;
            let distance = |a: &f64, b: &f32| (a - f64::from(*b)).abs();
            let pairs = expected[range.clone()].iter().zip(&weights[range]);
            let most = pairs.map(|(a, b)| distance(a, b)).fold(0.0, f64::max);
            assert!(most <= 1e-6, "{name}: {most:e}");
        }
    }
}

#[test]
fn any_number_of_ranks_and_any_buckets_end_in_the_same_bits() {
    let expected = by_replica(Group::alone(), BucketCaps::of_mib(25.0));
    for world in 1..=4 {
        for mib in [0.01, 0.0625, 25.0] {
            for weights in threads::spawn(world, |group| by_replica(group, BucketCaps::of_mib(mib))).unwrap()
            {
                assert!(weights == expected, "{world} ranks, buckets of {mib} MiB");
            }
        }
    }
}
