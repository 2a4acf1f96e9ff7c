//! Values that are not finite, in every way to synchronize and with every reduction. One such element in one
//! contribution of one rank in one step ends the job with the same message on all ranks, before a parameter
//! changes. An update that overflows ends it, too, before its values can be used.

use std::sync::Arc;

use crate::common::checkpoints::at;
use crate::common::{NAMES, WIDTH, backward, clip, combinations, lively, noise, pass, sgd, specs};
use kolo_comm::{Group, threads};
use kolo_ddp::checkpoint;
use kolo_ddp::optimizer::{self, OPTIMIZERS};
use kolo_ddp::table::Choice;
use kolo_ddp::{Config, Error, Kind, ParamSpec, Replica, Sharding, SpanId, Statistics, reduction};

const SHARDS: usize = 4;
const STEPS: u64 = 12;
/// A step after which the order of buckets is final, in the middle of a round of islands.
const BAD_STEP: u64 = 9;
const BAD_SHARD: usize = 2;

/// A kind of training: its settings, and the numbers of workers and servers.
struct Way {
    name: String,
    config: Config,
    optimizer: Choice,
    workers: usize,
    servers: usize,
}

impl Way {
    fn new(name: &str, workers: usize, config: Config) -> Self {
        let optimizer = Choice::new("sgd");
        let config = Config { shards: Some(SHARDS), ..config };
        Way { name: name.into(), config, optimizer, workers, servers: 0 }
    }

    fn of_sync(sync: &str, workers: usize) -> Self {
        Self::new(sync, workers, Config { sync: sync.parse().unwrap(), ..Config::default() })
    }
}

/// Every reduction and optimizer, every way to synchronize, and all other readers of a gradient.
fn ways() -> Vec<Way> {
    let mut all = Vec::new();
    for (entry, settings, reduction) in combinations() {
        let name = format!("{} with {}", reduction.name(), entry.name);
        let optimizer = Choice { name: entry.name.into(), settings };
        all.push(Way { optimizer, ..Way::new(&name, 3, Config { reduction, ..Config::default() }) });
    }
    // With two ranks the sum is deferred to its reader.
    all.extend([1, 2, 4, 5].map(|workers| Way::of_sync("every-step", workers)));
    all.push(Way { servers: 1, ..Way::of_sync("every-step", 2) });
    for overlap in [false, true] {
        all.push(Way::new("overlap", 2, Config { forward_overlap: overlap, ..Config::default() }));
    }
    all.push(Way::new("clip", 3, Config { transforms: clip(1.0), ..Config::default() }));
    for (workers, optimizer) in [(2, "adam"), (3, "sgd"), (4, "lamb")] {
        for sharding in [Sharding::Optimizer, Sharding::Gradients, Sharding::Host] {
            let way = Way::new(sharding.name(), workers, Config { sharding, ..Config::default() });
            all.push(Way { optimizer: Choice::new(optimizer), ..way });
        }
    }
    all.push(Way::new("noise", 3, Config { noise_scale: true, ..Config::default() }));
    all.push(Way::of_sync("delayed:1", 3));
    for workers in [1, 2, 4] {
        for sync in ["local:H=4", "diloco:H=4", "diloco:H=4,restart_inner", "post-local:H=4,T=1000"] {
            let way = Way::of_sync(sync, workers);
            all.push(Way { config: Config { islands: Some(2), ..way.config }, ..way });
        }
    }
    for sync in ["stale:0", "stale:2"] {
        all.push(Way { servers: 2, ..Way::of_sync(sync, 2) });
    }
    all
}

/// A wrong element: its tensor, the index of the contribution to it, and the value.
#[derive(Clone, Copy, Debug)]
struct Wrong {
    span: usize,
    time: usize,
    value: f32,
}

/// A step, of which one contribution may have a wrong element.
fn step(replica: &mut Replica, rate: f64, wrong: Option<Wrong>) -> Result<(), Error> {
    let number = replica.steps();
    for shard in replica.shards() {
        let values: Vec<f32> = (0..NAMES.len()).flat_map(|id| replica.latest(SpanId(id)).to_vec()).collect();
        let of = backward(&values, &[10 * number as usize + shard]);
        let mut guard = replica.begin_shard(of.loss, 1.0)?;
        // As often as in the steps before, or once more, which is late.
        let late = if wrong.is_some_and(|wrong| wrong.time == 2) { 3 } else { 2 };
        let of_shared = of.shared.iter().cycle().take(late).map(|gradient| (1, gradient));
        let all = [(3, &of.last)].into_iter().chain(of_shared).chain([(0, &of.first), (4, &of.mean)]);
        let mut times = [0; NAMES.len()];
        for (span, gradient) in all {
            let mut gradient = gradient.clone();
            if let Some(wrong) =
                wrong.filter(|wrong| number == BAD_STEP && shard == BAD_SHARD && wrong.span == span)
                && wrong.time == times[span]
            {
                gradient[WIDTH - 1] = wrong.value;
            }
            times[span] += 1;
            guard.ready(SpanId(span), &gradient);
        }
        guard.finish()?;
    }
    if number + 1 == STEPS {
        replica.end_round();
    }
    replica.step(rate).map(drop)
}

/// A step of gradients that a learning rate near the largest number makes infinite.
fn steep_step(replica: &mut Replica, rate: f64) -> Result<(), Error> {
    let number = replica.steps();
    for _ in replica.shards() {
        let gradient = |span| (span, (0..WIDTH).map(|i| 1e6 + noise(span, i)).collect::<Vec<f32>>());
        pass(replica, 1.0, 1.0, [3, 1, 1, 0].map(gradient))?;
    }
    if number + 1 == STEPS {
        replica.end_round();
    }
    replica.step(rate).map(drop)
}

fn replica(group: Group, way: &Way) -> Replica {
    let group = if group.rank().0 < way.workers { group } else { group.into_server() };
    let values = (0..NAMES.len() * WIDTH).map(|i| noise(1, i) * 0.5).collect();
    let Choice { name, settings } = &way.optimizer;
    let optimizer = optimizer::named(name, settings).unwrap();
    Replica::new(Arc::new(group), specs(), values, &way.config, optimizer).unwrap()
}

/// Returns true if ranks go through steps without waiting for all others.
fn is_asynchronous(way: &Way) -> bool {
    way.config.sync.traits().staleness_bound.is_some() || way.config.islands.is_some()
}

/// Returns the error of every rank; its values have not changed.
fn all_errors(way: &Way, wrong: Wrong) -> Vec<String> {
    threads::spawn(way.workers + way.servers, |group| {
        let mut replica = replica(group, way);
        for number in 0..STEPS {
            let before = replica.values().unwrap().to_vec();
            if let Err(error) = step(&mut replica, 0.01, Some(wrong)) {
                let context = format!("{}, {wrong:?}, step {number}: {error}", way.name);
                let is_server = replica.is_server();
                match replica.values() {
                    Ok(after) => {
                        assert!(after == before || is_server || is_asynchronous(way), "{context}");
                    }
                    // It received another rank's gradient in the middle of a pull, or of an outer step.
                    Err(again) => assert!(is_asynchronous(way), "{context}; {again}"),
                }
                return error.to_string();
            }
        }
        panic!("{}, {wrong:?}: no error", way.name);
    })
    .unwrap()
}

#[test]
fn values_that_are_not_finite_are_reported_by_all_ranks_before_a_parameter_changes() {
    for way in ways() {
        let is_late = |wrong: &Wrong| wrong.time == 2;
        let wrongs = [
            Wrong { span: 1, time: 1, value: f32::NAN },
            Wrong { span: 0, time: 0, value: f32::INFINITY },
            Wrong { span: 1, time: 2, value: f32::NEG_INFINITY },
            Wrong { span: 4, time: 0, value: f32::INFINITY },
        ];
        // A late contribution makes the noise scale unknown, and has other tests.
        for wrong in wrongs.into_iter().filter(|wrong| way.name != "noise" || !is_late(wrong)) {
            let errors = all_errors(&way, wrong);
            let what = match wrong.span {
                4 => "step 9 would change the statistic `mean` by inf".into(),
                span => format!("the gradient of `{}` in step 9 is {}", NAMES[span], wrong.value),
            };
            for (rank, error) in errors.iter().enumerate() {
                let context = format!("{}, {wrong:?}, rank {rank}: {error}", way.name);
                assert!(error.contains(&what) && error.contains("in shard 2 (rank "), "{context}");
                assert!(error.contains("lower the learning rate"), "{context}");
            }
        }
    }
}

/// Finite contributions whose sum is infinite, or too large for the reduction's format.
#[test]
fn a_sum_that_overflows_is_reported_before_a_parameter_changes() {
    for (name, value) in [("sum", 3e38), ("bf16", 3e38), ("f16:dense_below=0", 40_000.0)] {
        for (workers, servers, overlap) in [(1, 0, true), (2, 0, true), (3, 1, false)] {
            let config = Config {
                shards: Some(SHARDS),
                reduction: reduction::parse(name).unwrap(),
                forward_overlap: overlap,
                ..Config::default()
            };
            let way = Way { servers, ..Way::new(name, workers, config) };
            let errors = threads::spawn(workers + servers, |group| {
                let mut replica = replica(group, &way);
                for _ in 0..BAD_STEP {
                    step(&mut replica, 0.01, None).unwrap();
                }
                let before = replica.values().unwrap().to_vec();
                for _ in replica.shards() {
                    pass(&mut replica, 1.0, 1.0, [3, 1, 1, 0].map(|span| (span, [value; WIDTH]))).unwrap();
                }
                let error = replica.step(0.01).unwrap_err();
                assert!(replica.values().unwrap() == before || replica.is_server(), "{name}, {workers}");
                error.to_string()
            });
            for error in errors.unwrap() {
                assert!(
                    error.contains("the gradient of `first` in step 9 is inf over all shards"),
                    "{name}: {error}"
                );
            }
        }
    }
}

/// A learning rate that is too large makes infinite values of a finite gradient. No caller gets them, and
/// they are in no checkpoint.
#[test]
fn an_update_that_overflows_is_reported_by_all_ranks_and_not_saved() {
    for entry in OPTIMIZERS {
        for (workers, servers, overlap) in [(1, 0, true), (2, 0, true), (3, 0, false), (2, 1, true)] {
            let config = Config { forward_overlap: overlap, ..Config::default() };
            let optimizer = Choice { name: entry.name.into(), settings: lively(entry) };
            let way = Way { optimizer, servers, ..Way::new(entry.name, workers, config) };
            let errors = threads::spawn(workers + servers, |group| {
                let mut replica = replica(group, &way);
                let failed = (0..100).find_map(|_| {
                    steep_step(&mut replica, 2e38).and_then(|()| replica.values().map(drop)).err()
                });
                let error = failed.unwrap();
                if replica.is_server() {
                    return None;
                }
                assert!(matches!(error, Error::ValuesNotFinite { .. }), "{}: {error}", entry.name);
                let again = [
                    step(&mut replica, 1e-3, None).unwrap_err(),
                    replica.values().map(drop).unwrap_err(),
                    checkpoint::snapshot(&mut replica, &at(1)).map(drop).unwrap_err(),
                ];
                again.iter().for_each(|again| assert_eq!(again.to_string(), error.to_string()));
                Some(error.to_string())
            });
            let errors: Vec<String> = errors.unwrap().into_iter().flatten().collect();
            assert!(errors.len() == workers && errors.iter().all(|error| *error == errors[0]), "{errors:?}");
            assert!(
                errors[0].contains("is not finite after step ") && errors[0].contains("learning rate"),
                "{errors:?}"
            );
        }
    }
}

/// An overflowing update where no step has all shards.
#[test]
fn an_update_that_overflows_is_reported_in_islands_and_on_servers() {
    for (sync, workers, servers) in [
        ("local:H=4", 1, 0),
        ("local:H=4", 2, 0),
        ("diloco:H=4,restart_inner", 2, 0),
        ("stale:0", 2, 2),
        ("stale:2", 2, 2),
    ] {
        let way = Way::of_sync(sync, workers);
        let islands = (servers == 0).then_some(2);
        let way = Way { servers, config: Config { islands, ..way.config }, ..way };
        let errors = threads::spawn(workers + servers, |group| {
            let mut replica = replica(group, &way);
            let rate = |step| if step == 5 { 2e38 } else { 1e-9 };
            (0..STEPS).find_map(|number| steep_step(&mut replica, rate(number)).err()).unwrap().to_string()
        });
        for error in errors.unwrap() {
            assert!(error.contains("is not finite after step 5"), "{sync}: {error}");
        }
    }
}

#[test]
fn a_learning_rate_that_is_not_finite_is_refused() {
    for (rate, shown) in [(1e40, "1e40"), (f64::NAN, "NaN"), (f64::NEG_INFINITY, "-inf")] {
        let mut replica = replica(Group::alone(), &Way::of_sync("every-step", 1));
        let before = replica.values().unwrap().to_vec();
        let error = step(&mut replica, rate, None).unwrap_err().to_string();
        assert!(error.contains(&format!("the learning rate of step 0 is {shown}")), "{error}");
        assert!(replica.values().unwrap() == before);
    }
}

/// A gradient whose square is infinite leaves a parameter finite, which Adam never moves again.
#[test]
fn a_moment_that_overflows_is_reported() {
    let adam = Choice::new("adam");
    let errors = threads::spawn(2, |group| {
        let mut replica = replica(group, &Way { optimizer: adam.clone(), ..Way::of_sync("every-step", 2) });
        for _ in replica.shards() {
            pass(&mut replica, 1.0, 1.0, [(0, [1e25; WIDTH])]).unwrap();
        }
        let stepped = replica.step(0.01).map(drop);
        stepped.and_then(|()| replica.values().map(drop)).unwrap_err().to_string()
    });
    for error in errors.unwrap() {
        assert!(error.contains("/first` is not finite after step 0"), "{error}");
    }
}

/// Each worker's own running statistics are checked, too.
#[test]
fn a_workers_own_statistic_is_looked_at() {
    let config = Config { statistics: Statistics::Local, ..Config::default() };
    let errors = threads::spawn(2, |group| {
        let mut replica = replica(group, &Way::new("local statistics", 2, config.clone()));
        for shard in replica.shards() {
            let mut pass = replica.begin_shard(1.0, 1.0).unwrap();
            pass.ready(SpanId(0), &[1.0; WIDTH]);
            let value = if shard == 3 { f32::INFINITY } else { 1.0 };
            pass.with_replica(|replica| replica.keep_statistic(SpanId(4), &[value; WIDTH]));
            pass.finish().unwrap();
        }
        replica.step(0.01).unwrap_err().to_string()
    });
    for error in errors.unwrap() {
        assert!(error.contains("`mean`") && error.contains("in shard 3 (rank 1)"), "{error}");
    }
}

/// An infinite constant of the model, such as an additive mask, stays as it is.
#[test]
fn a_tensor_that_is_infinite_from_the_start_is_left_alone() {
    let spec = |name: &str, kind| ParamSpec::new(name, vec![3], kind);
    let specs = vec![spec("weight", Kind::Parameter { decay: true }), spec("mask", Kind::Statistic)];
    let values = [vec![1.0; 3], vec![0.0, f32::NEG_INFINITY, 0.0]].concat();
    let (group, config) = (Arc::new(Group::alone()), Config::default());
    let mut replica = Replica::new(group, specs, values, &config, sgd()).unwrap();
    for _ in 0..3 {
        pass(&mut replica, 1.0, 1.0, [(0, [1.0; 3])]).unwrap();
        replica.step(0.25).unwrap();
    }
    assert_eq!(replica.values().unwrap(), [0.25, 0.25, 0.25, 0.0, f32::NEG_INFINITY, 0.0]);
}

/// No rank can train it; rank 0's values apply.
#[test]
fn a_parameter_that_is_not_finite_from_the_start_is_refused_by_all_ranks() {
    let errors = threads::spawn(2, |group| {
        let mut values = vec![0.5; NAMES.len() * WIDTH];
        if group.rank().0 == 0 {
            values[WIDTH + 7] = f32::NAN;
        }
        let made = Replica::new(Arc::new(group), specs(), values, &Config::default(), sgd());
        made.err().unwrap().to_string()
    });
    for error in errors.unwrap() {
        assert!(error.contains("parameter `shared` is not finite before the first step"), "{error}");
    }
}

#[test]
fn a_loss_over_no_number_of_samples_is_refused() {
    for count in [f64::NAN, f64::INFINITY, -1.0] {
        let mut replica = replica(Group::alone(), &Way::of_sync("every-step", 1));
        let error = replica.begin_shard(1.0, count).err().unwrap().to_string();
        assert!(error.contains(&format!("shard 0 is over {count} samples")), "{error}");
    }
}
