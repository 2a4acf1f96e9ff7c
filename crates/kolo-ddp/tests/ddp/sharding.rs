//! State that is divided among the workers: the same bits as without, in a part of the memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::checkpoints::{at, saved};
use crate::common::groups::{RATE, SHARDS, choices, config, groups, layout, replica_of, steps};
use crate::common::smooth::Smooth;
use crate::common::{bits, clip, combinations, lively, noise, pass, refusal};
use kolo_comm::{Group, Options, threads};
use kolo_ddp::optimizer::{self, Averaged, GroupSettings, Optimizer, Scope, Settings, Update};
use kolo_ddp::reduction::Reducer;
use kolo_ddp::straggler::Policy;
use kolo_ddp::sync::{JobSetting, SYNCS};
use kolo_ddp::{BLOCK, Config, LossScaling, Replica, Sharding, Statistics, checkpoint};
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

fn new(group: Group, config: &Config, optimizer: impl Optimizer) -> Replica {
    replica_of(group, |i| 1.5 * noise(1, i), config, optimizer).unwrap()
}

#[test]
fn every_optimizer_has_the_bits_of_the_plain_run_and_its_share_of_the_state() {
    let everywhere = [(1, Over::SHM), (2, Over::SHM), (3, Over::TCP), (4, Over::Mixed), (5, Over::SHM)];
    for (number, (choice, of_block)) in choices().into_iter().enumerate() {
        let config = config(groups(&of_block), if number % 2 == 0 { 0.0625 } else { 25.0 });
        let make = || optimizer::named(&choice.name, &choice.settings).unwrap();
        let run = |config: &Config, group: Group| {
            let counted = Arc::new(AtomicUsize::new(0));
            let mut replica = new(group, config, Counted(make(), counted.clone()));
            steps(&mut replica, 0..STEPS);
            (bits(&mut replica), counted.load(Ordering::Relaxed))
        };
        let (expected, whole) = run(&config, Group::alone());
        let arrays = whole / layout().len();
        // A share is as equal as whole blocks, or tensors, allow.
        let largest = if make().scope() == Scope::Tensor { 30_000 } else { BLOCK };
        let redundancy = 1 + number / 3 % 2;
        let config = Config { redundancy, ..sharded(config) };
        for (world, over) in
            everywhere.into_iter().skip(if is_thorough() { 0 } else { number % 3 }).step_by(2)
        {
            let ends = spawn(over, world, &Options::default(), |group| run(&config, group));
            assert!(ends.iter().all(|(bits, _)| *bits == expected), "{choice:?}, {world} ranks");
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
        let mut plain = new(Group::alone(), &Config { shares: None, ..config.clone() }, optimizer());
        steps(&mut plain, 0..STEPS);
        let expected = bits(&mut plain);
        let config = sharded(config.clone());
        // The shares are those of three ranks.
        let worlds = if config.shares.is_some() { 3..4 } else { 2 + number % 2..3 + number % 2 };
        for world in worlds {
            let ends = threads::spawn(world, |group| {
                let mut replica = new(group, &config, optimizer());
                replica.tune_hastily_for_tests();
                steps(&mut replica, 0..STEPS);
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
        let mut replica = new(group, config, optimizer::named("adam", &Settings::default()).unwrap());
        steps(&mut replica, 0..2);
        replica.add_transform(Smooth::default());
        steps(&mut replica, 2..STEPS);
        bits(&mut replica)
    };
    let config = config(Vec::new(), 0.0625);
    let expected = run(&config, Group::alone());
    let ends = threads::spawn(3, |group| run(&sharded(config.clone()), group)).unwrap();
    assert!(ends.iter().all(|end| *end == expected));
}

#[test]
fn a_checkpoint_is_that_of_the_plain_run_and_any_number_of_workers_continues_from_it() {
    const CUT: u64 = 4;
    let plain = || config(Vec::new(), 0.0625);
    for name in ["adamw", "lamb"] {
        let optimizer = || Averaged::new(optimizer::named(name, &Settings::default()).unwrap(), 0.9, true);
        let make = |config: Config| move |group: Group| new(group, &config, optimizer());
        let folder = |workers, config| saved(CUT, workers, make(config), |replica| steps(replica, 0..CUT));
        let mut whole = make(plain())(Group::alone());
        steps(&mut whole, 0..STEPS);
        let expected = (bits(&mut whole), whole.averages().unwrap().unwrap());
        let twice = || Config { redundancy: 2, ..sharded(plain()) };
        let folders = [(1, plain()), (3, sharded(plain())), (4, twice())];
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
        for folder in &folders {
            for (readers, config) in [(1, plain()), (2, sharded(plain())), (5, twice())] {
                let ends = threads::spawn(readers, |group| {
                    let mut replica = make(config.clone())(group);
                    checkpoint::resume(folder.path(), &mut replica).unwrap().unwrap();
                    steps(&mut replica, CUT..STEPS);
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
        let mut replica = new(group, &sharded(config(Vec::new(), 1.0)), optimizer);
        steps(&mut replica, 0..1);
        checkpoint::save(folder.path(), &mut replica, &at(1)).unwrap_err().to_string()
    });
    for error in errors.unwrap() {
        assert!(error.contains("divided among the workers") && error.contains("gather_residuals"), "{error}");
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
    }
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
        let mut replica = new(group, &sharded(config(Vec::new(), 0.0625)), optimizer);
        steps(&mut replica, 0..2);
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
