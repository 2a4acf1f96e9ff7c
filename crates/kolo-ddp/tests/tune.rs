//! Tuned steps: every rank tries the same settings, one of them is kept, and the bits are those of untuned
//! steps.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{noise, replica};
use kolo_comm::env::WorkerEnv;
use kolo_comm::schedule::{ALGORITHMS, Algorithm};
use kolo_comm::{Group, Options, Rank, SHM, TCP, TransportKind, threads};
use kolo_ddp::optimizer::{Settings, named};
use kolo_ddp::straggler::Policy;
use kolo_ddp::{BucketCaps, Config, Kind, ParamSpec, Replica, SpanId, Tuning};

const SHARDS: usize = 6;
/// Elements of the tensors, of which two are cut into slices.
const LENS: [usize; 4] = [70_000, 300, 40_000, 2_000];

fn config(tune: bool) -> Config {
    let caps = Some(BucketCaps { first: 64 << 10, other: 128 << 10 });
    Config { shards: Some(SHARDS), caps, tune, ..Config::default() }
}

/// A step whose gradients are multiples of the values.
fn step(replica: &mut Replica) -> Option<Tuning> {
    let number = replica.steps() as usize;
    for shard in replica.shards() {
        let mut gradients = Vec::new();
        for id in 0..LENS.len() {
            let factor = 0.01 * noise(number, shard + id);
            gradients.push(replica.latest(SpanId(id)).iter().map(|x| x * factor).collect::<Vec<f32>>());
        }
        let mut pass = replica.begin_shard(1.0, 2.0).unwrap();
        for (id, gradient) in gradients.iter().enumerate().rev() {
            pass.ready(SpanId(id), gradient);
        }
        pass.finish().unwrap();
    }
    replica.step(0.01).unwrap().tuning
}

/// Returns the bits after this number of steps, and the result of tuning in each step.
fn train(group: Group, config: &Config, steps: u64, hasty: bool) -> (Vec<u32>, Vec<Option<Tuning>>) {
    let spec = |(n, len): (usize, &usize)| {
        ParamSpec::new(n.to_string(), vec![*len], Kind::Parameter { decay: n == 0 })
    };
    let specs: Vec<ParamSpec> = LENS.iter().enumerate().map(spec).collect();
    let values = (0..LENS.iter().sum()).map(|i| noise(0, i)).collect();
    let adamw = named("adamw", &Settings::default()).unwrap();
    let mut replica = Replica::new(Arc::new(group), specs, values, config, adamw).unwrap();
    if hasty {
        replica.tune_hastily_for_tests();
    }
    let results = (0..steps).map(|_| step(&mut replica)).collect();
    (common::bits(&mut replica), results)
}

fn untuned(steps: u64) -> Vec<u32> {
    train(Group::alone(), &config(false), steps, false).0
}

/// Ranks on nodes of their own, of which the last one has a link with a delay, and each pair of which has
/// several connections.
fn spawn_unequal<R: Send>(transport: &'static TransportKind, work: impl Fn(Group) -> R + Sync) -> Vec<R> {
    const WORLD: usize = 3;
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let master = listener.local_addr().unwrap();
    drop(listener);
    let work = &work;
    let run = |rank: usize| {
        let place = WorkerEnv { rank: Rank(rank), world_size: WORLD, endpoint: master.into() };
        let is_slow = rank == WORLD - 1 && transport == &TCP;
        let delay = Duration::from_millis(if is_slow { 20 } else { 0 });
        let node = (transport == &TCP).then(|| rank.to_string());
        let options =
            Options { transport: Some(transport), node, delay, streams: Some(4), ..Options::default() };
        work(Group::join(&place, &options).unwrap())
    };
    let run = &run;
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..WORLD).map(|rank| scope.spawn(move || run(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn all_ranks_keep_the_same_in_the_same_bits() {
    let steps = 30;
    let expected = untuned(steps);
    for transport in [&SHM, &TCP] {
        let outcomes = spawn_unequal(transport, |group| train(group, &config(true), steps, true));
        let (_, first) = &outcomes[0];
        let kept: Vec<&Tuning> = first.iter().flatten().collect();
        let [tuning] = &kept[..] else { panic!("{transport:?}: {kept:?}") };
        // How many depends on the time of each.
        assert!(tuning.tried.len() > 2, "{tuning:?}");
        for (bits, results) in &outcomes {
            assert!(*bits == expected, "{transport:?}");
            assert_eq!(results, first);
        }
        let tried =
            |what: fn(&kolo_ddp::TunedSetting) -> bool| tuning.tried.iter().any(|trial| what(&trial.setting));
        assert!(tried(|setting| setting.cap_bytes != 128 << 10));
        if transport == &TCP {
            let rates = tuning.link_rates.as_ref().unwrap();
            assert!(rates[2] < rates[0] && rates[2] < rates[1], "{rates:?}");
            // The rank with the slow link adds least.
            let ownership = tuning.tried.iter().find_map(|trial| trial.setting.ownership.clone()).unwrap();
            assert!(ownership[2] < ownership[0] && ownership[2] < ownership[1], "{ownership:?}");
        }
    }
}

/// Without haste settings are measured once the first steps have been profiled.
#[test]
fn something_is_kept_after_some_steps() {
    let steps = 200;
    let expected = untuned(steps);
    for (bits, results) in threads::spawn(2, |group| train(group, &config(true), steps, false)).unwrap() {
        assert!(bits == expected);
        assert!(results[..6].iter().all(Option::is_none));
        let tuning = results.iter().flatten().next().expect("something is kept");
        assert!(tuning.steps >= 10 && tuning.seconds > 0.0, "{tuning:?}");
        assert!(tuning.kept == tuning.begun_with || tuning.gain() > 0.0, "{tuning}");
        assert_eq!(tuning.tried[0].setting, tuning.begun_with);
    }
}

/// Shards move to other ranks while settings are tried.
#[test]
fn moved_shards_begin_it_anew_in_the_same_bits() {
    let steps = 60;
    let expected = untuned(steps);
    let config = Config { straggler: Policy::Rebalance, ..config(true) };
    let outcomes = threads::spawn(3, |group| {
        let slow = group.rank() == Rank(1);
        let spec = |(n, len): (usize, &usize)| {
            ParamSpec::new(n.to_string(), vec![*len], Kind::Parameter { decay: n == 0 })
        };
        let specs: Vec<ParamSpec> = LENS.iter().enumerate().map(spec).collect();
        let values = (0..LENS.iter().sum()).map(|i| noise(0, i)).collect();
        let adamw = named("adamw", &Settings::default()).unwrap();
        let mut replica = Replica::new(Arc::new(group), specs, values, &config, adamw).unwrap();
        replica.tune_hastily_for_tests();
        for number in 0..steps {
            // In the first steps all of its shards take long.
            let pause = Duration::from_millis(if slow && number < steps / 2 { 30 } else { 0 });
            std::thread::sleep(pause * replica.shards().len() as u32);
            step(&mut replica);
        }
        common::bits(&mut replica)
    });
    assert!(outcomes.unwrap().iter().all(|bits| *bits == expected));
}

fn algorithm(name: &str) -> Option<&'static Algorithm> {
    ALGORITHMS.iter().find(|algorithm| algorithm.name == name)
}

#[test]
fn what_would_change_bits_is_refused() {
    let refused = |config: &Config, name: Option<&str>| {
        let results = threads::spawn(2, |group| {
            group.use_algorithm(name.and_then(algorithm)).unwrap();
            common::refusal(group, config)
        });
        results.unwrap().remove(0)
    };
    for sync in ["delayed:1", "local:H=2", "diloco:H=2", "stale:1"] {
        let config = Config { sync: sync.parse().unwrap(), ..config(true) };
        let text = refused(&config, None);
        assert!(text.contains("`Config::tune`") && text.contains(sync.split(':').next().unwrap()), "{text}");
    }
    let text = refused(&config(true), Some("ring"));
    assert!(text.contains("tuning") && text.contains("ring"), "{text}");
    assert_eq!(refused(&config(true), Some("direct")), "");
}

/// One worker has nothing to tune, and does not try.
#[test]
fn a_worker_alone_goes_on_as_it_is() {
    let mut replica = replica(Arc::new(Group::alone()), &config(true), "sgd", Settings::default());
    for number in 0..20 {
        for shard in replica.shards() {
            common::run_shard(&mut replica, &[number * SHARDS + shard]);
        }
        assert_eq!(replica.step(0.01).unwrap().tuning, None);
    }
}
