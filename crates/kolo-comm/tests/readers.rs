//! Sums for readers: values against plain additions in tree order, over every transport.

use std::sync::Arc;

use kolo_comm::schedule::ALGORITHMS;
use kolo_comm::tree::Contributions;
use kolo_comm::{Collective, Element, Error, Group, Number, Op, Options, Rank, Readers, bf16, f16};
use kolo_testing::operations::uneven;
use kolo_testing::{ALL, Over, spawn};

/// The contribution of a shard: every 50th element is not finite on some shard.
fn value(shard: usize, index: usize) -> f32 {
    match index % 50 {
        7 if shard == 1 => f32::NAN,
        8 if shard == 0 => f32::INFINITY,
        9 if shard <= 1 => [f32::INFINITY, f32::NEG_INFINITY][shard],
        10 if shard == 2 => f32::NEG_INFINITY,
        _ => uneven(shard, index),
    }
}

fn narrowed<T: Element>(sum: T::Sum) -> T {
    let mut narrow = [T::default()];
    T::narrow(&[sum], &mut narrow);
    narrow[0]
}

fn widened<T: Element>(value: T) -> T::Sum {
    let mut wide = [T::Sum::default()];
    T::widen(&[value], &mut wide);
    wide[0]
}

/// A float of the tested type.
trait Float: Element {
    fn of_f32(value: f32) -> Self;
}

macro_rules! float {
    ($($t:ty => $of:expr),*) => {
        $(impl Float for $t {
            fn of_f32(value: f32) -> Self {
                $of(value)
            }
        })*
    };
}

float!(f32 => f32::from, f64 => f64::from, f16 => f16::from_f32, bf16 => bf16::from_f32);

/// Adds shards `first .. first + count` in the order of the balanced tree.
fn plain<T: Float>(first: usize, count: usize, index: usize) -> T::Sum {
    if count == 1 {
        return widened(T::of_f32(value(first, index)));
    }
    let left = count.next_power_of_two() / 2;
    plain::<T>(first, left, index).add(plain::<T>(first + left, count - left, index))
}

fn same<T: Element>(one: T, other: T) -> bool {
    // Only a NaN differs from its copy.
    let differs = |value: T, copy: T| value != copy;
    one == other || differs(one, one) && differs(other, other)
}

/// Blocks with one reader each, with two, and of uneven lengths with none, one, some and all.
fn divisions(len: usize, world: usize) -> [Vec<(usize, Vec<Rank>)>; 3] {
    let cut = |rank: usize| rank * len / world;
    let block = |rank: usize| cut(rank + 1) - cut(rank);
    [
        (0..world).rev().map(|rank| (block(rank), vec![Rank(rank)])).collect(),
        (0..world).map(|rank| (block(rank), vec![Rank(rank), Rank((rank + 1) % world)])).collect(),
        vec![
            (len / 3, vec![Rank(world - 1)]),
            (0, vec![Rank(0)]),
            (len / 7, Vec::new()),
            (len / 5, (0..world).step_by(2).map(Rank).collect()),
            (len - len / 3 - len / 7 - len / 5, (0..world).map(Rank).collect()),
        ],
    ]
}

/// Compares every division with plain additions and with the all-reduce of the same contributions.
fn check<T: Float>(group: &Group, shards: usize, len: usize) {
    let (rank, world) = (group.rank(), group.world_size());
    let contributions = Arc::new(Contributions::shared(shards, world));
    let filled = || {
        let mut buffer = group.alloc::<T>(len * contributions.parts(rank)).unwrap();
        for (part, node) in contributions.of(rank).iter().enumerate() {
            for index in 0..len {
                buffer[part * len + index] = narrowed(plain::<T>(node.first, node.count, index));
            }
        }
        buffer
    };
    let all = group.run(&Collective::tree_sum(contributions.clone(), len), filled()).unwrap();
    for division in divisions(len, world) {
        let readers = Readers::of_blocks(division.clone());
        let sum = Collective::TreeSum { contributions: contributions.clone(), len, readers };
        // Started as the sum of a bucket is; the others run after it.
        let pending = group.start(sum.clone(), filled());
        let second = group.run(&sum, filled()).unwrap();
        let first = pending.wait().unwrap();
        let mut start = 0;
        for (len, readers) in division {
            for index in start..start + if readers.contains(&rank) { len } else { 0 } {
                let at = format!("{} of {rank} of {world}, {shards} shards, at {index}", T::DTYPE);
                assert!(same(first[index], all[index]) && same(second[index], all[index]), "{at}");
                // Contributions of several shards of 16-bit floats were rounded before.
                if T::DTYPE.sums_in_itself() || shards <= world {
                    let expected = narrowed(plain::<T>(0, shards, index));
                    assert!(same(first[index], expected), "{at}: {:?}, not {expected:?}", first[index]);
                }
            }
            start += len;
        }
    }
}

#[test]
fn readers_get_the_bits_of_plain_additions_in_tree_order() {
    for over in ALL {
        for world in 1..=7 {
            spawn(over, world, &Options::default(), |group| {
                for shards in [1, world, world + 1, 2 * world + 1] {
                    [0, 5, 1003].into_iter().for_each(|len| check::<f32>(&group, shards, len));
                    check::<f64>(&group, shards, 1003);
                    check::<f16>(&group, shards, 1003);
                    check::<bf16>(&group, shards, 1003);
                }
            });
        }
    }
}

#[test]
fn every_algorithm_that_keeps_the_tree_gives_readers_the_same_bits() {
    for over in ALL {
        for world in [4, 6] {
            spawn(over, world, &Options::default(), |group| {
                for algorithm in ALGORITHMS.iter().filter(|algorithm| algorithm.keeps_tree) {
                    if group.use_algorithm(Some(algorithm)).is_ok() {
                        check::<f32>(&group, world, 70_001);
                    }
                }
            });
        }
    }
}

#[test]
fn invalid_readers_are_refused_and_other_readers_noticed() {
    spawn(Over::SHM, 2, &Options::default(), |group| {
        let run = |blocks: &[(usize, usize)]| {
            let readers = Readers::of_blocks(blocks.iter().map(|(len, reader)| (*len, [Rank(*reader)])));
            let contributions = Arc::new(Contributions::one_each(2));
            let sum = Collective::TreeSum { contributions, len: 4, readers };
            group.run(&sum, group.alloc::<f32>(4).unwrap()).unwrap_err()
        };
        let short = run(&[(3, 0)]);
        assert!(short.is_refusal(), "{short}");
        assert_eq!(short.to_string(), "the readers' blocks have 3 elements in all, but the sum has 4");
        let absent = run(&[(2, 0), (2, 2)]);
        assert!(absent.is_refusal() && absent.to_string().contains("rank 2 cannot read a sum"), "{absent}");
        group.all_reduce(&mut [0u8], Op::Sum).unwrap();
        // Rank 0 expects to read what rank 1 expects to read.
        let other = run(&[(2, group.rank().0), (2, 1 - group.rank().0)]);
        assert!(matches!(other, Error::Mismatch { .. }), "{other}");
        assert!(other.to_string().contains("tree_sum(readers "), "{other}");
    });
}
