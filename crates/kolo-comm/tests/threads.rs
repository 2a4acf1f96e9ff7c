//! Ranks that are threads of one process. `bench/concurrency.sh` runs these tests under a sanitizer,
//! which cannot see other processes.

use kolo_comm::schedule::ALGORITHMS;
use kolo_comm::{Collective, Op, Options, Rank};
use kolo_testing::operations::{every_length, every_operation};
use kolo_testing::{Over, spawn};

#[test]
fn every_algorithm_and_operation() {
    for world in [2, 3] {
        spawn(Over::THREADS, world, &Options::default(), |group| {
            for algorithm in ALGORITHMS {
                if group.use_algorithm(Some(algorithm)).is_ok() {
                    every_length(&group, &[1, 65, 5_000, 70_000]);
                }
            }
            group.use_algorithm(None).unwrap();
            every_operation::<f32>(&group, 1_000);
        });
    }
}

#[test]
fn started_collectives_and_sub_groups_at_once() {
    spawn(Over::THREADS, 4, &Options::default(), |group| {
        let pair = group.split(Some(group.rank().0 as u32 % 2), 0).unwrap().unwrap();
        for round in 0..20 {
            let filled = |len: usize| group.copied(&vec![1f32; len]).unwrap();
            let pending: Vec<_> = [10, 3_000, 100_000]
                .map(|len| group.start(Collective::AllReduce(Op::Sum), filled(len)))
                .into();
            let mut slice = vec![1f32; 2_000 * (1 + round % 3)];
            pair.all_reduce(&mut slice, Op::Sum).unwrap();
            assert!(slice.iter().all(|x| *x == 2.0));
            for pending in pending {
                assert!(pending.wait().unwrap().iter().all(|x| *x == 4.0));
            }
        }
    });
}

/// The data that the leaving rank has sent must stay unchanged for the ranks that still add it.
#[test]
fn one_gives_up_in_the_middle_and_goes() {
    for round in 0..30 {
        spawn(Over::THREADS, 3, &Options::default(), |group| {
            for step in 0.. {
                if group.rank() == Rank(1) && step == round % 7 {
                    group.abandon("it has had enough");
                    break;
                }
                // Too long for a slot, so it lies in the ring of copies or in its own block.
                let mut data = vec![1f32; 20_000 * (1 + round % 5)];
                match group.all_reduce(&mut data, Op::Sum) {
                    Ok(()) => assert!(data.iter().all(|x| *x == 3.0)),
                    Err(_) => break,
                }
            }
        });
    }
}
