//! Every operation on every type, against the native group: what shows on a machine with GPUs that the calls mean what they
//! should.

use half::{bf16, f16};

use super::DeviceGroup;
use kolo_comm::Collective;
use kolo_comm::Element;
use kolo_rendezvous::Error;
use kolo_schedule::Rank;
use kolo_schedule::{Chunks, Message, Range};
use kolo_schedule::{DType, Op};

/// Elements of a chunk: not a round number.
const EACH: usize = 251;

/// Runs every operation on every type on the devices and natively, and compares every element that is specified.
/// Returns the number of comparisons. A collective.
///
/// # Errors
///
/// The first difference, as [`Error::Invalid`]; otherwise as [`DeviceGroup::run`].
pub fn check(devices: &DeviceGroup) -> Result<usize, Error> {
    Ok(of_type::<f32>(devices)?
        + of_type::<f64>(devices)?
        + of_type::<i32>(devices)?
        + of_type::<i64>(devices)?
        + of_type::<u8>(devices)?
        + of_type::<f16>(devices)?
        + of_type::<bf16>(devices)?)
}

fn of_type<T: Element + From<u8>>(devices: &DeviceGroup) -> Result<usize, Error> {
    let (rank, world) = (devices.rank(), devices.world_size());
    let trials = trials(rank, world, T::DTYPE);
    let mut wrong = None;
    for Trial { collective, elements, specified } in &trials {
        let data: Vec<T> = (0..*elements).map(|index| value(rank, index)).collect();
        let group = devices.group();
        let expected = group.run(collective, group.copied(&data)?)?;
        let found = devices.to_vec(&devices.run(collective, devices.copied(&data)?)?)?;
        let Range { start, len } = *specified;
        let different = (start..start + len).find(|index| found[*index] != expected[*index]);
        wrong = wrong.or(different.map(|index| {
            let (found, expected) = (found[index], expected[index]);
            format!(
                "{collective:?} of {} by NCCL: element {index} on {rank} is {found:?}, not {expected:?}",
                T::DTYPE
            )
        }));
    }
    // All ranks go through all trials, so that none waits for one that gave up.
    let mut wrongs = [wrong.is_some() as i64];
    devices.group().all_reduce(&mut wrongs, Op::Sum)?;
    match (wrong, wrongs[0]) {
        (None, 0) => Ok(trials.len()),
        (None, count) => Err(Error::Invalid(format!("NCCL's results are wrong on {count} other ranks"))),
        (Some(problem), _) => Err(Error::Invalid(problem)),
    }
}

/// One or two, and only one beyond the fourth rank, so that products of all ranks are exact in every type.
fn value<T: From<u8>>(rank: Rank, index: usize) -> T {
    T::from(if rank.0 < 4 { 1 + (index >> rank.0 & 1) as u8 } else { 1 })
}

struct Trial {
    collective: Collective,
    elements: usize,
    /// The part of this rank's result that is the same whoever computes it.
    specified: Range,
}

fn trials(rank: Rank, world: usize, dtype: DType) -> Vec<Trial> {
    let len = EACH * world;
    let (last, root) = (world - 1, Rank(world - 1));
    let integer = matches!(dtype, DType::I32 | DType::I64 | DType::U8);
    // NCCL multiplies by one part in N before it adds, which is exact for powers of two only.
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
