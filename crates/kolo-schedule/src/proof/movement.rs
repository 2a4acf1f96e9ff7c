//! Operations that move data and add nothing.

use super::machine::{Expression, prove};
use super::{prove_all, varied};
use crate::tree::Contributions;
use crate::*;

fn cell_name(rank: usize, cell: usize) -> Expression {
    format!("{rank}.{cell}").into()
}

/// Returns memory in which every cell of every rank has its own name.
fn named(lens: &[usize]) -> Vec<Vec<Expression>> {
    let of = |(rank, &len): (usize, &usize)| (0..len).map(|cell| cell_name(rank, cell)).collect();
    lens.iter().enumerate().map(of).collect()
}

#[test]
fn all_gather_and_broadcast_copy_buffers() {
    for world in 1usize..=17 {
        let topology = Topology::single(world);
        for chunks in [Chunks::Equal, varied(world)] {
            let operation = Operation::AllGather(chunks.clone());
            let total = |len: usize| chunks.ranges(len, world).last().map_or(0, |range| range.end());
            let memory = |_: &Contributions, len| named(&vec![total(len); world]);
            let check = |memory: &[Vec<Expression>], len: usize, _: &dyn Fn(&str) -> bool, at: &str| {
                for (owner, range) in chunks.ranges(len, world).into_iter().enumerate() {
                    let right = |cell: usize| memory.iter().all(|m| m[cell] == cell_name(owner, cell));
                    assert!((range.start..range.end()).all(right), "{at}");
                }
            };
            let proved = prove_all(world, world, &topology, &operation, true, memory, check);
            assert!(proved.contains(&"direct") && proved.contains(&"ring"), "{proved:?}");
        }
        for root in [0, world / 2, world - 1] {
            let memory = |_: &Contributions, len| named(&vec![len; world]);
            let check = |memory: &[Vec<Expression>], len: usize, _: &dyn Fn(&str) -> bool, at: &str| {
                let right = |(cell, value): (usize, &Expression)| *value == cell_name(root, cell);
                assert!(memory.iter().all(|cells| cells[..len].iter().enumerate().all(right)), "{at}");
            };
            let operation = Operation::Broadcast(Rank(root));
            let proved = prove_all(world, world, &topology, &operation, false, memory, check);
            assert_eq!(proved, ["direct", "binomial", "ring"]);
        }
    }
}

#[test]
fn gather_and_scatter_go_through_the_root() {
    for world in 1usize..=9 {
        let topology = Topology::single(world);
        for root in [0, world / 2, world - 1] {
            let lens = |len: usize| -> Vec<usize> {
                (0..world).map(|rank| if rank == root { len } else { len / world }).collect()
            };
            let memory = |_: &Contributions, len| named(&lens(len));
            let gathered = |memory: &[Vec<Expression>], len: usize, _: &dyn Fn(&str) -> bool, at: &str| {
                for (cell, value) in memory[root][..len].iter().enumerate() {
                    let (owner, each) = (cell / (len / world), len / world);
                    let index = if owner == root { cell } else { cell - owner * each };
                    assert_eq!(*value, cell_name(owner, index), "{at}");
                }
            };
            let gather = Operation::Gather(Rank(root));
            assert_eq!(prove_all(world, world, &topology, &gather, true, memory, gathered), ["direct"]);
            let scattered = |memory: &[Vec<Expression>], len: usize, _: &dyn Fn(&str) -> bool, at: &str| {
                let each = len / world;
                for rank in (0..world).filter(|rank| *rank != root) {
                    let right = |cell: usize| memory[rank][cell] == cell_name(root, rank * each + cell);
                    assert!((0..each).all(right), "{at}");
                }
            };
            let scatter = Operation::Scatter(Rank(root));
            assert_eq!(prove_all(world, world, &topology, &scatter, true, memory, scattered), ["direct"]);
        }
    }
}

/// Proves *direct* for operations whose arguments differ between ranks.
fn prove_different(operations: &[Operation], memory: &[Vec<Expression>], check: impl Fn(&[Vec<Expression>])) {
    let world = operations.len();
    let (contributions, topology) = (Contributions::one_each(world), Topology::single(world));
    let direct = ALGORITHMS.iter().find(|algorithm| algorithm.name == "direct").unwrap();
    for segment in [1, 4, 100] {
        let build = |rank: usize| {
            let (operation, len) = (&operations[rank], memory[rank].len());
            let (contributions, topology) = (&contributions, &topology);
            let problem = Problem { operation, rank: Rank(rank), len, contributions, topology, segment };
            (direct.build)(&problem).unwrap()
        };
        prove(&(0..world).map(build).collect::<Vec<_>>(), memory, &check);
    }
}

#[test]
fn all_to_all_delivers_every_chunk() {
    for world in 1usize..=9 {
        for factor in [0, 1, 5] {
            let equal = |_: usize, _: usize| factor;
            let unequal = |from: usize, to: usize| (from * 3 + to * 5) % 4 * factor;
            let counts: [&dyn Fn(usize, usize) -> usize; 2] = [&equal, &unequal];
            for count in counts {
                let received = |rank: usize| (0..world).map(|from| count(from, rank)).sum::<usize>();
                let operation = |rank: usize| Operation::AllToAll {
                    send: (0..world).map(|to| count(rank, to)).collect(),
                    receive: (0..world).map(|from| count(from, rank)).collect(),
                };
                let operations: Vec<Operation> = (0..world).map(operation).collect();
                let lens: Vec<usize> = (0..world)
                    .map(|rank| received(rank) + (0..world).map(|to| count(rank, to)).sum::<usize>())
                    .collect();
                prove_different(&operations, &named(&lens), |memory| {
                    for rank in 0..world {
                        let expected = (0..world).flat_map(|from| {
                            let start = received(from) + (0..rank).map(|to| count(from, to)).sum::<usize>();
                            (0..count(from, rank)).map(move |i| cell_name(from, start + i))
                        });
                        assert!(expected.eq(memory[rank][..received(rank)].iter().cloned()));
                    }
                });
            }
        }
    }
}

#[test]
fn exchanged_messages_arrive() {
    let message = |peer, start, len| Message { peer: Rank(peer), range: Range { start, len } };
    let exchange = |send: &[Message], receive: &[Message]| Operation::Exchange {
        send: send.into(),
        receive: receive.into(),
    };
    let operations = [
        exchange(&[message(1, 0, 9), message(1, 9, 1)], &[message(2, 10, 5)]),
        exchange(&[], &[message(0, 1, 9), message(0, 0, 1)]),
        exchange(&[message(0, 0, 5)], &[]),
    ];
    prove_different(&operations, &named(&[15, 10, 5]), |memory| {
        assert_eq!(memory[0][10..], ["2.0", "2.1", "2.2", "2.3", "2.4"].map(Expression::from));
        assert_eq!(memory[1][..3], ["0.9", "0.0", "0.1"].map(Expression::from));
    });
}

/// Neither rank may wait for room that the other makes only later.
#[test]
fn more_messages_each_way_than_a_transport_holds_are_exchanged() {
    const EACH: usize = 3 * MAX_UNTAKEN;
    let message = |peer, start, len| Message { peer: Rank(peer), range: Range { start, len } };
    for longest in [1, 5] {
        let lens: Vec<usize> = (0..EACH).map(|index| 1 + index % longest).collect();
        let total: usize = lens.iter().sum();
        let place = |peer: usize, start: usize| -> Vec<Message> {
            let starts = lens.iter().scan(start, |next, len| Some(std::mem::replace(next, *next + len)));
            starts.zip(&lens).map(|(start, len)| message(peer, start, *len)).collect()
        };
        // Every rank sends its first elements to both others and stores the received ones behind them.
        let operation = |rank: usize| {
            let (next, last) = ((rank + 1) % 3, (rank + 2) % 3);
            let send: Vec<Message> = [next, last].into_iter().flat_map(|peer| place(peer, 0)).collect();
            let receive = place(next, total).into_iter().chain(place(last, 2 * total)).collect();
            Operation::Exchange { send: send.into(), receive }
        };
        prove_different(&[0, 1, 2].map(operation), &named(&[3 * total; 3]), |memory| {
            for (rank, cells) in memory.iter().enumerate() {
                for (place, from) in [(1, (rank + 1) % 3), (2, (rank + 2) % 3)] {
                    let came = (0..total).map(|cell| cell_name(from, cell));
                    assert!(came.eq(cells[place * total..][..total].iter().cloned()), "at {rank}");
                }
            }
        });
    }
}
