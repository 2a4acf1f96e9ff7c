//! Values that are divided among the workers: gathered when they are used, whoever uses them.

use crate::common::bits;
use crate::common::checkpoints::at;
use crate::common::groups::{RATE, alone, config, layout, replica_with, train};
use kolo_comm::{Group, Options, threads};
use kolo_ddp::checkpoint;
use kolo_ddp::optimizer::{self, Optimizer, Settings};
use kolo_ddp::{BLOCK, Config, Replica, Sharding, SpanId};
use kolo_testing::{Over, spawn};

const STEPS: u64 = 3;

fn divided() -> Config {
    Config { sharding: Sharding::Parameters, ..config(Vec::new(), 0.0625) }
}

fn adam() -> Box<dyn Optimizer> {
    optimizer::named("adam", &Settings::default()).unwrap()
}

fn tensor(replica: &mut Replica, number: usize) -> Vec<u32> {
    replica.latest(SpanId(number)).iter().map(|value| value.to_bits()).collect()
}

/// Ranks use tensors in different orders, and not equally often; with five ranks for four shards, one uses
/// them without a shard.
#[test]
fn ranks_gather_what_they_use_when_they_use_it() {
    let tensors = layout().spans().len();
    let mut plain = replica_with(Group::alone(), &config(Vec::new(), 0.0625), adam());
    let mut expected = Vec::new();
    for step in 0..=STEPS {
        expected.push((0..tensors).map(|number| tensor(&mut plain, number)).collect::<Vec<_>>());
        if step < STEPS {
            train(&mut plain, step + 1);
        }
    }
    for (world, over) in [(2, Over::SHM), (3, Over::TCP), (5, Over::Mixed)] {
        let ends = spawn(over, world, &Options::default(), |group| {
            let rank = group.rank().0;
            let mut replica = replica_with(group, &divided(), adam());
            for step in 0..=STEPS {
                let of_step = &expected[step as usize];
                // Another order from step to step for rank 1: what it gathers ahead is wrong.
                let turn = if rank == 1 { step as usize } else { 0 };
                for use_ in 0..(rank + 1) * tensors {
                    let number = (use_ * (2 * rank + 1) + turn) % tensors;
                    assert!(tensor(&mut replica, number) == of_step[number], "{rank}, {step}, {number}");
                }
                if step < STEPS {
                    train(&mut replica, step + 1);
                }
            }
            bits(&mut replica)
        });
        assert!(ends.iter().all(|end| *end == expected[STEPS as usize].concat()), "{world} ranks");
    }
}

#[test]
fn large_tensors_have_one_owner_a_block_and_small_ones_are_everywhere() {
    let kept = threads::spawn(3, |group| {
        let mut replica = replica_with(group, &divided(), adam());
        train(&mut replica, 1);
        replica.gather_residuals().unwrap();
        replica.held_values_for_tests()
    });
    let (kept, layout) = (kept.unwrap(), layout());
    let holders = |element: usize| kept.iter().flatten().filter(|run| run.contains(&element)).count();
    for span in layout.spans() {
        let expected = if span.len >= BLOCK { 1 } else { kept.len() };
        assert!(span.range().step_by(97).all(|element| holders(element) == expected), "{}", span.spec.name);
    }
    let held = kept.iter().map(|runs| runs.iter().map(|run| run.len()).sum::<usize>());
    assert!(held.max().unwrap() < layout.len() * 2 / 3);
}

/// Others' parts of the values are addresses without memory: nothing may even look at them, since the pages
/// of a file in memory exist from the first look on.
#[test]
fn a_rank_has_no_memory_for_the_parts_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let taken = threads::spawn(3, |group| {
        let mut replica = replica_with(group, &divided(), adam());
        for step in 1..=STEPS {
            train(&mut replica, step);
        }
        replica.gather_residuals().unwrap();
        bits(&mut replica);
        let trained = (replica.held_values_for_tests(), replica.bytes_of_parts_for_tests().unwrap());
        let path = checkpoint::save_together(folder.path(), &mut replica, &at(STEPS)).unwrap();
        checkpoint::weights_sha256(&mut replica).unwrap();
        let saved = (replica.held_values_for_tests(), replica.bytes_of_parts_for_tests().unwrap());
        checkpoint::load(&path, &mut replica).unwrap();
        [trained, saved, (replica.held_values_for_tests(), replica.bytes_of_parts_for_tests().unwrap())]
    });
    const PAGE: usize = 4096;
    let page_of = |element: usize| element * size_of::<f32>() / PAGE;
    let taken = taken.unwrap().into_iter().enumerate();
    for (rank, (held, bytes)) in taken.flat_map(|(rank, after)| after.map(|after| (rank, after))) {
        let mut pages: Vec<usize> =
            held.iter().flat_map(|run| page_of(run.start)..=page_of(run.end - 1)).collect();
        pages.dedup();
        let all = page_of(layout().len() - 1) + 1;
        assert!(pages.len() < all * 2 / 3, "{rank}: the check can fail");
        // The page with the version.
        assert!(bytes <= ((pages.len() + 1) * PAGE) as u64, "{rank}: {bytes} bytes, {} pages", pages.len());
    }
}

#[test]
fn one_worker_has_all_values() {
    let mut replica = replica_with(Group::alone(), &divided(), adam());
    train(&mut replica, 1);
    assert_eq!(replica.held_values_for_tests(), vec![0..layout().len()]);
}

/// Five ranks on two hosts: each asks an owner on its own host where there is one, and else another than its
/// neighbors do.
#[test]
fn each_of_two_owners_answers() {
    let expected = alone(&config(Vec::new(), 0.0625), adam(), STEPS);
    for (world, over) in [(2, Over::SHM), (3, Over::TCP), (5, Over::Mixed)] {
        let config = Config { redundancy: 2, ..divided() };
        let ends = spawn(over, world, &Options::default(), |group| {
            let mut replica = replica_with(group, &config, adam());
            train(&mut replica, STEPS);
            let held: usize = replica.held_values_for_tests().iter().map(|run| run.len()).sum();
            (held, bits(&mut replica))
        });
        assert!(ends.iter().all(|(_, end)| *end == expected), "{world} ranks");
        assert_eq!(ends.iter().any(|(held, _)| *held < layout().len()), world > 2);
    }
}

/// A worker with at most one shard sums in the buffer of its gradients, which is longer than the message of
/// new values: that lacks what the owners keep.
#[test]
fn workers_with_at_most_one_shard_have_the_bits_of_the_plain_run() {
    for shards in 1..5 {
        let of_shards = |config: Config| Config { shards: Some(shards), ..config };
        let expected = alone(&of_shards(config(Vec::new(), 0.0625)), adam(), STEPS);
        for (world, redundancy) in [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (4, 2)] {
            for sharding in [Sharding::Optimizer, Sharding::Gradients, Sharding::Parameters] {
                let config = of_shards(Config { sharding, redundancy, ..divided() });
                let ends = threads::spawn(world, |group| {
                    let mut replica = replica_with(group, &config, adam());
                    train(&mut replica, STEPS);
                    bits(&mut replica)
                });
                let words = format!("{shards} shards, {world} workers, {sharding:?}, {redundancy} owners");
                assert!(ends.unwrap().iter().all(|end| *end == expected), "{words}");
            }
        }
    }
}

/// An owner that overflows tells the others.
#[test]
fn values_that_are_not_finite_are_the_same_error_on_all_ranks() {
    let errors = threads::spawn(3, |group| {
        let sgd = optimizer::named("sgd", &Settings::default()).unwrap();
        let mut replica = replica_with(group, &divided(), sgd);
        for _ in replica.shards() {
            // Only the last block of one tensor is stepped too far.
            let tensors = layout();
            let gradients = tensors.spans().iter().enumerate().map(|(number, span)| {
                let mut gradient = vec![0.0; span.len];
                if span.spec.name == "block.weight" {
                    gradient[span.len - 1] = 10.0;
                }
                (number, gradient)
            });
            crate::common::pass(&mut replica, 1.0, 1.0, gradients).unwrap();
        }
        let error = replica.step(f64::from(f32::MAX)).map(drop).and_then(|()| replica.step(RATE).map(drop));
        error.unwrap_err().to_string()
    });
    let errors = errors.unwrap();
    assert!(errors.iter().all(|error| *error == errors[0] && error.contains("block.weight")), "{errors:?}");
}

/// A forward pass can return no error: it gets NaN, and the next call names the owner.
#[test]
fn an_owner_that_has_left_is_named() {
    let gone = std::sync::Barrier::new(2);
    let ends = threads::spawn(2, |group| {
        let rank = group.rank().0;
        let mut replica = replica_with(group, &divided(), adam());
        train(&mut replica, 1);
        if rank == 1 {
            drop(replica);
            gone.wait();
            return String::new();
        }
        gone.wait();
        // It has some tensors itself.
        let mut lost = (0..layout().spans().len()).map(|number| {
            let values = replica.latest(SpanId(number));
            values.iter().all(|value| value.is_nan())
        });
        assert!(lost.any(|is_lost| is_lost));
        replica.begin_shard(1.0, 1.0).map(drop).unwrap_err().to_string()
    });
    let error = &ends.unwrap()[0];
    assert!(error.contains("rank 1"), "{error}");
}
