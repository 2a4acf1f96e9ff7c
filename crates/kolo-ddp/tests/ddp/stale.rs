//! Asynchronous SGD through servers (`stale:K`): K = 0 equals training in every step, up to roundings; with
//! K > 0 no worker is further ahead of the slowest one than K steps.

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::common::checkpoints::at;
use crate::common::stale::{Journal, SHARDS, config, spawn};
use crate::common::{WIDTH, lively, noise, replica, run_shard};
use kolo_ddp::checkpoint;
use kolo_ddp::optimizer::{self, OPTIMIZERS, Settings};
use kolo_ddp::{BucketCaps, Config, Kind, ParamGroup, ParamSpec, Replica, Sampler, SpanId, Staleness};

/// Number of samples with which steps end in a batch that does not reach every worker.
const SAMPLES: usize = 41;

/// Result of a run: the values, and the losses of all steps.
#[derive(Clone, Debug)]
struct Run {
    values: Vec<f32>,
    losses: Vec<(u64, f64)>,
    staleness: Staleness,
}

/// Trains over those steps, in rounds that end after each of `ends`.
fn train(replica: &mut Replica, steps: Range<u64>, ends: &[u64]) -> Run {
    let sampler = Sampler::new(SAMPLES, 2, SHARDS, 1).unwrap();
    let (mut losses, mut staleness) = (Vec::new(), Staleness::default());
    for step in steps.clone() {
        let (epoch, within) = (step as usize / sampler.steps(), step as usize % sampler.steps());
        let order = sampler.epoch(epoch);
        let ends = ends.contains(&(step + 1));
        if ends {
            replica.end_round();
        }
        for shard in replica.shards() {
            run_shard(replica, &order.shard(within, shard));
        }
        let report = replica.step(0.02).unwrap();
        losses.extend(report.known.iter().map(|known| (known.step, known.loss)));
        if replica.group().rank().0 == 0 && ends {
            assert_eq!(losses.last().unwrap().0, step, "all losses are known at the end of a round");
        }
        if let Some(of_round) = report.staleness {
            staleness.merge(&of_round);
        }
    }
    Run { values: replica.values().unwrap().to_vec(), losses, staleness }
}

const STEPS: u64 = 14;

fn train_on(
    workers: usize,
    servers: usize,
    config: &Config,
    optimizer: &str,
    settings: &Settings,
) -> Vec<Run> {
    spawn(workers, servers, |group| {
        let mut replica = replica(Arc::new(group), config, optimizer, settings.clone());
        assert_eq!(replica.workers().len(), workers);
        train(&mut replica, 0..STEPS, &[5, STEPS])
    })
}

/// Distance of two vectors, relative to the length of the first.
fn distance(a: &[f32], b: &[f32]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let apart = norm(&mut a.iter().zip(b).map(|(a, b)| f64::from(a - b)));
    apart / norm(&mut a.iter().map(|a| f64::from(*a)))
}

#[test]
fn without_staleness_it_is_training_in_every_step_up_to_roundings() {
    for optimizer in OPTIMIZERS {
        // A step by the sign alone turns a rounding near 0 into all or nothing.
        let tolerance = if optimizer.name == "lion" { 1e-2 } else { 1e-4 };
        let settings = lively(optimizer);
        let groups = vec![ParamGroup::without_decay(["first"])];
        let groups = if lively(optimizer) == Settings::default() { Vec::new() } else { groups };
        let all = Config {
            groups,
            caps: Some(BucketCaps { first: 4 * WIDTH, other: 8 * WIDTH }),
            ..config("stale:0")
        };
        let every_step = Config { sync: "every-step".parse().unwrap(), ..all.clone() };
        let expected = train_on(1, 0, &every_step, optimizer.name, &settings).remove(0);
        for (workers, servers) in [(1, 1), (2, 1), (3, 2), (4, 3), (2, 7), (5, 1)] {
            let runs = train_on(workers, servers, &all, optimizer.name, &settings);
            let case = format!("{}, {workers} workers, {servers} servers", optimizer.name);
            for run in &runs {
                assert_eq!(run.losses.len(), STEPS as usize, "{case}");
                for ((step, loss), (of, expected)) in run.losses.iter().zip(&expected.losses) {
                    assert_eq!(step, of);
                    assert!(
                        (loss / expected - 1.0).abs() < tolerance,
                        "{case}, step {step}: {loss} {expected}"
                    );
                }
                assert_eq!(run.staleness.pulls(), [STEPS * workers as u64], "{case}");
            }
            for run in &runs[..workers] {
                let off = distance(&expected.values, &run.values);
                assert!(off < tolerance, "{case}: {off}");
                assert_eq!(run.values, runs[0].values, "{case}");
            }
            assert!(
                runs[workers..].iter().all(|run| run.values.iter().all(|value| value.is_nan())),
                "{case}"
            );
        }
    }
}

#[test]
fn no_pull_lacks_more_than_the_bound_allows() {
    for (bound, workers, servers) in [(0, 3, 2), (1, 3, 1), (2, 4, 3), (5, 2, 1)] {
        let runs = spawn(workers, servers, |group| {
            let mut journal = Journal::new(group, &format!("stale:{bound}"), workers);
            let (worker, mut seen, mut staleness) = (journal.worker, Vec::new(), None);
            for step in 0..Journal::STEPS {
                // The slow worker changes.
                if (step / 10) % workers == worker {
                    std::thread::sleep(Duration::from_millis(2));
                }
                if step + 1 == Journal::STEPS {
                    journal.replica.end_round();
                }
                if worker < workers {
                    seen.push(journal.step(step).unwrap());
                } else {
                    journal.step(step).unwrap();
                }
                staleness = staleness.or(journal.replica.last_step().map(|last| last.step));
            }
            assert_eq!(staleness, Some(Journal::STEPS as u64 - 1));
            (worker, seen)
        });
        for (worker, seen) in runs.into_iter().take(workers) {
            for (step, counts) in seen.iter().enumerate() {
                let case = format!("bound {bound}, worker {worker}, step {step}: {counts:?}");
                assert_eq!(counts[worker], step + 1, "its own pushes are there: {case}");
                let last = step + 1 == Journal::STEPS;
                let least = if last { step + 1 } else { (step + 1).saturating_sub(bound) };
                assert!(counts.iter().all(|count| *count >= least), "{case}");
                // No worker is further ahead than the bound of one whose next push is in flight.
                assert!(counts.iter().all(|count| *count <= step + 1 + bound + 1), "{case}");
            }
        }
    }
}

#[test]
fn a_worker_runs_ahead_of_a_blocked_one_by_the_bound_and_no_further() {
    for bound in [0, 1, 3, 7] {
        let (done, changed) = (Mutex::new(0), Condvar::new());
        spawn(2, 1, |group| {
            let mut journal = Journal::new(group, &format!("stale:{bound}"), 2);
            match journal.worker {
                0 => {
                    for step in 0..Journal::STEPS - 1 {
                        journal.step(step).unwrap();
                        *done.lock().unwrap() += 1;
                        changed.notify_all();
                    }
                }
                1 => {
                    let ahead = changed.wait_while(done.lock().unwrap(), |done| *done < bound).unwrap();
                    drop(ahead);
                    // Time in which it could continue if it were wrong.
                    std::thread::sleep(Duration::from_millis(30));
                    assert_eq!(*done.lock().unwrap(), bound);
                    for step in 0..Journal::STEPS - 1 {
                        let counts = journal.step(step).unwrap();
                        assert!(counts[0] <= step + 1 + bound + 1, "{counts:?}");
                    }
                }
                _ => (0..Journal::STEPS - 1).for_each(|step| drop(journal.step(step).unwrap())),
            }
            journal.replica.end_round();
            journal.step(Journal::STEPS - 1).unwrap();
        });
    }
}

/// Each worker's samples pull to another point; all together to the mean of these, where the sum of squared
/// distances is least.
#[test]
fn a_convex_problem_converges() {
    let (workers, len) = (3, 50);
    for (sync, name) in [("stale:0", "sgd"), ("stale:4", "sgd"), ("stale:4", "adam"), ("stale:1", "lamb")] {
        let found = spawn(workers, 2, |group| {
            let spec = ParamSpec::new("point", vec![len], Kind::Parameter { decay: false });
            let config = Config { shards: Some(workers), ..config(sync) };
            let rank = group.rank().0;
            let optimizer = optimizer::named(name, &Settings::default()).unwrap();
            let mut replica =
                Replica::new(Arc::new(group), vec![spec], vec![1.0; len], &config, optimizer).unwrap();
            let steps = 400;
            for step in 0..steps {
                let gradient: Vec<f32> =
                    (0..len).map(|i| replica.latest(SpanId(0))[i] - noise(rank, i) - 2.0).collect();
                if !replica.is_server() {
                    let loss: f32 = gradient.iter().map(|off| off * off).sum();
                    let mut pass = replica.begin_shard(f64::from(loss), 1.0).unwrap();
                    pass.ready(SpanId(0), &gradient);
                    pass.finish().unwrap();
                }
                if step + 1 == steps {
                    replica.end_round();
                }
                // At the end a step is so small that K of them do not matter.
                replica.step(0.3 * (1.0 - f64::from(step) / f64::from(steps)).powi(2)).unwrap();
            }
            replica.values().unwrap().to_vec()
        });
        let mean = |i| (0..workers).map(|worker| noise(worker, i)).sum::<f32>() / workers as f32 + 2.0;
        let best: Vec<f32> = (0..len).map(mean).collect();
        let off = distance(&best, &found[0]);
        assert!(off < 0.05, "{sync}, {name}: {off}");
    }
}

#[test]
fn a_checkpoint_goes_on_with_any_number_of_servers() {
    let folder = tempfile::tempdir().unwrap();
    // With one worker nothing depends on speed.
    for (number, (sync, workers)) in [("stale:0", 3), ("stale:2", 1)].into_iter().enumerate() {
        for name in ["sgd", "adam", "lamb"] {
            let settings = lively(optimizer::find(name).unwrap());
            let expected = train_on(workers, 2, &config(sync), name, &settings).remove(0);
            let place = folder.path().join(format!("{number}-{name}"));
            let path = spawn(workers, 2, |group| {
                let mut replica = replica(Arc::new(group), &config(sync), name, settings.clone());
                train(&mut replica, 0..5, &[5]);
                replica.gather_residuals().unwrap();
                match replica.group().rank().0 {
                    0 => Some(checkpoint::save(&place, &mut replica, &at(5)).unwrap()),
                    _ => {
                        let refused = checkpoint::snapshot(&mut replica, &at(5)).unwrap_err().to_string();
                        assert!(refused.contains("call `Replica::gather_residuals`"), "{refused}");
                        None
                    }
                }
            })
            .remove(0)
            .unwrap();
            for servers in [1, 2, 3] {
                let resumed = spawn(workers, servers, |group| {
                    let mut replica = replica(Arc::new(group), &config(sync), name, settings.clone());
                    checkpoint::load(&path, &mut replica).unwrap();
                    train(&mut replica, 5..STEPS, &[STEPS])
                });
                assert_eq!(resumed[0].values, expected.values, "{sync}, {name}, {servers} servers");
                assert_eq!(resumed[0].losses, expected.losses[5..], "{sync}, {name}, {servers} servers");
            }
            // Continues also as a job that synchronizes every step.
            let resumed = spawn(2, 0, |group| {
                let mut replica = replica(Arc::new(group), &config("every-step"), name, settings.clone());
                checkpoint::load(&path, &mut replica).unwrap();
                train(&mut replica, 5..STEPS, &[])
            });
            let off = distance(&expected.values, &resumed[0].values);
            assert!(off < 1e-4, "{sync}, {name}: {off}");
        }
    }
}

/// With K > 0 each push is a step of the optimizer, whose corrections depend on their number.
#[test]
fn a_checkpoint_says_how_many_steps_the_servers_have_made() {
    let folder = tempfile::tempdir().unwrap();
    for (number, (sync, made)) in
        [("stale:0", [5, STEPS]), ("stale:3", [10, 2 * STEPS - 2])].into_iter().enumerate()
    {
        let place = folder.path().join(number.to_string());
        let saved = |replica: &mut Replica, step| {
            replica.gather_residuals().unwrap();
            let path = (replica.group().rank().0 == 0)
                .then(|| checkpoint::save(&place, replica, &at(step)).unwrap())?;
            let text = std::fs::read_to_string(path.join("position.json")).unwrap();
            let position: serde_json::Value = serde_json::from_str(&text).unwrap();
            Some(position["updates_of_servers"].as_u64().unwrap())
        };
        let reported = spawn(2, 2, |group| {
            let mut replica = replica(Arc::new(group), &config(sync), "adam", Settings::default());
            train(&mut replica, 0..5, &[5]);
            saved(&mut replica, 5)
        });
        assert_eq!(reported[0], Some(made[0]), "{sync}");
        let reported = spawn(2, 1, |group| {
            let mut replica = replica(Arc::new(group), &config(sync), "adam", Settings::default());
            checkpoint::load(&checkpoint::path(&place, 5), &mut replica).unwrap();
            train(&mut replica, 5..STEPS, &[STEPS]);
            saved(&mut replica, STEPS)
        });
        // In the two steps that end an epoch only one of the two workers has a sample.
        assert_eq!(reported[0], Some(made[1]), "{sync}");
    }
}
