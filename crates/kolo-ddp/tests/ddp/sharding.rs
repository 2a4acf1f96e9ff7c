//! State that is divided among the workers: the same bits as without, in a part of the memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::checkpoints::{at, saved};
use crate::common::groups::{RATE, SHARDS, alone, choices, config, groups, layout, replica_with, train};
use crate::common::smooth::Smooth;
use crate::common::{bits, clip, combinations, lively, pass, refusal};
use kolo_comm::{Group, Options, threads};
use kolo_ddp::optimizer::{self, Averaged, GroupSettings, Optimizer, Scope, Settings, Update};
use kolo_ddp::reduction::{self, Reducer};
use kolo_ddp::straggler::Policy;
use kolo_ddp::sync::{JobSetting, SYNCS};
use kolo_ddp::transform::{BlockSquares, Decision, GradientTransform};
use kolo_ddp::{
    BLOCK, BucketCaps, Config, IN_FLIGHT, Kind, LossScaling, ParamSpec, Replica, Sharding, Slice, Statistics,
    checkpoint,
};
use kolo_testing::{Over, is_thorough, spawn};

const STEPS: u64 = 8;

/// An optimizer that reports how much state it has.
struct Counted(Box<dyn Optimizer>, Arc<AtomicUsize>);

impl Optimizer for Counted {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn settings(&self) -> Settings {
        self.0.settings()
    }

    fn scope(&self) -> Scope {
        self.0.scope()
    }

    fn set_groups(&mut self, groups: &[GroupSettings]) -> Result<(), optimizer::GroupError> {
        self.0.set_groups(groups)
    }

    fn init(&mut self, layout: &optimizer::Layout) {
        self.0.init(layout);
    }

    fn begin(&mut self, step: u64, learning_rate: f64) {
        self.1.store(self.0.state().iter().map(|(_, state)| state.len()).sum(), Ordering::Relaxed);
        self.0.begin(step, learning_rate);
    }

    fn update(&mut self, update: Update<'_>) {
        self.0.update(update);
    }

    fn state(&mut self) -> Vec<(&'static str, &mut [f32])> {
        self.0.state()
    }
}

fn sharded(config: Config) -> Config {
    Config { sharding: Sharding::Optimizer, ..config }
}

/// All kinds of division. Values have one owner, or all workers have one copy.
fn all_divisions(config: &Config) -> Vec<Config> {
    let parameters = Config { sharding: Sharding::Parameters, ..config.clone() };
    let host = Config { sharding: Sharding::Host, ..config.clone() };
    let of_one = [parameters, host].into_iter().filter(|config| config.redundancy == 1);
    divisions(config).into_iter().chain(of_one).collect()
}

/// The kinds of division that take a second owner.
fn divisions(config: &Config) -> [Config; 2] {
    let gradients = Config { sharding: Sharding::Gradients, ..config.clone() };
    [sharded(config.clone()), gradients]
}

#[test]
fn every_optimizer_has_the_bits_of_the_plain_run_and_its_share_of_the_state() {
    let everywhere = [(1, Over::SHM), (2, Over::SHM), (3, Over::TCP), (4, Over::Mixed), (5, Over::SHM)];
    for (number, (choice, of_block)) in choices().into_iter().enumerate() {
        let config = config(groups(&of_block), if number % 2 == 0 { 0.0625 } else { 25.0 });
        let make = || optimizer::named(&choice.name, &choice.settings).unwrap();
        let run = |config: &Config, group: Group| {
            let counted = Arc::new(AtomicUsize::new(0));
            let mut replica = replica_with(group, config, Counted(make(), counted.clone()));
            train(&mut replica, STEPS);
            (bits(&mut replica), counted.load(Ordering::Relaxed))
        };
        let (expected, whole) = run(&config, Group::alone());
        let arrays = whole / layout().len();
        // A share is as equal as whole blocks, or tensors, allow.
        let largest = if make().scope() == Scope::Tensor { 30_000 } else { BLOCK };
        let redundancy = 1 + number / 3 % 2;
        let mut divisions = all_divisions(&Config { redundancy, ..config });
        // `Counted` has no rule of its own (`host_memory`).
        divisions.retain(|config| config.sharding != Sharding::Host);
        let chosen = everywhere.into_iter().skip(if is_thorough() { 0 } else { number % 3 }).step_by(2);
        for ((world, over), config) in
            chosen.flat_map(|place| divisions.iter().map(move |config| (place, config)))
        {
            let ends = spawn(over, world, &Options::default(), |group| run(config, group));
            let sharding = config.sharding.name();
            assert!(ends.iter().all(|(bits, _)| *bits == expected), "{choice:?}, {sharding}, {world} ranks");
            let held: Vec<usize> = ends.iter().map(|(_, held)| *held).collect();
            let owners = redundancy.min(world);
            assert_eq!(held.iter().sum::<usize>(), owners * whole, "{choice:?}: {held:?}");
            let most = arrays * (layout().len().div_ceil(world) + largest) * owners;
            assert!(held.iter().all(|held| *held <= most), "{choice:?}: {held:?}, at most {most}");
        }
    }
}

type Make = Box<dyn Fn() -> Box<dyn Optimizer> + Sync>;

/// All else that looks at a gradient, or keeps something from step to step.
#[test]
fn reductions_transforms_and_scaled_losses_have_the_bits_of_the_plain_run() {
    let scaling = LossScaling { initial: 64.0, growth_interval: 3, ..LossScaling::default() };
    let base = || config(Vec::new(), 0.0625);
    let of_reduction = |reduction: Arc<dyn Reducer>| Config { reduction, ..base() };
    let mut cases: Vec<(Config, Make)> = Vec::new();
    for (entry, settings, reduction) in combinations().into_iter().filter(|(.., r)| r.name() != "sum") {
        let optimizer = move || entry.build(&settings).unwrap();
        cases.push((of_reduction(reduction), Box::new(optimizer)));
    }
    let names = ["adamw", "lamb"];
    for (number, config) in [
        Config { transforms: clip(0.01), ..base() },
        Config { noise_scale: true, ..base() },
        Config { loss_scaling: Some(scaling), ..base() },
        Config { forward_overlap: false, verify_every: 2, ..base() },
        Config { tune: true, ..base() },
        Config { shares: Some(vec![0.0, 1.0, 3.0]), ..base() },
        Config { straggler: Policy::Rebalance, ..base() },
    ]
    .into_iter()
    .enumerate()
    {
        let entry = optimizer::find(names[number % 2]).unwrap();
        cases.push((config, Box::new(move || entry.build(&lively(entry)).unwrap())));
    }
    for (number, (config, optimizer)) in cases.iter().enumerate() {
        let expected = alone(&Config { shares: None, ..config.clone() }, optimizer(), STEPS);
        // The shares are those of three ranks.
        let world = if config.shares.is_some() { 3 } else { 2 + number % 2 };
        let takes = |config: &Config| config.sharding.exclusion(&JobSetting::of(config)).is_none();
        for config in all_divisions(config).into_iter().filter(takes) {
            let ends = threads::spawn(world, |group| {
                let mut replica = replica_with(group, &config, optimizer());
                replica.tune_hastily_for_tests();
                train(&mut replica, STEPS);
                bits(&mut replica)
            });
            let is_same = ends.unwrap().iter().all(|end| *end == expected);
            assert!(is_same, "{world} ranks, {config:?}");
        }
    }
}

/// A program's own transform is added when the replica exists already, and sees the whole gradient from then
/// on.
#[test]
fn an_own_transform_sees_the_whole_gradient() {
    let run = |config: &Config, group: Group| {
        let mut replica =
            replica_with(group, config, optimizer::named("adam", &Settings::default()).unwrap());
        train(&mut replica, 2);
        replica.add_transform(Smooth::default());
        train(&mut replica, STEPS);
        bits(&mut replica)
    };
    let config = config(Vec::new(), 0.0625);
    let expected = run(&config, Group::alone());
    let ends = threads::spawn(3, |group| run(&sharded(config.clone()), group)).unwrap();
    assert!(ends.iter().all(|end| *end == expected));
}

/// A program's own transform with partial sums: it divides the gradient by its norm.
struct Unit(BlockSquares);

impl GradientTransform for Unit {
    fn init(&mut self, layout: &optimizer::Layout) {
        self.0 = BlockSquares::new(layout);
    }

    fn see(&mut self, slice: &Slice, gradient: &[f32]) {
        self.0.see(slice, gradient);
    }

    fn partial_sums(&mut self) -> Option<&mut [f64]> {
        Some(self.0.sums())
    }

    fn decide(&mut self, scale: f64) -> Decision {
        let norm = scale * self.0.sum().sqrt();
        Decision { factor: 1.0 / norm, norm: Some(norm) }
    }
}

#[test]
fn an_own_transform_sees_divided_gradients_by_partial_sums() {
    let make = |config: &Config, group: Group| {
        replica_with(group, config, optimizer::named("adam", &Settings::default()).unwrap())
    };
    let run = |config: &Config, group: Group| {
        let mut replica = make(config, group);
        replica.add_transform(Unit(BlockSquares::default()));
        train(&mut replica, STEPS);
        bits(&mut replica)
    };
    let config = config(Vec::new(), 0.0625);
    let expected = run(&config, Group::alone());
    for redundancy in [1, 2] {
        let [_, config] = divisions(&Config { redundancy, ..config.clone() });
        let ends = threads::spawn(3, |group| run(&config, group)).unwrap();
        assert!(ends.iter().all(|end| *end == expected), "{redundancy} owners");
    }
    let [_, config] = divisions(&config);
    let mut replica = make(&config, Group::alone());
    replica.add_transform(Smooth::default());
    let error = replica.values().unwrap_err().to_string();
    assert!(error.contains("Smooth") && error.contains("implement `partial_sums`, or take"), "{error}");
}

/// Most blocks of gradients that each of `world` workers has at once in a step of a model of 64 blocks, in
/// buckets of one block.
fn peaks(world: usize, shards: usize, config: &Config) -> Vec<Option<usize>> {
    const TENSOR: usize = 16 * BLOCK;
    let config = Config { shards: Some(shards), caps: Some(BucketCaps::of_mib(0.0625)), ..config.clone() };
    let ends = threads::spawn(world, |group| {
        let spec = |name| ParamSpec::new(name, vec![TENSOR], Kind::Parameter { decay: true });
        let (specs, values) = (["a", "b", "c", "d"].map(spec).to_vec(), vec![0.5; 4 * TENSOR]);
        let adam = optimizer::named("adam", &Settings::default()).unwrap();
        let mut replica = Replica::new(Arc::new(group), specs, values, &config, adam).unwrap();
        let mut step = || {
            for _ in replica.shards() {
                let gradients = (0..4).rev().map(|tensor| (tensor, vec![0.25; TENSOR]));
                pass(&mut replica, 1.0, 1.0, gradients).unwrap();
            }
            replica.step(RATE).unwrap().traffic.peak_bytes
        };
        let peak = (0..STEPS).map(|_| step()).max().unwrap();
        peak.map(|bytes| (bytes as usize).div_ceil(4 * BLOCK))
    });
    ends.unwrap()
}

/// Of one shard a worker has its part of the sum, and three buckets in flight. Of two it has all buckets
/// until the pass of the second, whose gradients lie beside those of the first.
#[test]
fn divided_gradients_take_their_part_of_the_memory() {
    let [optimizer, gradients] = divisions(&Config::default());
    for (world, redundancy) in [(2, 1), (3, 1), (4, 1), (4, 2)] {
        let config = Config { redundancy, ..gradients.clone() };
        let one_each = peaks(world, world, &config);
        let part = 64_usize.div_ceil(world) * redundancy;
        for peak in one_each.iter().flatten() {
            assert!((1..=part + IN_FLIGHT + 1).contains(peak), "{world} workers: {one_each:?}");
        }
        assert!(one_each.iter().flatten().sum::<usize>() >= 64 * redundancy, "the parts are the whole");
        let two_each = peaks(world, 2 * world, &config);
        assert!(two_each.iter().flatten().all(|peak| (128..=128 + part).contains(peak)), "{two_each:?}");
    }
    // Where each worker has all gradients, nothing is counted.
    let both = Config { redundancy: 2, ..gradients };
    for (world, config) in [(1, &Config::default()), (3, &optimizer), (2, &both)] {
        assert!(peaks(world, world, config).iter().all(Option::is_none));
    }
}

#[test]
fn a_checkpoint_is_that_of_the_plain_run_and_any_number_of_workers_continues_from_it() {
    const CUT: u64 = 4;
    let plain = || config(Vec::new(), 0.0625);
    for name in ["adamw", "lamb"] {
        let optimizer = || Averaged::new(optimizer::named(name, &Settings::default()).unwrap(), 0.9, true);
        let make = |config: Config| move |group: Group| replica_with(group, &config, optimizer());
        let folder = |workers, config| saved(CUT, workers, make(config), |replica| train(replica, CUT));
        let mut whole = make(plain())(Group::alone());
        train(&mut whole, STEPS);
        let expected = (bits(&mut whole), whole.averages().unwrap().unwrap());
        let twice = || Config { redundancy: 2, ..sharded(plain()) };
        let gradients = || Config { sharding: Sharding::Gradients, ..plain() };
        let parameters = || Config { sharding: Sharding::Parameters, ..plain() };
        let host = || Config { sharding: Sharding::Host, ..plain() };
        let folders = [
            (1, plain()),
            (3, sharded(plain())),
            (3, gradients()),
            (4, twice()),
            (3, parameters()),
            (2, host()),
        ];
        let folders = folders.map(|(workers, config)| folder(workers, config));
        let content = |folder: &tempfile::TempDir| {
            let reader = checkpoint::Reader::open(&checkpoint::path(folder.path(), CUT)).unwrap();
            reader
                .tensors(checkpoint::Set::Optimizer)
                .into_iter()
                .map(|(name, ..)| name.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(content(&folders[0]), content(&folders[1]));
        assert_eq!(content(&folders[0]), content(&folders[5]));
        for folder in &folders {
            let all = [
                (1, plain()),
                (2, sharded(plain())),
                (3, gradients()),
                (5, twice()),
                (2, parameters()),
                (3, host()),
            ];
            for (readers, config) in all {
                let ends = threads::spawn(readers, |group| {
                    let mut replica = make(config.clone())(group);
                    checkpoint::resume(folder.path(), &mut replica).unwrap().unwrap();
                    train(&mut replica, STEPS);
                    (bits(&mut replica), replica.averages().unwrap().unwrap())
                });
                assert!(ends.unwrap().iter().all(|end| *end == expected), "{name}, {readers} readers");
            }
        }
    }
}

#[test]
fn a_checkpoint_of_a_part_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let errors = threads::spawn(2, |group| {
        let optimizer = optimizer::named("adam", &Settings::default()).unwrap();
        let mut replica = replica_with(group, &sharded(config(Vec::new(), 1.0)), optimizer);
        train(&mut replica, 1);
        checkpoint::save(folder.path(), &mut replica, &at(1)).unwrap_err().to_string()
    });
    for error in errors.unwrap() {
        assert!(error.contains("divided among the workers") && error.contains("save_together"), "{error}");
    }
}

#[test]
fn what_it_excludes_is_refused_in_one_sentence() {
    let base = || sharded(Config { shards: Some(4), ..Config::default() });
    let mut refused = vec![
        (Config { elastic: true, ..base() }, "set `Config::redundancy` to 2"),
        (Config { statistics: Statistics::Local, ..base() }, "leave `Config::statistics` at `PerShard`"),
    ];
    for entry in &SYNCS[1..] {
        let sync = entry.name.parse().unwrap();
        refused.push((Config { sync, ..base() }, "leave `Config::sync` at `every-step`"));
    }
    for (config, remedy) in refused {
        let settings = JobSetting::of(&config);
        let why = config.sharding.exclusion(&settings).unwrap().why;
        let error = refusal(Group::alone(), &config);
        assert!(error.starts_with(&format!("sharding `optimizer` {why}; ")), "{error}");
        assert!(error.contains(remedy), "{error}");
        let [_, gradients] = divisions(&config);
        let of_gradients = refusal(Group::alone(), &gradients);
        assert_eq!(of_gradients, error.replace("sharding `optimizer`", "sharding `gradients`"));
    }
    let bf16 = Config { reduction: reduction::parse("bf16").unwrap(), ..base() };
    let [optimizer, gradients] = divisions(&bf16);
    assert_eq!(refusal(Group::alone(), &optimizer), "");
    let error = refusal(Group::alone(), &gradients);
    assert!(error.starts_with("sharding `gradients` sends each worker its part of the exact sum"), "{error}");
    assert!(error.ends_with("leave `Config::reduction` at `sum`"), "{error}");
    let errors = threads::spawn(2, |group| {
        let group = if group.rank().0 == 1 { group.into_server() } else { group };
        refusal(group, &base())
    });
    for error in errors.unwrap() {
        assert!(error.contains("has each worker add and step a part already; start workers only"), "{error}");
    }
    assert_eq!(refusal(Group::alone(), &base()), "");
}

#[test]
fn ranks_that_divide_differently_do_not_train_together() {
    let errors = threads::spawn(2, |group| {
        let plain = Config { shards: Some(SHARDS), ..Config::default() };
        let config = if group.rank().0 == 0 { sharded(plain) } else { plain };
        refusal(group, &config)
    });
    for error in errors.unwrap() {
        assert!(error.starts_with("sharding is optimizer on rank 0 and nothing on rank 1"), "{error}");
    }
}

/// Rank 1 leaves when its own part is on the way; the other's error names it, now and later.
#[test]
fn the_death_of_an_owner_is_named() {
    let ends = threads::spawn(2, |group| {
        let rank = group.rank().0;
        let optimizer = optimizer::named("adam", &Settings::default()).unwrap();
        let mut replica = replica_with(group, &sharded(config(Vec::new(), 0.0625)), optimizer);
        train(&mut replica, 2);
        for _ in replica.shards() {
            pass(&mut replica, 1.0, 1.0, [(0, vec![0.5; 1200])]).unwrap();
        }
        if rank == 1 {
            replica.reduce_for_tests(RATE).unwrap();
            return String::new();
        }
        let error = replica.step(RATE).err().or_else(|| replica.values().err()).unwrap().to_string();
        assert!(replica.values().is_err(), "half of them are new");
        error
    });
    let error = &ends.unwrap()[0];
    assert!(error.contains("rank 1"), "{error}");
}
