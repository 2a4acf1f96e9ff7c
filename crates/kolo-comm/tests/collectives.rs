//! Started collectives, sums in tree order, invalid calls and sub-groups. `matrix.rs` tests all operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kolo_comm::hash::splitmix64;
use kolo_comm::schedule::{ALGORITHMS, Chunks, Message, Range};
use kolo_comm::tree::{Contributions, Node};
use kolo_comm::{Collective, Error, Group, Op, Options, Rank, SharedMemory, Token};
use kolo_testing::operations::{tree_sum, uneven};
use kolo_testing::{ALL, Over, spawn};

#[test]
fn started_collectives_run_in_order_and_mix_with_blocking_ones() {
    for over in ALL {
        spawn(over, 4, &Options::default(), |group| {
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
        });
    }
}

#[test]
fn many_tensors_at_once() {
    // Together more than one pack; some tensors are longer than a pack.
    let lens = [0usize, 1, 700, 300_000, 1_500_000, 3, 0, 900_000, 250_000, 5];
    for over in ALL {
        spawn(over, 3, &Options::default(), |group| {
            let value = |rank: usize, tensor: usize, i: usize| ((rank + 1) * (tensor * 31 + i % 97)) as f32;
            let fill = |(tensor, len): (usize, &usize)| {
                (0..*len).map(|i| value(group.rank().0, tensor, i)).collect::<Vec<f32>>()
            };
            let mut tensors: Vec<Vec<f32>> = lens.iter().enumerate().map(fill).collect();
            let mut slices: Vec<&mut [f32]> = tensors.iter_mut().map(|tensor| &mut tensor[..]).collect();
            group.all_reduce_many(&mut slices, Op::Sum).unwrap();
            for (tensor, sums) in tensors.iter().enumerate() {
                let expected = |i| 6.0 * value(0, tensor, i);
                assert!(sums.iter().enumerate().all(|(i, sum)| *sum == expected(i)), "tensor {tensor}");
            }
        });
    }
}

/// Slices of shared memory give what others give, on any ranks, and a reduce-scatter leaves its input.
#[test]
fn shared_memory_gives_the_same_as_slices() {
    for over in ALL {
        spawn(over, 3, &Options::default(), |group| {
            let (rank, mut memory) = (group.rank().0, SharedMemory::new(4 * 300_000).unwrap());
            for len in [0, 1, 40, 5_000, 90_000] {
                let plain: Vec<f32> = (0..3 * len).map(|i| uneven(rank, i)).collect();
                let (mut sums, mut expected) = (vec![0.0; len], vec![0.0; len]);
                let result = group.run(
                    &Collective::ReduceScatter(Op::Average, Chunks::Equal),
                    group.copied(&plain).unwrap(),
                );
                expected.copy_from_slice(&result.unwrap()[rank * len..][..len]);
                // Only one rank has its input in shared memory.
                let shared = &mut memory.elements::<f32>()[3..][..3 * len];
                shared.copy_from_slice(&plain);
                let input: &[f32] = if rank == 1 { shared } else { &plain };
                group.reduce_scatter(input, &mut sums, Op::Average).unwrap();
                assert_eq!(sums, expected, "{over:?}, {len} elements");
                assert_eq!(input, plain);

                let (mut whole, start) = (vec![0.0; 3 * len], rank * len);
                group.all_gather(&sums, &mut whole).unwrap();
                group.all_gather(&sums, shared).unwrap();
                assert_eq!(shared, whole);
                assert_eq!(whole[start..][..len], sums);
                let mut sums = plain.clone();
                group.all_reduce(&mut sums, Op::Sum).unwrap();
                shared.copy_from_slice(&plain);
                group.all_reduce(shared, Op::Sum).unwrap();
                assert_eq!(shared, sums);
            }
        });
    }
}

/// Leftovers of one collective must not affect the next: memory is reused, and some ranks are always ahead.
#[test]
fn long_and_short_ones_in_any_order() {
    const WORLD: usize = 5;
    const CALLS: u64 = 200;
    // The choice of the cost model, and the algorithm that copies most.
    let one_shot = ALGORITHMS.iter().find(|algorithm| algorithm.name == "one-shot");
    for (over, algorithm) in ALL.into_iter().flat_map(|over| [(over, None), (over, one_shot)]) {
        let options = Options { algorithm, ..Options::default() };
        spawn(over, WORLD, &options, |group| {
            let rank = group.rank().0;
            for call in 0..CALLS {
                // The same on all ranks.
                let draw = |salt: u64, below: usize| splitmix64(call * 8 + salt) as usize % below;
                let len = [draw(0, 8), draw(0, 600), draw(0, 20_000), draw(0, 150_000)][draw(1, 4)];
                let root = Rank(draw(2, WORLD));
                let value = |rank: usize, i: usize| ((rank + 2) * (i + call as usize)) as i64;
                let own: Vec<i64> = (0..len).map(|i| value(rank, i)).collect();
                let (data, expected): (Vec<i64>, Vec<i64>) = match draw(3, 3) {
                    0 => {
                        let mut data = own;
                        group.all_reduce(&mut data, Op::Sum).unwrap();
                        let sum = |i| (0..WORLD).map(|rank| value(rank, i)).sum();
                        (data, (0..len).map(sum).collect())
                    }
                    1 => {
                        let mut data = own;
                        group.broadcast(&mut data, root).unwrap();
                        (data, (0..len).map(|i| value(root.0, i)).collect())
                    }
                    _ => {
                        let mut data = vec![0; WORLD * len];
                        group.all_gather(&own, &mut data).unwrap();
                        (data, (0..WORLD * len).map(|i| value(i / len, i % len)).collect())
                    }
                };
                assert!(data == expected, "call {call} of {len} elements, {over:?}, {rank}");
            }
        });
    }
}

/// The same shards on any number of ranks give the same bits.
#[test]
fn tree_sums_do_not_depend_on_the_number_of_ranks() {
    const LEN: usize = 3001;
    for shards in [1usize, 4, 6, 7] {
        let expected: Vec<f32> = (0..LEN).map(|i| tree_sum(0, shards, &|shard| uneven(shard, i))).collect();
        for over in ALL {
            for world in [1usize, 2, 3, 4, 5, 9] {
                let last = (0..world).map(|rank| if rank + 1 == world { shards } else { 0 });
                let all_to_last = Contributions::of_shares(&last.collect::<Vec<_>>());
                for contributions in [Contributions::shared(shards, world), all_to_last] {
                    let contributions = Arc::new(contributions);
                    for sums in
                        spawn(over, world, &Options::default(), |group| sum_of(&group, &contributions, LEN))
                    {
                        assert_eq!(sums, expected, "{contributions:?}, {over:?}");
                    }
                }
            }
        }
    }
}

fn sum_of(group: &Group, contributions: &Arc<Contributions>, len: usize) -> Vec<f32> {
    let nodes = contributions.of(group.rank());
    let mut buffer = group.alloc::<f32>(len * contributions.parts(group.rank())).unwrap();
    for (part, Node { first, count }) in nodes.iter().enumerate() {
        for i in 0..len {
            buffer[part * len + i] = tree_sum(*first, *count, &|shard| uneven(shard, i));
        }
    }
    let sum = Collective::tree_sum(contributions.clone(), len);
    group.run(&sum, buffer).unwrap()[..len].to_vec()
}

#[test]
fn wrong_calls_are_refused_and_harm_nobody() {
    for over in ALL {
        spawn(over, 2, &Options::default(), |group| {
            let wrong = group.all_gather(&[0u8; 3], &mut [0u8; 5]).unwrap_err();
            assert!(matches!(wrong, Error::InvalidCall(_)), "{wrong}");
            let wrong = group.broadcast(&mut [0u8], Rank(2)).unwrap_err();
            assert!(wrong.to_string().contains("rank 2"), "{wrong}");
            let foreign = Group::alone().alloc::<f32>(4).unwrap();
            assert!(group.run(&Collective::AllReduce(Op::Sum), foreign).is_err());
            // A peer would read elements while they are written.
            let peer = Rank(1 - group.rank().0);
            let message =
                |start| -> Arc<[Message]> { [Message { peer, range: Range { start, len: 3 } }].into() };
            let exchange = Collective::Exchange { send: message(0), receive: message(2) };
            let wrong = group.run(&exchange, group.alloc::<f32>(6).unwrap()).unwrap_err();
            assert!(wrong.to_string().contains("sends and receives elements 2 to 3 of rank"), "{wrong}");
            group.barrier().unwrap();
        });
    }
}

#[test]
fn the_environment_chooses_the_transport() {
    let names = |over| spawn(over, 2, &Options::default(), |group| group.transport());
    assert_eq!(names(Over::SHM), ["shm", "shm"]);
    assert_eq!(names(Over::TCP), ["tcp", "tcp"]);
    assert_eq!(names(Over::THREADS), ["threads", "threads"]);
    let mixed = spawn(Over::Mixed, 3, &Options::default(), |group| group.transport());
    assert_eq!(mixed, ["shm+tcp", "shm+tcp", "tcp"]);
}

/// Splits odd and even ranks, the highest first; each half runs collectives between those of all ranks.
#[test]
fn a_group_splits_by_color_and_key() {
    for over in ALL {
        spawn(over, 5, &Options::default(), |group| {
            let rank = group.rank().0;
            let half = group.split(Some(rank as u32 % 2), -(rank as i64)).unwrap().unwrap();
            let members: Vec<usize> = half.members().iter().map(|member| member.0).collect();
            assert_eq!(members, if rank % 2 == 0 { vec![4, 2, 0] } else { vec![3, 1] });
            assert_eq!(half.members()[half.rank().0], group.rank());
            for len in [1usize, 3000] {
                let mut data = vec![rank as i64; len];
                half.all_reduce(&mut data, Op::Sum).unwrap();
                assert_eq!(data, vec![if rank % 2 == 0 { 6 } else { 4 }; len]);
                group.all_reduce(&mut data, Op::Max).unwrap();
                assert_eq!(data, vec![6; len]);
            }
            // The sub-group takes a buffer of the whole group, and can be split again.
            let buffer = half.run(&Collective::Broadcast(Rank(0)), group.copied(&[rank as u8]).unwrap());
            assert_eq!(buffer.unwrap()[0], if rank % 2 == 0 { 4 } else { 3 });
            let quarter = half.split((half.rank() == Rank(0)).then_some(7), 0).unwrap();
            assert_eq!(quarter.map(|quarter| quarter.world_size()), (rank > 2).then_some(1));
            group.barrier().unwrap();
        });
    }
}

#[test]
fn nodes_and_their_first_ranks_are_groups() {
    spawn(Over::Mixed, 5, &Options::default(), |group| {
        let rank = group.rank().0;
        assert_eq!(group.topology().nodes().len(), 3);
        let node = group.node().unwrap();
        assert_eq!((node.world_size(), node.rank().0), (if rank == 4 { 1 } else { 2 }, rank % 2));
        assert_eq!(node.transport(), if rank == 4 { "solo" } else { "shm" });
        let firsts = group.firsts().unwrap();
        assert_eq!(firsts.is_some(), rank % 2 == 0);
        if let Some(firsts) = firsts {
            let mut sum = [rank as i32];
            firsts.all_reduce(&mut sum, Op::Sum).unwrap();
            assert_eq!((sum, firsts.transport()), ([6], "tcp"));
        }
    });
}

/// Two groups run at once, each on its own thread, in no common order.
#[test]
fn groups_can_be_used_at_the_same_time() {
    for over in ALL {
        spawn(over, 4, &Options::default(), |group| {
            let pair = group.split(Some(group.rank().0 as u32 / 2), 0).unwrap().unwrap();
            let reduce = |group: &Group| {
                for n in 0..50 {
                    let mut data = vec![1f32; 100 * n];
                    group.all_reduce(&mut data, Op::Sum).unwrap();
                    assert!(data.iter().all(|x| *x == group.world_size() as f32));
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(|| reduce(&group));
                reduce(&pair);
            });
        });
    }
}

/// A rank's last message arrives even if the news that it has left is faster.
#[test]
fn a_message_outlives_its_sender() {
    let options = Options { delay: Duration::from_millis(20), ..Options::default() };
    spawn(Over::TCP, 2, &options, |group| {
        let mut data = [group.rank().0 as f32 + 7.0; 1000];
        if group.rank() == Rank(0) {
            group.send(&data, Rank(1)).unwrap();
        } else {
            group.receive(&mut data, Rank(0)).unwrap();
        }
        assert_eq!(data, [7.0; 1000]);
    });
}

/// Several connections between two ranks, and distance, change nothing but the time.
#[test]
fn several_streams_and_distance_give_the_same() {
    let delay = Duration::from_millis(2);
    let options = Options { streams: Some(3), delay, ..Options::default() };
    spawn(Over::TCP, 3, &options, |group| {
        let began = std::time::Instant::now();
        for len in [1usize, 100, 700_000] {
            let mut data = vec![group.rank().0 as f32; len];
            group.all_reduce(&mut data, Op::Sum).unwrap();
            assert_eq!(data, vec![3.0; len]);
        }
        // Every message takes at least its delay, however fast the machine is.
        assert!(began.elapsed() >= 3 * delay);
    });
}

/// Spare connections are open from the start and carry messages once they are used, encrypted or not.
#[test]
fn spare_streams_are_opened_and_used_when_asked_for() {
    let encrypted = Options {
        encrypt: true,
        token: Some(Token::new("a token of a test").unwrap()),
        ..Options::default()
    };
    for options in [Options::default(), encrypted] {
        let options = Options { spare_streams: Some(4), ..options };
        spawn(Over::TCP, 3, &options, |group| {
            assert_eq!(group.streams(), (1, 4));
            for (count, used) in [(4, 4), (3, 3), (1, 1), (9, 4), (0, 1)] {
                group.use_streams(count);
                assert_eq!(group.streams(), (used, 4));
                for len in [1usize, 100, 70_000] {
                    let mut data = vec![group.rank().0 as f32; len];
                    group.all_reduce(&mut data, Op::Sum).unwrap();
                    assert_eq!(data, vec![3.0; len]);
                }
            }
            // A sub-group opens as many and begins with as few.
            let pair = group.split((group.rank().0 < 2).then_some(0), 0).unwrap();
            assert!(pair.is_none_or(|pair| pair.streams() == (1, 4)));
        });
    }
}

/// Ranks report that they waited for the late rank, and for no other, where all ranks talk to each other.
#[test]
fn a_group_reports_its_waits_for_each_rank() {
    for over in ALL {
        // Other programs keep ranks from their cores for a while, in which ranks wait for those. Rank 1 comes
        // later with each try, until it is later than any of them.
        let delays = (0..7).map(|doublings| Duration::from_millis(250 << doublings));
        let tries: Vec<String> =
            delays.clone().map_while(|delay| late_rank_is_waited_for(over, delay).err()).collect();
        assert!(tries.len() < delays.len(), "{over:?}: {tries:?}");
    }
}

/// Lets rank 1 come so long after the others; fails with the waits that those report.
fn late_rank_is_waited_for(over: Over, delay: Duration) -> Result<(), String> {
    let algorithm = ALGORITHMS.iter().find(|algorithm| algorithm.name == "one-shot");
    let options = Options { algorithm, ..Options::default() };
    let there = AtomicUsize::new(0);
    let waited = spawn(over, 3, &options, |group| {
        // After the barrier, the measurements of the new group are over.
        group.barrier().unwrap();
        let before = group.waited();
        if group.rank() == Rank(1) {
            let mut turns = 0..60_000;
            while there.load(Ordering::Acquire) < 2 && turns.next().is_some() {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(delay);
        } else {
            there.fetch_add(1, Ordering::AcqRel);
        }
        group.all_reduce(&mut [1.0f32], Op::Sum).unwrap();
        group.waited().into_iter().zip(before).map(|(now, then)| now - then).collect::<Vec<Duration>>()
    });
    let right = |times: &Vec<Duration>| !times[1].is_zero() && times.iter().max() == Some(&times[1]);
    if right(&waited[0]) && right(&waited[2]) { Ok(()) } else { Err(format!("{waited:?}")) }
}

#[test]
fn two_ranks_exchange_more_messages_than_are_held_between_them() {
    const EACH: usize = 100;
    for over in ALL {
        spawn(over, 2, &Options::default(), |group| {
            let (here, peer) = (group.rank().0 as f32, Rank(1 - group.rank().0));
            let messages = |first: usize| -> Arc<[Message]> {
                (0..EACH).map(|n| Message { peer, range: Range { start: first + n, len: 1 } }).collect()
            };
            let exchange = Collective::Exchange { send: messages(0), receive: messages(EACH) };
            let numbers: Vec<f32> = (0..2 * EACH).map(|n| here * 1000.0 + n as f32).collect();
            let result = group.run(&exchange, group.copied(&numbers).unwrap()).unwrap();
            let expected = (0..EACH).map(|n| (1.0 - here) * 1000.0 + n as f32);
            assert!(expected.eq(result[EACH..].iter().copied()), "{over:?}");
        });
    }
}
