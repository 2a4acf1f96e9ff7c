//! Networks that take turns: each is stepped as if it had an optimizer to itself, in the same bits on any number
//! of ranks, after a checkpoint and after a change of ranks.

use std::ops::Range;
use std::sync::Arc;

use crate::common::checkpoints::cut_and_resume;
use crate::common::{bits, noise, pass, refusal};
use kolo_comm::{Group, threads};
use kolo_ddp::optimizer::{self, OPTIMIZERS, Settings};
use kolo_ddp::{
    Config, Kind, LossScaling, ParamGroup, ParamSpec, Replica, Selector, SpanId, Warning, reduction,
};

const LEN: usize = 40;
const SHARDS: usize = 4;
/// Two steps of the critic, then one of the maker.
const TURNS: [usize; 3] = [0, 0, 1];
const NAMES: [&str; 2] = ["critic.weight", "maker.weight"];

fn turns() -> Vec<Vec<Selector>> {
    TURNS.map(|network| vec![Selector::from(["critic.*", "maker.*"][network])]).to_vec()
}

fn spec(network: usize) -> ParamSpec {
    ParamSpec::new(NAMES[network], vec![5, LEN / 5], Kind::Parameter { decay: true })
}

fn first(network: usize) -> Vec<f32> {
    (0..LEN).map(|i| noise(network, i)).collect()
}

fn config() -> Config {
    let groups = vec![ParamGroup::of(["maker.*"]).with_lr_scale(0.5)];
    Config { shards: Some(SHARDS), turns: turns(), groups, ..Config::default() }
}

fn both(group: Group, optimizer: &str, settings: Settings, config: &Config) -> Replica {
    let optimizer = optimizer::named(optimizer, &settings).unwrap();
    let specs = vec![spec(0), spec(1)];
    Replica::new(Arc::new(group), specs, [first(0), first(1)].concat(), config, optimizer).unwrap()
}

/// Gradient of ½(θ − target)², whose target differs by network, shard and step.
fn gradient(network: usize, values: &[f32], step: u64, shard: usize) -> Vec<f32> {
    let target = |i| noise(1 + network + 3 * shard + 7 * step as usize, i);
    values.iter().enumerate().map(|(i, value)| value - target(i)).collect()
}

fn rate(step: u64) -> f64 {
    0.02 + 0.001 * step as f64
}

/// Runs these steps. The critic has a gradient in the maker's turn, too, if it is `seen`: it changes nothing.
fn steps(replica: &mut Replica, steps: Range<u64>, seen: bool) {
    for step in steps {
        let turn = TURNS[step as usize % TURNS.len()];
        for shard in replica.shards() {
            let networks = [0, 1].into_iter().filter(|network| *network == turn || (seen && *network == 0));
            let values: Vec<_> =
                networks.map(|network| (network, replica.latest(SpanId(network)).to_vec())).collect();
            let gradients =
                values.iter().map(|(network, values)| (*network, gradient(*network, values, step, shard)));
            pass(replica, 1.0, 1.0, gradients.collect::<Vec<_>>()).unwrap();
        }
        let report = replica.step(rate(step)).unwrap();
        let unused = |warning: &Warning| matches!(warning, Warning::UnusedParameter { .. });
        assert!(!report.warnings.iter().any(unused), "{:?}", report.warnings);
    }
}

/// The bits of one network that has a job and an optimizer to itself, after its turns among `steps`.
fn alone(network: usize, optimizer: &str, settings: &Settings, steps: u64) -> Vec<u32> {
    let config = Config { shards: Some(SHARDS), ..Config::default() };
    let optimizer = optimizer::named(optimizer, settings).unwrap();
    let mut replica =
        Replica::new(Arc::new(Group::alone()), vec![spec(network)], first(network), &config, optimizer)
            .unwrap();
    for step in (0..steps).filter(|step| TURNS[*step as usize % TURNS.len()] == network) {
        for shard in 0..SHARDS {
            let values = replica.latest(SpanId(0)).to_vec();
            pass(&mut replica, 1.0, 1.0, [(0, gradient(network, &values, step, shard))]).unwrap();
        }
        replica.step(rate(step) * if network == 1 { 0.5 } else { 1.0 }).unwrap();
    }
    bits(&mut replica)
}

#[test]
fn each_network_is_stepped_as_by_an_optimizer_of_its_own() {
    for entry in OPTIMIZERS {
        let settings = crate::common::lively(entry);
        let expected = [0, 1].map(|network| alone(network, entry.name, &settings, 11)).concat();
        for (world, seen) in [(1, false), (1, true), (2, true), (3, false)] {
            let found = threads::spawn(world, |group| {
                let mut replica = both(group, entry.name, settings.clone(), &config());
                steps(&mut replica, 0..11, seen);
                bits(&mut replica)
            });
            assert!(found.unwrap().iter().all(|bits| *bits == expected), "{}, {world} ranks", entry.name);
        }
    }
}

/// Adam's equations (Kingma & Ba 2015, algorithm 1) in double precision, one for each network.
#[test]
fn the_values_are_those_of_the_equations() {
    let mut replica = both(Group::alone(), "adam", Settings::default().with("beta1", 0.5), &config());
    steps(&mut replica, 0..20, true);
    for network in [0, 1] {
        let mut values: Vec<f64> = first(network).into_iter().map(f64::from).collect();
        let (mut m, mut v, mut t) = (vec![0.0; LEN], vec![0.0; LEN], 0);
        for step in (0..20).filter(|step| TURNS[*step as usize % 3] == network) {
            t += 1;
            let now: Vec<f32> = values.iter().map(|value| *value as f32).collect();
            let shards: Vec<Vec<f32>> =
                (0..SHARDS).map(|shard| gradient(network, &now, step, shard)).collect();
            for i in 0..LEN {
                let g = shards.iter().map(|shard| f64::from(shard[i])).sum::<f64>() / SHARDS as f64;
                m[i] = 0.5 * m[i] + 0.5 * g;
                v[i] = 0.999 * v[i] + 0.001 * g * g;
                let (m, v) = (m[i] / (1.0 - 0.5f64.powi(t)), v[i] / (1.0 - 0.999f64.powi(t)));
                values[i] -= rate(step) * if network == 1 { 0.5 } else { 1.0 } * m / (v.sqrt() + 1e-8);
            }
        }
        for (found, expected) in replica.latest(SpanId(network)).iter().zip(values) {
            assert!((f64::from(*found) - expected).abs() < 1e-5, "{}: {found} {expected}", NAMES[network]);
        }
    }
}

#[test]
fn a_checkpoint_and_other_ranks_continue_in_the_same_bits() {
    let config = Config { elastic: true, ..config() };
    let new = |group: Group| both(group, "adamw", Settings::default(), &config);
    let mut expected = new(Group::alone());
    steps(&mut expected, 0..8, false);
    let expected = bits(&mut expected);
    for cut in [1, 2, 3] {
        let resumed = cut_and_resume(
            cut,
            [2, 3],
            new,
            |replica| steps(replica, 0..cut, false),
            |replica| {
                steps(replica, cut..5, false);
                replica.regroup(Arc::new(Group::alone())).unwrap();
                steps(replica, 5..8, false);
                bits(replica)
            },
        );
        assert!(resumed.iter().all(|bits| *bits == expected), "after {cut} steps");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let words = |config: &Config| refusal(Group::alone(), config);
    let turns = |turns: &[&str]| turns.iter().map(|turn| vec![Selector::from(*turn)]).collect::<Vec<_>>();
    let with = |given: &[&str]| Config { turns: turns(given), ..Config::default() };
    assert!(words(&with(&["first"])).contains("`shared` is in no turn"), "{}", words(&with(&["first"])));
    let scaled = Config { loss_scaling: Some(LossScaling::default()), ..with(&["*"]) };
    assert!(words(&scaled).contains("without `Config::loss_scaling`"), "{}", words(&scaled));
    let kept = Config { reduction: reduction::parse("ef-sign").unwrap(), ..with(&["*"]) };
    assert!(words(&kept).contains("reduction ef-sign keeps a part of each gradient"), "{}", words(&kept));
    let errors = threads::spawn(2, |group| {
        let config = with(if group.rank().0 == 0 { &["*"] } else { &["*", "*"] });
        refusal(group, &config)
    });
    for error in errors.unwrap() {
        assert!(error.contains("turns is * on rank 0 and *; * on rank 1"), "{error}");
    }
}
