//! The GAN of `examples/`: two networks that take turns in one job, which is exact and elastic.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{Device, Gradients, Tensor};
use kolo::{Config, Ddp, Group, Settings, optimizer};
use std::collections::HashMap;

use super::own_program::example;
use super::program::{chaos, succeed};

#[allow(dead_code, reason = "its `main` is that of the program")]
#[path = "../../../../examples/gan.rs"]
mod program;

use program::Gan;

const SHARDS: usize = 4;

/// Adam (Kingma & Ba 2015, algorithm 1) with Burn's tensors, on the mean over the shards. A parameter without
/// gradient is another network's: it stays as it is, and so do its moments and its number of steps.
#[derive(Default)]
struct Adam {
    gradients: Vec<Gradients>,
    rate: f64,
    moments: HashMap<ParamId, (Tensor<1>, Tensor<1>, i32)>,
}

impl ModuleMapper for Adam {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let id = param.id;
        param.map(|tensor| {
            let gradients: Vec<Tensor<D>> =
                self.gradients.iter().filter_map(|gradients| tensor.grad(gradients)).collect();
            let Some(sum) = gradients.into_iter().reduce(|sum, gradient| sum + gradient) else {
                return tensor;
            };
            let g = (sum / SHARDS as f32).flatten::<1>(0, D - 1);
            let first = || (g.zeros_like(), g.zeros_like(), 0);
            let (m, v, t) = self.moments.remove(&id).unwrap_or_else(first);
            let (m, v, t) = (m * 0.5 + g.clone() * 0.5, v * 0.999 + g.clone() * g * 0.001, t + 1);
            let (mean, square) = (m.clone() / (1.0 - 0.5f64.powi(t)), v.clone() / (1.0 - 0.999f64.powi(t)));
            self.moments.insert(id, (m, v, t));
            let step = (mean / (square.sqrt() + 1e-8) * self.rate).into_data();
            let shape = tensor.dims();
            let step = Tensor::<1>::from_data(step, &tensor.device()).reshape(shape);
            // A leaf of the next step's graph.
            Tensor::from_data((tensor.detach() - step).into_data(), &Device::flex().autodiff()).require_grad()
        })
    }
}

/// The values of all parameters, one after another.
#[derive(Default)]
struct Values(Vec<f32>);

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.extend(param.val().into_data().iter::<f32>());
    }
}

fn values(model: &Gan) -> Vec<f32> {
    let mut values = Values::default();
    model.visit(&mut values);
    values.0
}

/// The same loop without Kolo, in one process, with an optimizer for each network.
#[test]
fn the_weights_are_those_of_a_loop_without_kolo() {
    let device = Device::flex().autodiff();
    device.seed(0);
    let first = Gan::new(&device);
    let rate = |step: u64| if step.is_multiple_of(2) { 1e-3 } else { 5e-4 };
    let (mut plain, mut adam) = (first.clone(), Adam::default());
    for step in 0..30 {
        let losses = (0..SHARDS).map(|shard| plain.loss(step, shard, &device).into_mean());
        adam.gradients = losses.map(|loss| loss.backward()).collect();
        adam.rate = rate(step);
        plain = plain.map(&mut adam);
    }

    let turns = vec![vec!["critic.*".into()], vec!["generator.*".into()]];
    let config = Config { shards: Some(SHARDS), turns, ..Config::default() };
    let own = optimizer::named("adam", &Settings::default().with("beta1", 0.5)).unwrap();
    let before = values(&first);
    let mut ddp = Ddp::new(Group::alone(), first, &config, own).unwrap();
    for step in 0..30 {
        for shard in ddp.shards() {
            let loss = ddp.model().loss(step, shard, &device);
            ddp.backward(loss).unwrap();
        }
        ddp.step(rate(step)).unwrap();
    }
    let (expected, found) = (values(&plain), values(ddp.model()));
    let distance = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(distance(&before, &expected) > 0.005, "they have moved");
    assert!(distance(&found, &expected) < 2e-5, "{}", distance(&found, &expected));
}

#[test]
fn any_number_of_workers_prints_one_hash() {
    let folder = tempfile::tempdir().unwrap();
    let program = example("gan");
    let run = |workers: &str| {
        let output =
            succeed(folder.path(), &["launch", "--nproc", workers, "--", program.to_str().unwrap(), "41"]);
        let hash =
            output.lines().find_map(|line| line.split_once("weights ")).map(|(_, hash)| hash.to_owned());
        hash.unwrap_or_else(|| panic!("{output}"))
    };
    let alone = run("1");
    assert_eq!(alone.len(), 64, "{alone}");
    assert_eq!(["2", "3"].map(run), [alone.clone(), alone]);
}

#[test]
#[ignore = "slow: bash .ci/slow runs it"]
fn no_death_changes_a_bit() {
    let folder = tempfile::tempdir().unwrap();
    let program = example("gan");
    let seeds = ["--seeds", "2", "--seed", "7", "--nproc", "3", "--"];
    let (told, report) = chaos(folder.path(), &[&seeds[..], &[program.to_str().unwrap(), "600"]].concat());
    assert!(told.contains("600 steps") && told.contains("2 runs: 0 lost something, 0 failed"), "{told}");
    let runs = report["runs"].as_array().unwrap();
    assert!(runs.iter().any(|run| run["generations"].as_u64().unwrap() > 1), "{told}");
}

/// Exactness alone could be that of a wrong loop.
#[test]
fn it_learns() {
    let folder = tempfile::tempdir().unwrap();
    let output =
        std::process::Command::new(example("gan")).arg("1500").current_dir(folder.path()).output().unwrap();
    let words = String::from_utf8_lossy(&output.stdout);
    let hits = words.lines().find_map(|line| line.strip_prefix("points near each distribution: "));
    let hits: [usize; 8] = serde_json::from_str(hits.unwrap_or_else(|| panic!("{words}"))).unwrap();
    assert!(
        hits.iter().filter(|hits| **hits >= 25).count() >= 4 && hits.iter().sum::<usize>() >= 500,
        "{words}"
    );
}
