//! The conformance matrix and other tests of a group, over MPI, run by [`kolo_testing::mpirun`].

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use kolo_comm::env::WorkerEnv;
use kolo_comm::schedule::Chunks;
use kolo_comm::tree::{Contributions, Node};
use kolo_comm::{Collective, Group, Op, Options, Rank, Readers, bf16};
use kolo_mpi::BACKEND;
use kolo_testing::mpirun::{self, Case};
use kolo_testing::operations::{every_combination, every_length, tree_sum, uneven};

const CASES: &[Case] = &[
    Case::new("matrix", &[0, 1, 2, 3, 4], matrix),
    Case::new("sums", &[2, 3, 4], sums),
    Case::new("tree-sums", &[2, 3, 4], tree_sums),
    Case::new("extremes", &[3], extremes),
    Case::new("started", &[4], started),
    Case::new("sub-groups", &[4], sub_groups),
    Case::new("nodes", &[4], nodes),
    Case::new("threads", &[2], threads),
    Case::new("long", &[2], long),
    Case::new("wrong-calls", &[0, 2], wrong_calls),
    Case::new("ended", &[2], ended),
    Case::new("elsewhere", &[2], elsewhere),
    Case {
        fails_with: &["rank 1 ends the job: rank 1 gave up: it panicked"],
        ..Case::new("panics", &[3], panics)
    },
    Case {
        fails_with: &["rank 1 ends the job: rank 1 gave up: the disk is full"],
        ..Case::new("abandons", &[3], abandons)
    },
    Case { fails_with: &["rank 0 ends the job", "truncat"], ..Case::new("differing", &[2], differing) },
    Case {
        fails_with: &[
            "rank 0 called exchange of 3 f32, but rank 1 called exchange of 2 f32",
            "rank 0 ends the job",
        ],
        ..Case::new("short", &[2], short)
    },
    Case {
        variables: &[("KOLO_TIMEOUT", "1")],
        fails_with: &["rank 1 ends the job: this rank is done, but others are not after 1s", "KOLO_TIMEOUT"],
        ..Case::new("leaves", &[3], leaves)
    },
    Case { fails_with: &["rank 1 exits"], ..Case::new("exits", &[3], exits) },
    Case {
        variables: &[("RANK", "2"), ("WORLD_SIZE", "3"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "1")],
        fails_with: &["the launcher calls this worker rank 2 of 3, and MPI rank 0 of 1", "mpirun of "],
        ..Case::new("another-launcher", &[0], fails)
    },
    Case {
        variables: &[("KOLO_ALGORITHM", "ring")],
        fails_with: &["unset KOLO_ALGORITHM"],
        ..Case::new("algorithm", &[0], fails)
    },
    Case {
        variables: &[("KOLO_ENCRYPT", "1")],
        fails_with: &["the backend mpi does not know KOLO_ENCRYPT", "unset KOLO_ENCRYPT"],
        ..Case::new("encryption", &[0], fails)
    },
    Case {
        variables: &[("KOLO_BACKEND", "smoke")],
        fails_with: &["KOLO_BACKEND is `smoke`; this program knows native, mpi"],
        ..Case::new("unknown-backend", &[0], fails)
    },
];

fn main() -> ExitCode {
    mpirun::main(CASES, &kolo_mpi::library().unwrap())
}

fn options() -> Options {
    Options::from_env_with(&[&BACKEND]).unwrap()
}

fn group() -> Group {
    Group::of_job(&options()).unwrap()
}

fn matrix() {
    let group = group();
    assert_eq!(group.transport(), "mpi");
    every_length(&group, &[0, 1, 7, 100, 5_000, 150_003]);
    every_combination(&group);
}

/// Any order of additions costs a few roundings at most, and all ranks have the same bits.
fn sums() {
    let group = group();
    let (world, rank) = (group.world_size(), group.rank().0);
    for len in [1, 100, 70_001] {
        let mut data: Vec<f32> = (0..len).map(|i| uneven(rank, i)).collect();
        group.all_reduce(&mut data, Op::Sum).unwrap();
        for (i, sum) in data.iter().enumerate() {
            let expected: f64 = (0..world).map(|rank| f64::from(uneven(rank, i))).sum();
            let size = tree_sum(0, world, &|rank| uneven(rank, i).abs());
            assert!((f64::from(*sum) - expected).abs() <= 1e-6 * f64::from(size), "{sum}, not {expected}");
        }
        let mut all = vec![0.0; len * world];
        group.all_gather(&data, &mut all).unwrap();
        let bits = |data: &[f32]| data.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
        assert!(all.chunks(len).all(|other| bits(other) == bits(&data)), "ranks differ");
    }
    let value = |rank: usize, i: usize| bf16::from_f32(uneven(rank, i));
    let mut data: Vec<bf16> = (0..5000).map(|i| value(rank, i)).collect();
    group.all_reduce(&mut data, Op::Sum).unwrap();
    for (i, sum) in data.iter().enumerate() {
        let exact: f64 = (0..world).map(|rank| f64::from(value(rank, i).to_f32())).sum();
        let size = tree_sum(0, world, &|rank| value(rank, i).to_f32().abs());
        // One rounding to 8 bits, and those of `f32`.
        let allowed = exact.abs() / 256.0 + 1e-6 * f64::from(size);
        assert!((f64::from(sum.to_f32()) - exact).abs() <= allowed, "{sum}, not {exact}");
    }
}

fn tree_sums() {
    const LEN: usize = 3001;
    let group = group();
    for shards in [1, 4, 7] {
        let contributions = Arc::new(Contributions::shared(shards, group.world_size()));
        let nodes = contributions.of(group.rank());
        let mut buffer = group.alloc::<f32>(contributions.parts(group.rank()) * LEN + 5).unwrap();
        // The initial content of a rank without shards must not count.
        buffer.fill(1e9);
        let fill = |buffer: &mut [f32], nodes: &[Node]| {
            for (part, node) in nodes.iter().enumerate() {
                for i in 0..LEN {
                    buffer[part * LEN + i] = tree_sum(node.first, node.count, &|shard| uneven(shard, i));
                }
            }
        };
        fill(&mut buffer, nodes);
        let collective = Collective::tree_sum(contributions.clone(), LEN);
        let buffer = group.run(&collective, buffer).unwrap();
        let rank = group.rank();
        // Rank 0 reads all, and the last rank the second half.
        let last = Rank(group.world_size() - 1);
        let readers = Readers::of_blocks([(LEN / 2, vec![Rank(0)]), (LEN - LEN / 2, vec![Rank(0), last])]);
        let mut parts = group.alloc::<f32>(contributions.parts(rank) * LEN).unwrap();
        fill(&mut parts, contributions.of(rank));
        let collective = Collective::TreeSum { contributions: contributions.clone(), len: LEN, readers };
        let read = group.run(&collective, parts).unwrap();
        let place = if rank == Rank(0) { 0..LEN } else { LEN / 2..if rank == last { LEN } else { LEN / 2 } };
        let near = |i: usize| {
            let size = tree_sum(0, shards, &|shard| uneven(shard, i).abs());
            (read[i] - buffer[i]).abs() <= 1e-6 * size
        };
        assert!(place.clone().all(near), "{rank} reads {place:?}");
        for (i, sum) in buffer[..LEN].iter().enumerate() {
            let expected = tree_sum(0, shards, &|shard| uneven(shard, i));
            let size = tree_sum(0, shards, &|shard| uneven(shard, i).abs());
            assert!((sum - expected).abs() <= 1e-6 * size, "{sum}, not {expected}");
        }
    }
}

/// A NaN wins, on whichever rank it is; other numbers are compared as numbers.
fn extremes() {
    let group = group();
    for witness in 0..group.world_size() {
        let rank = group.rank().0;
        for op in [Op::Max, Op::Min] {
            let mut data = [if rank == witness { f32::NAN } else { 1.0 }, -(rank as f32)];
            group.all_reduce(&mut data, op).unwrap();
            assert!(data[0].is_nan(), "{data:?}");
            assert_eq!(data[1], if op == Op::Max { 0.0 } else { -2.0 });
            let mut data = [if rank == witness { f64::NAN } else { 1.0 }];
            group.all_reduce(&mut data, op).unwrap();
            assert!(data[0].is_nan(), "{data:?}");
        }
    }
}

fn started() {
    let group = group();
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
}

fn sub_groups() {
    let group = group();
    let rank = group.rank().0;
    // In reverse order, among the even ranks and among the odd ones.
    let half = group.split(Some(rank as u32 % 2), -(rank as i64)).unwrap().unwrap();
    assert_eq!(half.members(), [Rank(2 + rank % 2), Rank(rank % 2)]);
    assert_eq!(half.rank(), Rank(1 - rank / 2));
    every_length(&half, &[0, 1, 65]);
    let some = group.split((rank > 0).then_some(7), 0).unwrap();
    assert_eq!(some.is_none(), rank == 0);
    if let Some(some) = some {
        let mut sum = [rank as f32];
        some.all_reduce(&mut sum, Op::Sum).unwrap();
        assert_eq!((sum, some.world_size()), ([6.0], 3));
        let own = some.split(Some(rank as u32), 0).unwrap().unwrap();
        assert_eq!((own.world_size(), own.members()), (1, &[Rank(rank)][..]));
    }
    assert_eq!(group.node().unwrap().world_size(), 4, "all ranks of this test are on one host");
    assert_eq!(group.firsts().unwrap().is_some(), rank == 0);
    // A sub-group may outlive the group it was split from.
    drop(group);
    half.barrier().unwrap();
}

/// Nodes by name, as if there were two hosts.
fn nodes() {
    let place = WorkerEnv::from_env().unwrap().unwrap();
    let node = Some(format!("node {}", place.rank.0 / 2));
    let group = Group::join(&place, &Options { node, ..options() }).unwrap();
    assert_eq!(group.topology().nodes(), [[Rank(0), Rank(1)], [Rank(2), Rank(3)]]);
    let node = group.node().unwrap();
    assert_eq!(node.members()[0], Rank(group.rank().0 / 2 * 2));
    assert_eq!(node.topology().nodes().len(), 1);
    if let Some(firsts) = group.firsts().unwrap() {
        assert_eq!(firsts.members(), [Rank(0), Rank(2)]);
        assert_eq!(firsts.topology().nodes().len(), 2);
    }
}

/// Two groups at the same time, in either order on either rank.
fn threads() {
    let group = group();
    let other = group.split(Some(0), 0).unwrap().unwrap();
    let rounds = |group: &Group| {
        for round in 0..200 {
            let mut data = vec![round as f32; 1000];
            group.all_reduce(&mut data, Op::Sum).unwrap();
            assert!(data.iter().all(|x| *x == 2.0 * round as f32));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| rounds(&other));
        rounds(&group);
    });
    let (first, second) = if group.rank() == Rank(0) { (&group, &other) } else { (&other, &group) };
    let pending = first.start(Collective::Barrier, first.alloc::<u8>(1).unwrap());
    second.barrier().unwrap();
    pending.wait().unwrap();
}

/// More elements than one call of MPI takes.
fn long() {
    const CHUNK: usize = (1 << 26) + 3;
    let group = group();
    let rank = group.rank().0;
    let own = vec![rank as u8 + 1; CHUNK];
    let mut all = vec![0u8; 2 * CHUNK];
    let halves = |all: &[u8], first: u8, second: u8| {
        let right = all[..CHUNK].iter().all(|x| *x == first) && all[CHUNK..].iter().all(|x| *x == second);
        assert!(right, "{} {} {} {}", all[0], all[CHUNK - 1], all[CHUNK], all[2 * CHUNK - 1]);
    };
    group.all_gather(&own, &mut all).unwrap();
    halves(&all, 1, 2);
    group.all_reduce(&mut all, Op::Sum).unwrap();
    halves(&all, 2, 4);
    let mut chunk = vec![0; CHUNK];
    group.reduce_scatter(&all, &mut chunk, Op::Sum).unwrap();
    assert!(chunk.iter().all(|x| *x == 4 * (rank as u8 + 1)));
    group.gather(&own, &mut all, Rank(1)).unwrap();
    halves(&all, if rank == 1 { 1 } else { 2 }, if rank == 1 { 2 } else { 4 });
    group.scatter(&all, &mut chunk, Rank(0)).unwrap();
    assert!(chunk.iter().all(|x| *x == 2 * (rank as u8 + 1)));
    let mut taken = vec![0; 2 * CHUNK];
    group.all_to_all(&all, &mut taken).unwrap();
    if rank == 0 { halves(&taken, 2, 1) } else { halves(&taken, 4, 2) }
}

/// An invalid call affects only its caller.
fn wrong_calls() {
    let group = group();
    let world = group.world_size();
    for (collective, len) in [
        (Collective::Broadcast(Rank(world)), 1),
        (Collective::Barrier, 2),
        (Collective::AllGather(Chunks::Varied(vec![1; world].into())), world + 1),
        (Collective::AllToAll { send: [].into(), receive: [].into() }, 0),
    ] {
        let error = group.run(&collective, group.alloc::<f32>(len).unwrap()).unwrap_err();
        assert!(error.is_refusal(), "{error}");
    }
    assert!(group.run(&Collective::Barrier, Group::alone().alloc::<u8>(1).unwrap()).is_err());
    group.barrier().unwrap();
}

fn ended() {
    let first = group();
    let second = group();
    drop(first);
    second.barrier().unwrap();
    drop(second);
    let error = Group::of_job(&options()).err().unwrap().to_string();
    assert!(error.contains("cannot be started again"), "{error}");
}

/// The group ends on another thread than the one that has started MPI.
fn elsewhere() {
    let group = std::thread::spawn(group).join().unwrap();
    group.barrier().unwrap();
    std::thread::spawn(move || drop(group)).join().unwrap();
}

fn panics() {
    let group = group();
    assert!(group.rank() != Rank(1), "rank 1 has a bug");
    group.barrier().unwrap();
}

fn abandons() {
    let group = group();
    if group.rank() == Rank(1) {
        // Works even while the rank's own communication thread is inside MPI.
        let _pending = group.start(Collective::Barrier, group.alloc::<u8>(1).unwrap());
        std::thread::sleep(Duration::from_millis(100));
        group.abandon("the disk is full");
    }
    std::thread::sleep(Duration::from_millis(200));
    group.barrier().and(group.barrier()).unwrap();
}

/// Rank 0 receives more than it expects, and leaves in good order.
fn differing() {
    let group = group();
    if group.rank() == Rank(0) {
        let error = group.receive(&mut [0f32; 3], Rank(1)).unwrap_err();
        eprintln!("{error}");
    } else {
        let _ = group.send(&[0f32; 5], Rank(0));
        group.barrier().unwrap();
    }
}

/// Rank 0 receives less than it expects.
fn short() {
    let group = group();
    if group.rank() == Rank(0) {
        let error = group.receive(&mut [0f32; 3], Rank(1)).unwrap_err();
        eprintln!("{error}");
    } else {
        group.send(&[0f32; 2], Rank(0)).unwrap();
        group.barrier().unwrap();
    }
}

fn leaves() {
    let group = group();
    if group.rank() != Rank(1) {
        group.barrier().unwrap();
    }
}

fn exits() {
    let group = group();
    if group.rank() == Rank(1) {
        eprintln!("rank 1 exits");
        std::process::exit(3);
    }
    group.barrier().unwrap();
}

fn fails() {
    if let Err(error) = Options::from_env_with(&[&BACKEND]).and_then(|options| Group::of_job(&options)) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
