//! Comparison of two engines: every operation on every type must give the same results.

use kolo_comm::schedule::{Chunks, Message, Range};
use kolo_comm::{Collective, Collectives, DType, Element, Op, Rank, bf16, f16};

/// Elements of a chunk: not a round number.
const EACH: usize = 251;

/// Runs every operation on every type by both engines, except sums in tree order, and compares every
/// specified element. All ranks of the engines' common group must call it. Returns the number of compared
/// collectives.
pub fn assert_same_results(engine: &impl Collectives, native: &impl Collectives) -> usize {
    of_type::<f32>(engine, native)
        + of_type::<f64>(engine, native)
        + of_type::<i32>(engine, native)
        + of_type::<i64>(engine, native)
        + of_type::<u8>(engine, native)
        + of_type::<f16>(engine, native)
        + of_type::<bf16>(engine, native)
}

fn of_type<T: Element>(engine: &impl Collectives, native: &impl Collectives) -> usize {
    let trials = trials(native.rank(), native.world_size(), T::DTYPE);
    for Trial { collective, elements, specified } in &trials {
        let data: Vec<T> = (0..*elements).map(|index| value(native.rank(), index)).collect();
        let (found, expected) = (results(engine, collective, &data), results(native, collective, &data));
        let Range { start, len } = *specified;
        for index in start..start + len {
            let (found, expected) = (found[index], expected[index]);
            let (name, rank, dtype) = (engine.describe(), native.rank(), T::DTYPE);
            assert_eq!(found, expected, "{collective:?} of {dtype} by {name}: element {index} on {rank}");
        }
    }
    trials.len()
}

fn results<T: Element>(engine: &impl Collectives, collective: &Collective, data: &[T]) -> Vec<T> {
    let buffer = engine.run(collective, engine.copied(data).unwrap()).unwrap();
    engine.to_vec(&buffer).unwrap()
}

/// Returns 1 or 2, and only 1 beyond the fourth rank, so that products of all ranks are exact in every type.
fn value<T: Element>(rank: Rank, index: usize) -> T {
    T::of(if rank.0 < 4 { 1 + (index >> rank.0 & 1) } else { 1 })
}

struct Trial {
    collective: Collective,
    elements: usize,
    /// The part of this rank's result that every engine must compute alike.
    specified: Range,
}

fn trials(rank: Rank, world: usize, dtype: DType) -> Vec<Trial> {
    let len = EACH * world;
    let (last, root) = (world - 1, Rank(world - 1));
    let integer = matches!(dtype, DType::I32 | DType::I64 | DType::U8);
    // An engine may multiply by 1/N before it adds, as NCCL does; that is exact for powers of two only.
    let exact = |op: &Op| *op != Op::Average || integer || world.is_power_of_two();
    let trial = |collective, elements, specified: (usize, usize)| Trial {
        collective,
        elements,
        specified: Range { start: specified.0, len: specified.1 },
    };
    let whole = |collective| trial(collective, len, (0, len));
    let at_root = |there: usize| if rank == root { there } else { 0 };
    let mut trials = Vec::new();
    for op in Op::ALL.into_iter().filter(exact) {
        trials.push(whole(Collective::AllReduce(op)));
        trials.push(trial(Collective::ReduceScatter(op, Chunks::Equal), len, (rank.0 * EACH, EACH)));
        trials.push(trial(Collective::Reduce(op, root), len, (0, at_root(len))));
    }
    // Chunks of 0, 1, 2, … elements.
    let counts: Vec<usize> = (0..world).collect();
    let (before, all) = (counts[..rank.0].iter().sum(), counts.iter().sum());
    let varied = Chunks::Varied(counts.into());
    trials.push(trial(Collective::ReduceScatter(Op::Sum, varied.clone()), all, (before, rank.0)));
    trials.push(trial(Collective::AllGather(varied), all, (0, all)));
    trials.push(whole(Collective::AllGather(Chunks::Equal)));
    trials.push(whole(Collective::Broadcast(root)));
    let mine = if rank == root { len } else { EACH };
    trials.push(trial(Collective::Gather(root), mine, (0, at_root(len))));
    let scattered = if rank == root { last * EACH } else { 0 };
    trials.push(trial(Collective::Scatter(root), mine, (scattered, EACH)));
    // Rank r sends 1 + r + p elements to rank p.
    let counts: Vec<usize> = (0..world).map(|peer| 1 + rank.0 + peer).collect();
    let sent: usize = counts.iter().sum();
    let all_to_all = Collective::AllToAll { send: counts.clone().into(), receive: counts.into() };
    trials.push(trial(all_to_all, 2 * sent, (0, sent)));
    if world > 1 {
        let message = |peer, start| Message { peer: Rank(peer % world), range: Range { start, len: EACH } };
        let send = [message(rank.0 + 1, EACH)].into();
        let receive = [message(rank.0 + last, 0)].into();
        trials.push(trial(Collective::Exchange { send, receive }, 2 * EACH, (0, EACH)));
    }
    trials.push(trial(Collective::Barrier, 1, (0, 0)));
    trials
}
