//! Failures of asynchronous SGD through servers (`stale:K`): a rank that dies, hangs, leaves or does not do
//! what the others do, and invalid settings, end with one sentence on every rank.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

use crate::common::checkpoints::at;
use crate::common::refusal;
use crate::common::stale::{Journal, config, spawn};
use kolo_comm::{Group, Options, threads};
use kolo_ddp::checkpoint;
use kolo_ddp::{Config, Error};

/// Returns the errors of all ranks of a job with these options, on each of which `work` runs.
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
            let reported = errors(2, 2, &Options::default(), |journal| {
                if journal.worker == dies {
                    (0..step).try_for_each(|step| journal.step(step).map(drop))?;
                    journal.replica.group().abandon("it was killed");
                    return Ok(());
                }
                all_steps(journal)
            });
            for (rank, error) in reported.iter().enumerate().filter(|(rank, _)| *rank != dies) {
                let text = format!("rank {dies} gave up: it was killed");
                assert!(error.contains(&text), "{rank}, step {step}: {reported:?}");
            }
        }
    }
}

#[test]
fn a_worker_that_hangs_or_leaves_is_named() {
    let options = Options { timeout: Some(Duration::from_secs(5)), ..Options::default() };
    let (over, changed) = (Mutex::new(0), Condvar::new());
    let reported = errors(3, 1, &options, |journal| {
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
        assert!(reported[rank].contains("rank 1 did not take part"), "{rank}: {reported:?}");
    }
    let reported = errors(3, 1, &Options::default(), |journal| match journal.worker {
        1 => journal.step(0).map(drop),
        _ => all_steps(journal),
    });
    for rank in [0, 2, 3] {
        assert!(
            reported[rank].contains("rank 1 has left") || reported[rank].contains("rank 1 left"),
            "{rank}: {reported:?}"
        );
    }
}

#[test]
fn ranks_that_do_not_do_the_same_get_one_sentence() {
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
    let reported = errors(2, 1, &Options::default(), |journal| end_early(journal, 1));
    // In step 4, or in the next, which the other worker may begin before it learns of it.
    assert!(reported.iter().all(|error| error.contains("unlike another worker")), "{reported:?}");
    let reported = errors(2, 1, &Options::default(), |journal| {
        if journal.worker == 1 {
            journal.replica.note_setting("sampler", "its own".into());
        }
        all_steps(journal)
    });
    assert!(reported.iter().all(|error| error.contains("sampler is")), "{reported:?}");
    let reported = errors(2, 1, &Options::default(), |journal| {
        if journal.worker != 1 {
            return all_steps(journal);
        }
        journal.replica.begin_shard(f64::NAN, 1.0)?.finish()?;
        journal.replica.step(1.0).map(drop)
    });
    assert!(reported.iter().all(|error| error.contains("the loss of step 0 is NaN")), "{reported:?}");
}

#[test]
fn what_makes_no_sense_is_refused_at_the_start() {
    let refused = |config: &Config, servers: usize| {
        let mut errors = spawn(2, servers, |group| refusal(group, config));
        errors.dedup();
        assert_eq!(errors.len(), 1, "{errors:?}");
        errors.remove(0)
    };
    let base = config("stale:2");
    assert_eq!(refused(&base, 1), "");
    let error = refused(&Config { elastic: true, ..base.clone() }, 1);
    assert!(
        error.contains("synchronization `stale:K=2` cannot continue without a worker or a server"),
        "{error}"
    );
    let error = refused(&base, 0);
    assert!(error.contains("`stale:K=2` needs summation servers") && error.contains("--servers"), "{error}");
    // In the middle of a round that no rank has ended.
    let refused = errors(1, 1, &Options::default(), |journal| {
        journal.step(0)?;
        checkpoint::snapshot(&mut journal.replica, &at(1)).map(drop)
    });
    let text = "cannot be taken or loaded after 1 step, in the middle of a round that began after 0";
    assert!(refused.iter().all(|error| error.contains(text)), "{refused:?}");
}
