//! Deferred sums: they have the bits of a sum in tree order, and their memory stays unchanged until the
//! last rank has read it.

use std::collections::HashSet;
use std::process::{Command, Stdio};
use std::sync::{Arc, Barrier};

use kolo_comm::schedule::ALGORITHMS;
use kolo_comm::tree::Contributions;
use kolo_comm::{
    Buffer, Collective, Deferred, DeferredSum, Element, Error, Group, Op, Options, Pending, Rank, SumParts,
    env,
};
use kolo_testing::jobs::example;
use kolo_testing::{Over, free_port, spawn};

const IN_PLACE: [Over; 2] = [Over::THREADS, Over::SHM];

/// Longer than the block that the reader adds at once.
const LEN: usize = 10_007;

fn value(rank: Rank, round: usize, index: usize) -> f32 {
    ((rank.0 * 7_919 + round * 977 + index * 31) as f32 * 0.37).sin() * 1e3
}

fn fill(buffer: &mut Buffer<f32>, rank: Rank, round: usize) {
    buffer.iter_mut().enumerate().for_each(|(index, element)| *element = value(rank, round, index));
}

fn start<T: Element>(group: &Group, shards: usize, buffer: Buffer<T>) -> Deferred<T> {
    let contributions = Arc::new(Contributions::shared(shards, group.world_size()));
    try_start(group, contributions, LEN, buffer).unwrap()
}

fn try_start<T: Element>(
    group: &Group,
    contributions: Arc<Contributions>,
    len: usize,
    buffer: Buffer<T>,
) -> Result<Deferred<T>, Error> {
    Ok(group.defer_sums(vec![SumParts { contributions, len, buffer }])?.remove(0))
}

/// Reads all of a sum, in pieces of an odd length.
fn read(sum: &mut DeferredSum<f32>) -> Vec<u32> {
    let mut all = vec![0.0; LEN];
    for (number, piece) in all.chunks_mut(1_234).enumerate() {
        let first = number * 1_234;
        sum.add_into(first..first + piece.len(), piece);
    }
    all.into_iter().map(f32::to_bits).collect()
}

#[test]
fn the_bits_are_those_of_a_tree_sum_and_two_buffers_take_turns() {
    for over in IN_PLACE {
        for (world, shards) in [(2, 2), (2, 4), (2, 7), (3, 5), (4, 4), (3, 2)] {
            let ends = spawn(over, world, &Options::default(), |group| {
                assert!(group.defers_sums());
                let contributions = Arc::new(Contributions::shared(shards, world));
                let parts = contributions.parts(group.rank());
                let mut buffer = group.alloc::<f32>(LEN * parts).unwrap();
                let mut places = HashSet::new();
                for round in 0..8 {
                    fill(&mut buffer, group.rank(), round);
                    places.insert(buffer.as_ptr().addr());
                    let expected = group.copied(&buffer).unwrap();
                    let tree = Collective::tree_sum(contributions.clone(), LEN);
                    let expected = group.run(&tree, expected).unwrap();
                    let (mut sum, another) = start(&group, shards, buffer);
                    assert_eq!(another.len(), LEN * parts);
                    let expected: Vec<u32> = expected[..LEN].iter().map(|x| x.to_bits()).collect();
                    assert!(read(&mut sum) == expected, "{over:?}, {shards} shards on {world}, {round}");
                    buffer = another;
                }
                places.len()
            });
            for places in ends {
                assert!(places <= 2, "{over:?}: a buffer that all have read is used again");
            }
        }
    }
}

#[test]
fn several_sums_are_made_together() {
    for over in IN_PLACE {
        spawn(over, 3, &Options::default(), |group| {
            for round in 0..4 {
                let contributions = Arc::new(Contributions::shared(4, 3));
                let (mut sums, mut expected) = (Vec::new(), Vec::new());
                for len in [LEN, 0, 1, 300] {
                    let mut buffer = group.alloc::<f32>(len * contributions.parts(group.rank())).unwrap();
                    fill(&mut buffer, group.rank(), 10 * round + len);
                    let tree = Collective::tree_sum(contributions.clone(), len);
                    let sum = group.run(&tree, group.copied(&buffer).unwrap()).unwrap();
                    let sum: Vec<u32> = sum[..len].iter().map(|x| x.to_bits()).collect();
                    expected.push((sum, buffer.len()));
                    sums.push(SumParts { contributions: contributions.clone(), len, buffer });
                }
                // In one round the sums queue behind a started collective.
                let queued = (round == 2).then(|| group.start(Collective::Barrier, group.alloc(1).unwrap()));
                let sums = group.defer_sums::<f32>(sums).unwrap();
                assert_eq!(sums.len(), expected.len());
                queued.map(|barrier: Pending<Buffer<u8>>| barrier.wait().unwrap());
                for ((mut sum, another), (expected, parts)) in sums.into_iter().zip(expected).rev() {
                    assert_eq!(another.len(), parts);
                    let mut all = vec![0.0; sum.len()];
                    sum.add_into(0..sum.len(), &mut all);
                    assert!(all.into_iter().map(f32::to_bits).eq(expected), "{over:?}, {round}");
                }
            }
            assert!(group.defer_sums::<f32>(Vec::new()).unwrap().is_empty());
        });
    }
}

#[test]
fn ranks_that_make_different_numbers_of_sums_get_an_error() {
    for over in IN_PLACE {
        let ends = spawn(over, 2, &Options::default(), |group| {
            let parts = || {
                let contributions = Arc::new(Contributions::one_each(2));
                SumParts { contributions, len: LEN, buffer: group.alloc::<f32>(LEN).unwrap() }
            };
            let sums = (0..=group.rank().0).map(|_| parts()).collect();
            group.defer_sums(sums).err().unwrap()
        });
        assert!(ends.iter().all(|error| matches!(error, Error::Mismatch { .. })), "{over:?}: {ends:?}");
    }
}

#[test]
fn no_rank_changes_memory_that_another_one_still_reads() {
    for over in IN_PLACE {
        spawn(over, 2, &Options::default(), |group| {
            let (mut kept, mut expected) = (Vec::new(), Vec::new());
            let mut buffer = group.alloc::<f32>(LEN).unwrap();
            for round in 0..6 {
                fill(&mut buffer, group.rank(), round);
                let (mut sum, another) = start(&group, 2, buffer);
                expected.push(read(&mut sum));
                if group.rank() == Rank(0) && round < 4 {
                    kept.push(sum);
                }
                buffer = another;
                buffer.fill(f32::NAN);
            }
            let rest = expected.into_iter().zip(kept);
            rest.for_each(|(expected, mut sum)| assert!(read(&mut sum) == expected, "{over:?}"));
        });
    }
}

#[test]
fn a_sum_outlives_the_groups_of_all_ranks() {
    for over in IN_PLACE {
        let gone = Barrier::new(2);
        let ends = spawn(over, 2, &Options::default(), |group| {
            let mut buffer = group.alloc::<f32>(LEN).unwrap();
            fill(&mut buffer, group.rank(), 0);
            let (mut sum, another) = start(&group, 2, buffer);
            let expected = read(&mut sum);
            let sum = (group.rank() == Rank(0)).then_some(sum);
            drop((another, group));
            gone.wait();
            sum.is_none_or(|mut sum| read(&mut sum) == expected)
        });
        assert_eq!(ends, [true; 2], "{over:?}");
    }
}

/// A process dies after it has shown its contribution; the other process can still read that.
#[test]
fn a_death_after_the_sum_was_started_takes_nothing_from_the_others() {
    let master = free_port();
    let start = |rank: usize| {
        Command::new(example("reducing_worker"))
            .arg("die-deferred")
            .env(env::RANK, rank.to_string())
            .env(env::WORLD_SIZE, "2")
            .env(env::MASTER_PORT, master.port().to_string())
            .env(env::TRANSPORT, "shm")
            .env(env::TIMEOUT, "60")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let [zero, one] = [0, 1].map(start).map(|child| child.wait_with_output().unwrap());
    let output = String::from_utf8_lossy(&zero.stdout);
    assert!(!one.status.success(), "rank 1 was to die");
    assert_eq!(output, "100000 elements are right\nerror: rank 1 died\n");
}

#[test]
fn where_ranks_cannot_read_each_other_a_sum_is_not_deferred() {
    let refused = |over, options: &Options| {
        let ends = spawn(over, 2, options, |group| {
            let contributions = Arc::new(Contributions::one_each(2));
            let buffer = group.alloc::<f32>(LEN).unwrap();
            let refusal = try_start(&group, contributions, LEN, buffer).err();
            group.barrier().unwrap();
            (group.defers_sums(), refusal.map(|error| (error.is_refusal(), error.to_string())))
        });
        for (defers, refusal) in ends {
            let (is_refusal, message) = refusal.unwrap();
            assert!(
                !defers && is_refusal && message.contains("read each other's buffers"),
                "{over:?}: {message}"
            );
        }
    };
    refused(Over::TCP, &Options::default());
    assert!(!Group::alone().defers_sums());
    let direct = ALGORITHMS.iter().find(|algorithm| algorithm.name == "direct");
    let ends = spawn(Over::SHM, 2, &Options { algorithm: direct, ..Options::default() }, |group| {
        group.barrier().unwrap();
        group.defers_sums()
    });
    assert_eq!(ends, [false; 2], "an algorithm was asked for");
}

#[test]
fn wrong_calls_are_named() {
    for over in IN_PLACE {
        let ends = spawn(over, 2, &Options::default(), |group| {
            let contributions = || Arc::new(Contributions::one_each(2));
            let short = group.alloc::<f32>(LEN - 1).unwrap();
            let error = try_start(&group, contributions(), LEN, short).err().unwrap();
            assert!(error.is_refusal(), "{over:?}: {error}");
            group.barrier().unwrap();
            let buffer = group.alloc::<f32>(LEN).unwrap();
            match group.rank() {
                Rank(0) => try_start(&group, contributions(), LEN, buffer).err().unwrap(),
                _ => group.run(&Collective::AllReduce(Op::Sum), buffer).unwrap_err(),
            }
        });
        assert!(ends.iter().all(|error| matches!(error, Error::Mismatch { .. })), "{ends:?}");
        let ends = spawn(over, 2, &Options::default(), |group| {
            let len = LEN - group.rank().0;
            let buffer = group.alloc::<f32>(len).unwrap();
            let contributions = Arc::new(Contributions::one_each(2));
            try_start(&group, contributions, len, buffer).err().unwrap()
        });
        for error in ends {
            let message = error.to_string();
            assert!(
                message.contains("parts of 40028 bytes") && message.contains("parts of 40024"),
                "{message}"
            );
        }
    }
}
