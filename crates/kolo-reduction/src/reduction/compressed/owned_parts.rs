//! Messages of which every rank owns a part: the owners receive and add the parts of all shards, and send the
//! sums to all ranks. A rank's part is the same run of every message, and the parts lie in rank order.

use std::sync::Arc;

use kolo_comm::schedule::Chunks;
use kolo_comm::{Buffer, Collective, Element, Error, Stages};

/// Sends the parts of this rank's `messages`, one for each of its shards, to their owners. Returns this
/// rank's part of the messages of all shards first in the buffer, one after another. `parts` are the lengths
/// of the ranks' parts, `shares` their numbers of shards.
pub(super) fn to_owners<T: Element>(
    stages: &Stages,
    shares: &[usize],
    parts: &[usize],
    messages: &[Vec<T>],
) -> Result<Buffer<T>, Error> {
    let send: Arc<[usize]> = parts.iter().map(|part| part * messages.len()).collect();
    let receive: Arc<[usize]> = shares.iter().map(|share| share * parts[stages.rank().0]).collect();
    let received: usize = receive.iter().sum();
    let mut buffer = stages.alloc::<T>(received + send.iter().sum::<usize>())?;
    let (mut rest, mut first) = (&mut buffer[received..], 0);
    for part in parts {
        for message in messages {
            let (place, others) = rest.split_at_mut(*part);
            place.copy_from_slice(&message[first..][..*part]);
            rest = others;
        }
        first += part;
    }
    stages.run(&Collective::AllToAll { send, receive }, buffer)
}

/// Sends this rank's part of `message` to all ranks, and receives theirs.
pub(super) fn from_owners<T: Element>(
    stages: &Stages,
    parts: &[usize],
    message: &mut [T],
) -> Result<(), Error> {
    let mut buffer = stages.alloc::<T>(message.len())?;
    let rank = stages.rank().0;
    let first: usize = parts[..rank].iter().sum();
    let own = first..first + parts[rank];
    buffer[own.clone()].copy_from_slice(&message[own]);
    let chunks = Chunks::Varied(parts.iter().copied().collect());
    message.copy_from_slice(&stages.run(&Collective::AllGather(chunks), buffer)?);
    Ok(())
}
