//! The conformance matrix: algorithms × operations × types × lengths × world sizes, over every transport.
//!
//! Every backend has to pass it. Numbers are small whole ones, so sums are exact in every type and order; the order
//! of additions is looked at apart.

mod common;

use common::{ALL, Over, spawn};
use kolo_comm::schedule::{ALGORITHMS, Algorithm, Operation, Problem};
use kolo_comm::tree::Contributions;
use kolo_comm::{Element, Error, Group, Op, Options, Rank, bf16, f16};

const LENGTHS: [usize; 6] = [0, 1, 7, 100, 5_000, 150_003];
const SHORT_LENGTHS: [usize; 3] = [0, 1, 65];

/// What a test needs of a type.
trait Value: Element {
    fn of(number: usize) -> Self;
}

macro_rules! value {
    ($($t:ty),*) => {$(
        impl Value for $t {
            fn of(number: usize) -> Self {
                number as $t
            }
        }
    )*};
}
value!(f32, f64, i32, i64, u8);

impl Value for f16 {
    fn of(number: usize) -> Self {
        f16::from_f32(number as f32)
    }
}

impl Value for bf16 {
    fn of(number: usize) -> Self {
        bf16::from_f32(number as f32)
    }
}

/// Small, so that sums and products of a few ranks are whole numbers in every type.
fn number(rank: usize, index: usize) -> usize {
    (index + 3 * rank) % 4
}

/// All ranks' numbers at an index, combined.
fn combined(op: Op, world: usize, index: usize) -> usize {
    let numbers = (0..world).map(|rank| number(rank, index));
    match op {
        Op::Sum => numbers.sum(),
        Op::Max => numbers.max().unwrap(),
        Op::Min => numbers.min().unwrap(),
        Op::Product => numbers.product(),
        Op::Average => unreachable!("averages are looked at apart"),
    }
}

fn check<T: Value>(what: &str, got: &[T], expected: impl Fn(usize) -> usize) {
    for (index, value) in got.iter().enumerate() {
        assert_eq!(*value, T::of(expected(index)), "{what}: element {index} of {}", got.len());
    }
}

/// Every operation on one type and length.
fn every_operation<T: Value>(group: &Group, len: usize) {
    let (world, rank) = (group.world_size(), group.rank().0);
    let own = |len: usize| (0..len).map(|index| T::of(number(rank, index))).collect::<Vec<T>>();
    for op in [Op::Sum, Op::Max, Op::Min] {
        let mut data = own(len);
        group.all_reduce(&mut data, op).unwrap();
        check("all_reduce", &data, |index| combined(op, world, index));
    }
    let mut output = own(len);
    group.all_reduce_into(&own(len), &mut output, Op::Sum).unwrap();
    check("all_reduce_into", &output, |index| combined(Op::Sum, world, index));

    let mut chunk = own(len);
    group.reduce_scatter(&own(len * world), &mut chunk, Op::Sum).unwrap();
    check("reduce_scatter", &chunk, |index| combined(Op::Sum, world, rank * len + index));

    let gathered = |index: usize| number(index / len.max(1), index % len.max(1));
    let mut all = vec![T::default(); len * world];
    group.all_gather(&own(len), &mut all).unwrap();
    check("all_gather", &all, gathered);

    let varied = |rank: usize| len * (rank % 3) / 2;
    for (from, got) in group.all_gather_varied(&own(varied(rank))).unwrap().iter().enumerate() {
        assert_eq!(got.len(), varied(from));
        check("all_gather_varied", got, |index| number(from, index));
    }

    for root in [0, world - 1] {
        let mut data = own(len);
        group.broadcast(&mut data, Rank(root)).unwrap();
        check("broadcast", &data, |index| number(root, index));

        let mut data = own(len);
        group.reduce(&mut data, Op::Sum, Rank(root)).unwrap();
        let right = |index| if rank == root { combined(Op::Sum, world, index) } else { number(rank, index) };
        check("reduce", &data, right);

        let mut all = if rank == root { vec![T::default(); len * world] } else { Vec::new() };
        group.gather(&own(len), &mut all, Rank(root)).unwrap();
        check("gather", &all, gathered);

        let mut chunk = vec![T::default(); len];
        let input = if rank == root { own(len * world) } else { Vec::new() };
        group.scatter(&input, &mut chunk, Rank(root)).unwrap();
        check("scatter", &chunk, |index| number(root, rank * len + index));
    }

    let mut all = vec![T::default(); len * world];
    group.all_to_all(&own(len * world), &mut all).unwrap();
    check("all_to_all", &all, |index| number(index / len.max(1), rank * len + index % len.max(1)));

    let sent = |from: usize, to: usize| len * ((from + 2 * to) % 3) / 2;
    let inputs: Vec<Vec<T>> = (0..world).map(|to| own(sent(rank, to))).collect();
    let inputs: Vec<&[T]> = inputs.iter().map(Vec::as_slice).collect();
    for (from, got) in group.all_to_all_varied(&inputs).unwrap().iter().enumerate() {
        assert_eq!(got.len(), sent(from, rank));
        check("all_to_all_varied", got, |index| number(from, index));
    }

    if world > 1 {
        let (next, previous) = (Rank((rank + 1) % world), Rank((rank + world - 1) % world));
        let mut taken = own(len);
        group.send_receive(&own(len), next, &mut taken, previous).unwrap();
        check("send_receive", &taken, |index| number(previous.0, index));
        if rank == 0 {
            group.send(&own(len), Rank(world - 1)).unwrap();
        } else if rank == world - 1 {
            group.receive(&mut taken, Rank(0)).unwrap();
            check("receive", &taken, |index| number(0, index));
        }
    }
    group.barrier().unwrap();
}

fn supported(group: &Group, algorithm: &Algorithm) -> bool {
    let contributions = Contributions::one_each(group.world_size());
    let (operation, topology) = (&Operation::AllReduce, group.topology());
    let (rank, contributions) = (Rank(0), &contributions);
    let problem = Problem { operation, rank, len: 1, contributions, topology, segment: 1 };
    (algorithm.supports)(&problem).is_ok()
}

/// The algorithms that can be forced on a group, and the free choice.
fn algorithms(group: &Group) -> Vec<Option<&'static Algorithm>> {
    let forced = ALGORITHMS.iter().filter(|algorithm| supported(group, algorithm)).map(Some);
    if group.world_size() == 1 { vec![None] } else { forced.chain([None]).collect() }
}

fn matrix(over: Over, world: usize, lengths: &[usize]) {
    for result in spawn(over, world, &Options::default(), |group| {
        for algorithm in algorithms(&group) {
            group.use_algorithm(algorithm).unwrap();
            for &len in lengths {
                every_operation::<f32>(&group, len);
                every_operation::<u8>(&group, len);
            }
            let short = lengths[lengths.len() / 2];
            every_operation::<f64>(&group, short);
            every_operation::<i32>(&group, short);
            every_operation::<i64>(&group, short);
            every_operation::<f16>(&group, short);
            every_operation::<bf16>(&group, short);
        }
    }) {
        result.unwrap();
    }
}

#[test]
fn one_to_nine_ranks() {
    for over in ALL {
        for world in 1..=9 {
            matrix(over, world, if world <= 4 { &LENGTHS } else { &LENGTHS[..5] });
        }
    }
}

#[test]
fn many_ranks_with_short_lengths() {
    for over in ALL {
        for world in [16, 32] {
            matrix(over, world, &SHORT_LENGTHS);
        }
    }
}

#[test]
fn sixty_four_ranks() {
    for over in [Over::Shm, Over::Tcp] {
        for result in spawn(over, 64, &Options::default(), |group| {
            SHORT_LENGTHS.iter().for_each(|len| every_operation::<f32>(&group, *len));
        }) {
            result.unwrap();
        }
    }
}

#[test]
fn every_type_does_every_operation() {
    fn all<T: Value>(group: &Group) {
        let of = |number| vec![T::of(number); 37];
        for (op, expected) in [(Op::Sum, 12), (Op::Average, 4), (Op::Max, 6), (Op::Min, 2), (Op::Product, 48)]
        {
            let mut data = of(2 * (group.rank().0 + 1));
            group.all_reduce(&mut data, op).unwrap();
            assert_eq!(data, of(expected), "{op} of {}", T::DTYPE);
        }
    }
    for over in ALL {
        for result in spawn(over, 3, &Options::default(), |group| {
            all::<f32>(&group);
            all::<f64>(&group);
            all::<f16>(&group);
            all::<bf16>(&group);
            all::<i32>(&group);
            all::<i64>(&group);
            all::<u8>(&group);
        }) {
            result.unwrap();
        }
    }
}

/// Numbers whose sums depend on the order of additions.
fn uneven(rank: usize, index: usize) -> f32 {
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
fn sums_of_floats_are_those_of_the_tree_and_equal_everywhere() {
    for over in ALL {
        for world in [2usize, 3, 4, 5, 8, 9] {
            let bits = spawn(over, world, &Options::default(), |group| {
                let mut bits = Vec::new();
                for algorithm in algorithms(&group) {
                    group.use_algorithm(algorithm).unwrap();
                    for len in [1, 100, 70_001] {
                        let mut data: Vec<f32> = (0..len).map(|i| uneven(group.rank().0, i)).collect();
                        group.all_reduce(&mut data, Op::Sum).unwrap();
                        for (i, sum) in data.iter().enumerate() {
                            let expected = tree_sum(0, world, &|rank| uneven(rank, i));
                            // Another order of additions may cost a few roundings of the largest term.
                            let size = tree_sum(0, world, &|rank| uneven(rank, i).abs());
                            let exact = algorithm.is_none_or(|algorithm| algorithm.keeps_tree);
                            let right = *sum == expected || !exact && (sum - expected).abs() <= 1e-6 * size;
                            let name = algorithm.map_or("the choice", |algorithm| algorithm.name);
                            assert!(right, "{over:?} {name} {world}: {sum}, not {expected}");
                        }
                        bits.extend(data.iter().map(|x| x.to_bits()));
                    }
                }
                bits
            });
            let bits: Vec<Vec<u32>> = bits.into_iter().map(Result::unwrap).collect();
            assert!(bits.iter().all(|rank| *rank == bits[0]), "{over:?} {world}: ranks differ");
        }
    }
}

/// 16-bit floats are added in `f32` and rounded once.
#[test]
fn sums_of_16_bit_floats_round_once() {
    for over in ALL {
        for result in spawn(over, 4, &Options::default(), |group| {
            let value = |rank: usize, i: usize| bf16::from_f32(uneven(rank, i));
            let mut data: Vec<bf16> = (0..5000).map(|i| value(group.rank().0, i)).collect();
            group.all_reduce(&mut data, Op::Sum).unwrap();
            for (i, sum) in data.iter().enumerate() {
                assert_eq!(*sum, bf16::from_f32(tree_sum(0, 4, &|rank| value(rank, i).to_f32())));
            }
        }) {
            result.unwrap();
        }
    }
}

#[test]
fn an_algorithm_that_cannot_serve_the_group_is_refused() {
    let hierarchical = ALGORITHMS.iter().find(|algorithm| algorithm.name == "hierarchical");
    let options = Options { algorithm: hierarchical, ..Options::default() };
    for result in spawn(Over::Shm, 2, &options, |_| ()) {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)) && error.to_string().contains("several nodes"), "{error}");
    }
}
