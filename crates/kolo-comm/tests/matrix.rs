//! The conformance matrix: algorithms × operations × types × lengths × world sizes, over every transport.
//!
//! Every backend has to pass it. Numbers are small integers, so sums are exact in every type and order;
//! another test checks the order of additions.

use kolo_comm::schedule::{ALGORITHMS, Algorithm, Operation, Problem};
use kolo_comm::tree::Contributions;
use kolo_comm::{Error, Group, Op, Options, Rank, bf16};
use kolo_testing::operations::{every_combination, every_length, every_operation, tree_sum, uneven};
use kolo_testing::{ALL, Over, is_thorough, selected, spawn, try_spawn};

const LENGTHS: [usize; 6] = [0, 1, 7, 100, 5_000, 150_003];
const SHORT_LENGTHS: [usize; 3] = [0, 1, 65];

fn supported(group: &Group, algorithm: &Algorithm) -> bool {
    let contributions = Contributions::one_each(group.world_size());
    let (operation, topology) = (&Operation::AllReduce, group.topology());
    let (rank, contributions) = (Rank(0), &contributions);
    let problem = Problem { operation, rank, len: 1, contributions, topology, segment: 1 };
    (algorithm.build)(&problem).is_ok()
}

/// The algorithms that can be forced on a group, and the free choice.
fn algorithms(group: &Group) -> Vec<Option<&'static Algorithm>> {
    let forced = ALGORITHMS.iter().filter(|algorithm| supported(group, algorithm)).map(Some);
    if group.world_size() == 1 { vec![None] } else { forced.chain([None]).collect() }
}

fn matrix(over: Over, world: usize, lengths: &[usize]) {
    spawn(over, world, &Options::default(), |group| {
        for algorithm in algorithms(&group) {
            group.use_algorithm(algorithm).unwrap();
            every_length(&group, lengths);
        }
    });
}

#[test]
fn one_to_nine_ranks() {
    let some = [1, 2, 3, 5];
    for over in ALL {
        for world in (1..=9).filter(|world| is_thorough() || some.contains(world)) {
            let lengths =
                if world <= 3 || is_thorough() && world == 4 { &LENGTHS[..] } else { &LENGTHS[..5] };
            matrix(over, world, lengths);
        }
    }
}

#[test]
fn many_ranks_with_short_lengths() {
    for over in ALL {
        for world in if is_thorough() { &[16, 32][..] } else { &[9] } {
            matrix(over, *world, &SHORT_LENGTHS);
        }
    }
}

#[test]
fn sixty_four_ranks() {
    // Two thousand connections take most of the time.
    for over in selected(1, [Over::SHM, Over::TCP]) {
        spawn(over, 64, &Options::default(), |group| {
            SHORT_LENGTHS.iter().for_each(|len| every_operation::<f32>(&group, *len));
        });
    }
}

#[test]
fn every_type_does_every_operation() {
    for over in ALL {
        spawn(over, 3, &Options::default(), |group| {
            every_combination(&group);
        });
    }
}

#[test]
fn sums_of_floats_are_those_of_the_tree_and_equal_everywhere() {
    for over in ALL {
        for world in selected(3, [3usize, 4, 5, 2, 8, 9]) {
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
            assert!(bits.iter().all(|rank| *rank == bits[0]), "{over:?} {world}: ranks differ");
        }
    }
}

/// 16-bit floats are added in `f32` and rounded once.
#[test]
fn sums_of_16_bit_floats_round_once() {
    for over in ALL {
        spawn(over, 4, &Options::default(), |group| {
            let value = |rank: usize, i: usize| bf16::from_f32(uneven(rank, i));
            let mut data: Vec<bf16> = (0..5000).map(|i| value(group.rank().0, i)).collect();
            group.all_reduce(&mut data, Op::Sum).unwrap();
            for (i, sum) in data.iter().enumerate() {
                assert_eq!(*sum, bf16::from_f32(tree_sum(0, 4, &|rank| value(rank, i).to_f32())));
            }
        });
    }
}

#[test]
fn an_algorithm_that_cannot_serve_the_group_is_refused() {
    let hierarchical = ALGORITHMS.iter().find(|algorithm| algorithm.name == "hierarchical");
    let options = Options { algorithm: hierarchical, ..Options::default() };
    for result in try_spawn(Over::SHM, 2, &options, |_| ()) {
        let error = result.unwrap_err();
        assert!(
            matches!(error, Error::AlgorithmUnusable { .. }) && error.to_string().contains("several nodes"),
            "{error}"
        );
    }
}
