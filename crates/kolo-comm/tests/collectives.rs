//! Every collective over every transport, at many sizes and world sizes; every all-reduce algorithm.

mod common;

use std::sync::Arc;

use common::{ALL, Over, spawn};
use kolo_comm::schedule::ALGORITHMS;
use kolo_comm::tree::{Contributions, Node};
use kolo_comm::{Collective, Element, Error, Group, Op, Options, Rank};

const WORLDS: [usize; 7] = [1, 2, 3, 4, 5, 8, 9];
const LENGTHS: [usize; 6] = [0, 1, 7, 100, 5_000, 200_003];

/// Numbers whose sums depend on the order of additions.
fn number(rank: usize, index: usize) -> f32 {
    ((rank * 7919 + index * 104_729) as f32 * 0.001).sin() * 10f32.powi((index % 7) as i32 - 3)
}

/// The sum over ranks `first .. first + count` in the order of the tree.
fn tree_sum(first: usize, count: usize, value: &impl Fn(usize) -> f32) -> f32 {
    if count == 1 {
        return value(first);
    }
    let left = count.next_power_of_two() / 2;
    tree_sum(first, left, value) + tree_sum(first + left, count - left, value)
}

#[test]
fn all_reduce_by_every_algorithm() {
    for over in ALL {
        for algorithm in ALGORITHMS {
            let options = Options { algorithm: Some(algorithm), ..Options::default() };
            for world in WORLDS {
                if (algorithm.supports)(&Contributions::one_each(world)).is_err() {
                    continue;
                }
                let sums = spawn(over, world, &options, |group| {
                    let mut bits = Vec::new();
                    for len in LENGTHS {
                        let mut data: Vec<f32> = (0..len).map(|i| number(group.rank().0, i)).collect();
                        group.all_reduce(&mut data, Op::Sum).unwrap();
                        for (i, sum) in data.iter().enumerate() {
                            let expected = tree_sum(0, world, &|rank| number(rank, i));
                            // Another order of additions may cost a few roundings of the largest term.
                            let size = tree_sum(0, world, &|rank| number(rank, i).abs());
                            let close = (sum - expected).abs() <= 1e-6 * size;
                            let right = if algorithm.keeps_tree { *sum == expected } else { close };
                            assert!(right, "{over:?} {} {world}: {sum}, not {expected}", algorithm.name);
                        }
                        bits.extend(data.iter().map(|x| x.to_bits()));
                    }
                    bits
                });
                let sums: Vec<Vec<u32>> = sums.into_iter().map(Result::unwrap).collect();
                assert!(
                    sums.iter().all(|bits| *bits == sums[0]),
                    "{over:?} {} {world}: ranks differ",
                    algorithm.name
                );
            }
        }
    }
}

fn exact<T: Element>(group: &Group, of: impl Fn(usize) -> T, op: Op, expected: T) {
    let mut data = vec![of(group.rank().0); 37];
    group.all_reduce(&mut data, op).unwrap();
    assert_eq!(data, vec![expected; 37]);
}

#[test]
fn every_type_and_operation() {
    for over in ALL {
        for result in spawn(over, 3, &Options::default(), |group| {
            exact(&group, |r| r as i32 - 5, Op::Sum, -12);
            exact(&group, |r| 1i64 << (40 + r), Op::Sum, 7 << 40);
            exact(&group, |r| r as u8 + 250, Op::Sum, 241);
            exact(&group, |r| r as f64 * 0.5, Op::Average, 0.5);
            exact(&group, |r| r as f32, Op::Average, 1.0);
            exact(&group, |r| 4 * r as i32, Op::Average, 4);
            exact(&group, |r| (r as f32 - 1.0).abs() - 3.0, Op::Max, -2.0);
        }) {
            result.unwrap();
        }
    }
}

#[test]
fn the_other_collectives() {
    for over in ALL {
        for world in WORLDS {
            for result in spawn(over, world, &Options::default(), |group| {
                let rank = group.rank().0;
                for each in [0usize, 1, 5, 70_001] {
                    let value = |rank: usize, index: usize| (rank * 1_000_003 + index) as i64;
                    let own: Vec<i64> = (0..each).map(|i| value(rank, i)).collect();
                    let mut all = vec![0i64; each * world];
                    group.all_gather(&own, &mut all).unwrap();
                    let expected: Vec<i64> =
                        (0..world).flat_map(|r| (0..each).map(move |i| value(r, i))).collect();
                    assert_eq!(all, expected);

                    let mut chunk = vec![0i64; each];
                    group.reduce_scatter(&all, &mut chunk, Op::Sum).unwrap();
                    assert!(chunk.iter().zip(&own).all(|(sum, own)| *sum == own * world as i64));

                    for root in [0, world - 1] {
                        let mut data = own.clone();
                        group.broadcast(&mut data, Rank(root)).unwrap();
                        assert_eq!(data, (0..each).map(|i| value(root, i)).collect::<Vec<_>>());
                    }
                    group.barrier().unwrap();
                }
            }) {
                result.unwrap();
            }
        }
    }
}

#[test]
fn started_collectives_run_in_order_and_mix_with_blocking_ones() {
    for over in ALL {
        for result in spawn(over, 4, &Options::default(), |group| {
            let rank = group.rank().0 as f32;
            let pending: Vec<_> = (0..20)
                .map(|n| {
                    let mut buffer = group.alloc::<f32>(1000 * n).unwrap();
                    buffer.fill(rank + n as f32);
                    group.start(Collective::AllReduce(Op::Sum), buffer)
                })
                .collect();
            let mut small = [rank];
            group.all_reduce(&mut small, Op::Max).unwrap();
            assert_eq!(small, [3.0]);
            for (n, pending) in pending.into_iter().enumerate() {
                let buffer = pending.wait().unwrap();
                assert!(buffer.iter().all(|x| *x == 6.0 + 4.0 * n as f32));
            }
        }) {
            result.unwrap();
        }
    }
}

/// The same shards on any number of ranks give the same bits.
#[test]
fn tree_sums_do_not_depend_on_the_number_of_ranks() {
    const LEN: usize = 3001;
    for shards in [1usize, 4, 6, 7] {
        let expected: Vec<f32> = (0..LEN).map(|i| tree_sum(0, shards, &|shard| number(shard, i))).collect();
        for over in ALL {
            for world in [1usize, 2, 3, 4, 5, 9] {
                let contributions = Arc::new(Contributions::shared(shards, world));
                for sums in spawn(over, world, &Options::default(), |group| {
                    let nodes = contributions.of(group.rank());
                    let mut buffer = group.alloc::<f32>(LEN * contributions.parts(group.rank())).unwrap();
                    for (part, Node { first, count }) in nodes.iter().enumerate() {
                        for i in 0..LEN {
                            buffer[part * LEN + i] = tree_sum(*first, *count, &|shard| number(shard, i));
                        }
                    }
                    let sum = Collective::TreeSum { contributions: contributions.clone(), len: LEN };
                    group.run(&sum, buffer).unwrap()[..LEN].to_vec()
                }) {
                    assert_eq!(sums.unwrap(), expected, "{shards} shards on {world} ranks, {over:?}");
                }
            }
        }
    }
}

#[test]
fn wrong_calls_are_refused_and_harm_nobody() {
    for over in ALL {
        for result in spawn(over, 2, &Options::default(), |group| {
            let wrong = group.all_gather(&[0u8; 3], &mut [0u8; 5]).unwrap_err();
            assert!(matches!(wrong, Error::Invalid(_)), "{wrong}");
            let wrong = group.broadcast(&mut [0u8], Rank(2)).unwrap_err();
            assert!(wrong.to_string().contains("rank 2"), "{wrong}");
            let foreign = Group::alone().alloc::<f32>(4).unwrap();
            assert!(group.run(&Collective::AllReduce(Op::Sum), foreign).is_err());
            group.barrier().unwrap();
        }) {
            result.unwrap();
        }
    }
}

#[test]
fn the_environment_chooses_the_transport() {
    let names = |over| {
        let names = spawn(over, 2, &Options::default(), |group| group.transport());
        names.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    };
    assert_eq!(names(Over::Shm), ["shm", "shm"]);
    assert_eq!(names(Over::Tcp), ["tcp", "tcp"]);
    assert_eq!(names(Over::Threads), ["threads", "threads"]);
}
