//! Asynchronous SGD through servers (`stale:K`): with K = 0 what training in every step gives, up to
//! roundings; with K > 0 nobody is further ahead of the slowest worker than K steps.

mod common;

use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use common::{NAMES, WIDTH, clip, lively, noise, replica, run_shard, specs};
use kolo_comm::{Group, Options, threads};
use kolo_ddp::checkpoint::{self, Position};
use kolo_ddp::optimizer::{self, OPTIMIZERS, Settings};
use kolo_ddp::straggler::Policy;
use kolo_ddp::{
    BucketCaps, Config, Error, Kind, LossScaling, ParamGroup, ParamSpec, Replica, Sampler, SpanId, Staleness,
    Statistics, reduction,
};

const SHARDS: usize = 4;
/// Of steps that end in a batch which does not reach every worker.
const SAMPLES: usize = 41;

fn config(sync: &str) -> Config {
    Config { shards: Some(SHARDS), sync: sync.parse().unwrap(), ..Config::default() }
}

/// Runs `work` on so many workers and, after them, servers.
fn spawn<R: Send>(workers: usize, servers: usize, work: impl Fn(Group) -> R + Sync) -> Vec<R> {
    threads::spawn(workers + servers, |group| {
        let group = if group.rank().0 < workers { group } else { group.into_server() };
        work(group)
    })
    .unwrap()
}

/// What a run came to: the values, and the losses of all steps.
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
            run_shard(replica, order.shard(within, shard));
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

/// How far two vectors are apart, relative to the length of the first.
fn distance(a: &[f32], b: &[f32]) -> f64 {
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let apart = norm(&mut a.iter().zip(b).map(|(a, b)| f64::from(a - b)));
    apart / norm(&mut a.iter().map(|a| f64::from(*a)))
}

#[test]
fn without_staleness_it_is_training_in_every_step_up_to_roundings() {
    for optimizer in OPTIMIZERS {
        // A step by the sign alone makes of a rounding about 0 all or nothing.
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
            let words = format!("{}, {workers} workers, {servers} servers", optimizer.name);
            for run in &runs {
                assert_eq!(run.losses.len(), STEPS as usize, "{words}");
                for ((step, loss), (of, expected)) in run.losses.iter().zip(&expected.losses) {
                    assert_eq!(step, of);
                    assert!(
                        (loss / expected - 1.0).abs() < tolerance,
                        "{words}, step {step}: {loss} {expected}"
                    );
                }
                assert_eq!(run.staleness.pulls(), [STEPS * workers as u64], "{words}");
            }
            for run in &runs[..workers] {
                let off = distance(&expected.values, &run.values);
                assert!(off < tolerance, "{words}: {off}");
                assert_eq!(run.values, runs[0].values, "{words}");
            }
            assert!(
                runs[workers..].iter().all(|run| run.values.iter().all(|value| value.is_nan())),
                "{words}"
            );
        }
    }
}

/// A model whose values tell which pushes they hold: worker w raises element (w, c) by 1 in its step c.
struct Journal {
    replica: Replica,
    worker: usize,
    workers: usize,
}

impl Journal {
    const STEPS: usize = 40;

    fn new(group: Group, sync: &str, workers: usize) -> Self {
        let spec = ParamSpec::new("journal", vec![workers, Self::STEPS], Kind::Parameter { decay: true });
        let config = Config { shards: Some(workers), ..config(sync) };
        let sgd = optimizer::named("sgd", &Settings::default()).unwrap();
        let (worker, values) = (group.rank().0, vec![0.0; workers * Self::STEPS]);
        let replica = Replica::new(Arc::new(group), vec![spec], values, &config, sgd).unwrap();
        Journal { replica, worker, workers }
    }

    /// A step, and how many steps of each worker are in what this one has then.
    fn step(&mut self, step: usize) -> Result<Vec<usize>, Error> {
        if !self.replica.is_server() {
            let mut gradient = vec![0.0; self.workers * Self::STEPS];
            gradient[self.worker * Self::STEPS + step] = -(self.workers as f32);
            let mut pass = self.replica.begin_shard(1.0, 1.0)?;
            pass.ready(SpanId(0), &gradient);
            pass.finish()?;
        }
        self.replica.step(1.0)?;
        if self.replica.is_server() {
            return Ok(Vec::new());
        }
        let values = self.replica.values()?;
        let rows = values.chunks(Self::STEPS);
        // A worker's pushes come in their order, each once.
        let count = |row: &[f32]| {
            let count = row.iter().take_while(|value| **value == 1.0).count();
            assert!(row[count..].iter().all(|value| *value == 0.0), "{row:?}");
            count
        };
        Ok(rows.map(count).collect())
    }
}

#[test]
fn no_pull_lacks_more_than_the_bound_allows() {
    for (bound, workers, servers) in [(0, 3, 2), (1, 3, 1), (2, 4, 3), (5, 2, 1)] {
        let runs = spawn(workers, servers, |group| {
            let mut journal = Journal::new(group, &format!("stale:{bound}"), workers);
            let (worker, mut seen, mut staleness) = (journal.worker, Vec::new(), None);
            for step in 0..Journal::STEPS {
                // Who is slow changes.
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
                let words = format!("bound {bound}, worker {worker}, step {step}: {counts:?}");
                assert_eq!(counts[worker], step + 1, "its own pushes are there: {words}");
                let last = step + 1 == Journal::STEPS;
                let least = if last { step + 1 } else { (step + 1).saturating_sub(bound) };
                assert!(counts.iter().all(|count| *count >= least), "{words}");
                // Nobody is further ahead than the bound of one whose next push is under way.
                assert!(counts.iter().all(|count| *count <= step + 1 + bound + 1), "{words}");
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
                    // Time in which it could go on if it were wrong.
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

/// Each worker's samples want another point; all together want the mean of these, where the sum of squared
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
                // By the end a step is so small that K of them do not matter.
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
    // With one worker nothing depends on who is faster.
    for (number, (sync, workers)) in [("stale:0", 3), ("stale:2", 1)].into_iter().enumerate() {
        for name in ["sgd", "adam", "lamb"] {
            let settings = lively(optimizer::find(name).unwrap());
            let expected = train_on(workers, 2, &config(sync), name, &settings).remove(0);
            let place = folder.path().join(format!("{number}-{name}"));
            let path = spawn(workers, 2, |group| {
                let mut replica = replica(Arc::new(group), &config(sync), name, settings.clone());
                train(&mut replica, 0..5, &[5]);
                replica.gather_residuals().unwrap();
                let position =
                    Position { step: 5, epoch: 0, step_in_epoch: 5, notes: serde_json::Value::Null };
                match replica.group().rank().0 {
                    0 => Some(checkpoint::save(&place, &mut replica, &position).unwrap()),
                    _ => {
                        let refused = checkpoint::snapshot(&mut replica, &position).unwrap_err().to_string();
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
            // And as a job that synchronises every step.
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

/// With K > 0 each push is a step of the optimizer, whose corrections go by their number.
#[test]
fn a_checkpoint_says_how_many_steps_the_servers_have_made() {
    let folder = tempfile::tempdir().unwrap();
    for (number, (sync, made)) in
        [("stale:0", [5, STEPS]), ("stale:3", [10, 2 * STEPS - 2])].into_iter().enumerate()
    {
        let place = folder.path().join(number.to_string());
        let position = |step| Position { step, epoch: 0, step_in_epoch: 0, notes: serde_json::Value::Null };
        let saved = |replica: &mut Replica, step| {
            replica.gather_residuals().unwrap();
            let path = (replica.group().rank().0 == 0)
                .then(|| checkpoint::save(&place, replica, &position(step)).unwrap())?;
            let text = std::fs::read_to_string(path.join("position.json")).unwrap();
            let position: serde_json::Value = serde_json::from_str(&text).unwrap();
            Some(position["updates_of_servers"].as_u64().unwrap())
        };
        let told = spawn(2, 2, |group| {
            let mut replica = replica(Arc::new(group), &config(sync), "adam", Settings::default());
            train(&mut replica, 0..5, &[5]);
            saved(&mut replica, 5)
        });
        assert_eq!(told[0], Some(made[0]), "{sync}");
        let told = spawn(2, 1, |group| {
            let mut replica = replica(Arc::new(group), &config(sync), "adam", Settings::default());
            checkpoint::load(&checkpoint::path(&place, 5), &mut replica).unwrap();
            train(&mut replica, 5..STEPS, &[STEPS]);
            saved(&mut replica, STEPS)
        });
        // In the two steps that end an epoch only one of the two workers has a sample.
        assert_eq!(told[0], Some(made[1]), "{sync}");
    }
}

/// The errors of all ranks of a job with these options, in which each does what `work` does.
fn errors(
    workers: usize,
    servers: usize,
    options: &Options,
    work: impl Fn(&mut Journal) -> Result<(), Error> + Sync,
) -> Vec<String> {
    let groups = threads::groups(workers + servers, options).unwrap();
    std::thread::scope(|scope| {
        let start = |(rank, group): (usize, Group)| {
            let work = &work;
            scope.spawn(move || {
                let group = if rank < workers { group } else { group.into_server() };
                let mut journal = Journal::new(group, "stale:2", workers);
                work(&mut journal).err().map_or_else(String::new, |error| error.to_string())
            })
        };
        let threads: Vec<_> = groups.into_iter().enumerate().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn all_steps(journal: &mut Journal) -> Result<(), Error> {
    for step in 0..Journal::STEPS {
        if step + 1 == Journal::STEPS {
            journal.replica.end_round();
        }
        journal.step(step)?;
    }
    Ok(())
}

#[test]
fn a_death_ends_the_job_with_an_error_that_names_the_rank() {
    // Two workers, then two servers.
    for dies in 0..4 {
        for step in [0, 3] {
            let told = errors(2, 2, &Options::default(), |journal| {
                if journal.worker == dies {
                    (0..step).try_for_each(|step| journal.step(step).map(drop))?;
                    journal.replica.group().abandon("it was killed");
                    return Ok(());
                }
                all_steps(journal)
            });
            for (rank, error) in told.iter().enumerate().filter(|(rank, _)| *rank != dies) {
                let words = format!("rank {dies} gave up: it was killed");
                assert!(error.contains(&words), "{rank}, step {step}: {told:?}");
            }
        }
    }
}

#[test]
fn a_worker_that_hangs_or_leaves_is_named() {
    let options = Options { timeout: Some(Duration::from_secs(5)), ..Options::default() };
    let (over, changed) = (Mutex::new(0), Condvar::new());
    let told = errors(3, 1, &options, |journal| {
        let result = match journal.worker {
            1 => {
                journal.step(0)?;
                drop(changed.wait_while(over.lock().unwrap(), |over| *over < 3).unwrap());
                Ok(())
            }
            _ => all_steps(journal),
        };
        *over.lock().unwrap() += 1;
        changed.notify_all();
        result
    });
    for rank in [0, 2, 3] {
        assert!(told[rank].contains("rank 1 did not take part"), "{rank}: {told:?}");
    }
    let told = errors(3, 1, &Options::default(), |journal| match journal.worker {
        1 => journal.step(0).map(drop),
        _ => all_steps(journal),
    });
    for rank in [0, 2, 3] {
        assert!(
            told[rank].contains("rank 1 has left") || told[rank].contains("rank 1 left"),
            "{rank}: {told:?}"
        );
    }
}

#[test]
fn ranks_that_do_not_do_the_same_are_told_in_a_sentence() {
    let end_early = |journal: &mut Journal, rank: usize| {
        for step in 0..Journal::STEPS {
            let end = if journal.worker == rank { 5 } else { Journal::STEPS };
            if step + 1 == end {
                journal.replica.end_round();
            }
            journal.step(step)?;
        }
        Ok(())
    };
    let told = errors(2, 1, &Options::default(), |journal| end_early(journal, 1));
    // Of step 4, or of the next, which the other worker may begin before it is heard of.
    assert!(told.iter().all(|error| error.contains("unlike another worker")), "{told:?}");
    let told = errors(2, 1, &Options::default(), |journal| {
        if journal.worker == 1 {
            journal.replica.note_setting("sampler", "its own".into());
        }
        all_steps(journal)
    });
    assert!(told.iter().all(|error| error.contains("sampler is")), "{told:?}");
    let told = errors(2, 1, &Options::default(), |journal| {
        if journal.worker != 1 {
            return all_steps(journal);
        }
        journal.replica.begin_shard(f64::NAN, 1.0)?.finish()?;
        journal.replica.step(1.0).map(drop)
    });
    assert!(told.iter().all(|error| error.contains("the loss of step 0 is NaN")), "{told:?}");
}

#[test]
fn what_makes_no_sense_is_refused_at_the_start() {
    let refused = |config: &Config, servers: usize| {
        let mut errors = spawn(2, servers, |group| {
            let sgd = optimizer::named("sgd", &Settings::default()).unwrap();
            let values = vec![0.0; NAMES.len() * WIDTH];
            Replica::new(Arc::new(group), specs(), values, config, sgd).err().map(|error| error.to_string())
        });
        errors.dedup();
        assert_eq!(errors.len(), 1, "{errors:?}");
        errors.remove(0).unwrap_or_default()
    };
    let base = config("stale:2");
    assert_eq!(refused(&base, 1), "");
    for (config, words) in [
        (
            Config { reduction: reduction::parse("bf16").unwrap(), ..base.clone() },
            "leave the reduction at `sum`",
        ),
        (Config { elastic: true, ..base.clone() }, "cannot go on without a worker or a server that dies"),
        (
            Config { reduction: reduction::parse("ef-sign").unwrap(), ..base.clone() },
            "leave the reduction at `sum`",
        ),
        (Config { transforms: clip(1.0), ..base.clone() }, "leave transforms out"),
        (Config { loss_scaling: Some(LossScaling::default()), ..base.clone() }, "compute in bf16 or f32"),
        (Config { noise_scale: true, ..base.clone() }, "the noise scale is measured"),
        (Config { statistics: Statistics::Local, ..base.clone() }, "they cannot be each worker's own"),
        (Config { straggler: Policy::Rebalance, ..base.clone() }, "each worker go at its own pace"),
        (Config { islands: Some(2), ..base.clone() }, "has no islands; take `local` or `diloco`"),
    ] {
        let error = refused(&config, 1);
        assert!(error.contains("synchronisation `stale:K=2`") && error.contains(words), "{error}");
    }
    let error = refused(&base, 0);
    assert!(error.contains("`stale:K=2` needs summation servers") && error.contains("--servers"), "{error}");
    // In the middle of a round, after which nobody has to have ended it.
    let refused = errors(1, 1, &Options::default(), |journal| {
        journal.step(0)?;
        let position = Position { step: 1, epoch: 0, step_in_epoch: 1, notes: serde_json::Value::Null };
        checkpoint::snapshot(&mut journal.replica, &position).map(drop)
    });
    let words = "cannot be taken or loaded after 1 steps, in the middle of a round that began after 0";
    assert!(refused.iter().all(|error| error.contains(words)), "{refused:?}");
}
