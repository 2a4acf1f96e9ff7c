//! Requirements on every backend: each operation, on each type, at every length. The numbers are small
//! integers, so sums are exact in every type and order.

use std::sync::Arc;

use kolo_comm::hash::splitmix64;
use kolo_comm::tree::Contributions;
use kolo_comm::{Collective, Element, Group, Op, Rank, Readers, bf16, f16};

/// Returns a number below 4, so that sums of a few ranks are integers in every type. Each rank has its own
/// sequence.
fn number(rank: usize, index: usize) -> usize {
    splitmix64((rank as u64) << 40 ^ index as u64) as usize % 4
}

fn combined(op: Op, world: usize, index: usize) -> usize {
    let numbers = (0..world).map(|rank| number(rank, index));
    match op {
        Op::Sum => numbers.sum(),
        Op::Max => numbers.max().unwrap(),
        Op::Min => numbers.min().unwrap(),
        Op::Product | Op::Average => unreachable!("every_combination tries them"),
    }
}

fn check<T: Element>(what: &str, got: &[T], expected: impl Fn(usize) -> usize) {
    for (index, value) in got.iter().enumerate() {
        assert_eq!(*value, T::of(expected(index)), "{what}: element {index} of {}", got.len());
    }
}

/// Checks every operation on one type and length.
pub fn every_operation<T: Element>(group: &Group, len: usize) {
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

    sum_for_readers::<T>(group, len);

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

/// Checks a sum whose blocks have one reader, several, none and all; an empty one, and uneven lengths.
fn sum_for_readers<T: Element>(group: &Group, len: usize) {
    let (world, rank) = (group.world_size(), group.rank().0);
    let one_each = (0..world).map(|reader| (len * (reader % 3) / 2, vec![Rank(reader)]));
    let others = [
        (len, vec![Rank(0), Rank(world - 1)]),
        (len / 2, Vec::new()),
        (0, vec![Rank(0)]),
        (len, (0..world).map(Rank).collect()),
    ];
    let blocks: Vec<(usize, Vec<Rank>)> = one_each.chain(others).collect();
    let len = blocks.iter().map(|(len, _)| len).sum();
    let (contributions, readers) =
        (Arc::new(Contributions::one_each(world)), Readers::of_blocks(blocks.clone()));
    let own: Vec<T> = (0..len).map(|index| T::of(number(rank, index))).collect();
    let sum = Collective::TreeSum { contributions, len, readers };
    let result = group.run(&sum, group.copied(&own).unwrap()).unwrap();
    let mut start = 0;
    for (len, readers) in blocks {
        if readers.contains(&Rank(rank)) {
            let right = |index| combined(Op::Sum, world, start + index);
            check("a sum for readers", &result[start..start + len], right);
        }
        start += len;
    }
}

/// Checks every operation at every length, and on every type at one of them.
pub fn every_length(group: &Group, lengths: &[usize]) {
    for &len in lengths {
        every_operation::<f32>(group, len);
        every_operation::<u8>(group, len);
    }
    let short = lengths[lengths.len() / 2];
    every_operation::<f64>(group, short);
    every_operation::<i32>(group, short);
    every_operation::<i64>(group, short);
    every_operation::<f16>(group, short);
    every_operation::<bf16>(group, short);
}

/// Checks every `Op`, on every type. Products of more than four ranks do not fit into all types.
pub fn every_combination(group: &Group) {
    fn all<T: Element>(group: &Group) {
        let world = group.world_size();
        let of = |number| vec![T::of(number); 37];
        let product = (1..=world).map(|rank| 2 * rank).product();
        for (op, expected) in [
            (Op::Sum, world * (world + 1)),
            (Op::Average, world + 1),
            (Op::Max, 2 * world),
            (Op::Min, 2),
            (Op::Product, product),
        ] {
            let mut data = of(2 * (group.rank().0 + 1));
            group.all_reduce(&mut data, op).unwrap();
            assert_eq!(data, of(expected), "{op} of {}", T::DTYPE);
        }
    }
    all::<f32>(group);
    all::<f64>(group);
    all::<f16>(group);
    all::<bf16>(group);
    all::<i32>(group);
    all::<i64>(group);
    all::<u8>(group);
}

/// Returns numbers whose sums depend on the order of additions.
pub fn uneven(rank: usize, index: usize) -> f32 {
    ((rank * 7919 + index * 104_729) as f32 * 0.001).sin() * 10f32.powi((index % 7) as i32 - 3)
}

/// Sums over the ranks `first .. first + count` in the order of the tree.
pub fn tree_sum(first: usize, count: usize, value: &impl Fn(usize) -> f32) -> f32 {
    if count == 1 {
        return value(first);
    }
    let left = count.next_power_of_two() / 2;
    tree_sum(first, left, value) + tree_sum(first + left, count - left, value)
}
