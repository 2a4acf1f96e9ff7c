//! The store's watch over ranks: which of them fail or leave, and who is to blame for a timeout.

use std::time::{Duration, Instant};

use super::state::{Shared, State};
use crate::error::Error;
use crate::liveness::culprit;
use crate::secure::SecureStream;
use crate::store::wire::{self, Reply, Request};
use kolo_schedule::Rank;

/// How long ranks may take to answer a probe. A stopped one never does.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves the connection that stands for one rank's life until it ends, and tells the others how it did.
pub(super) fn monitor(shared: &Shared, rank: Rank, mut stream: SecureStream) {
    let Ok(copy) = stream.write_half() else { return };
    if !admit(shared, rank, copy) {
        return;
    }
    let end = loop {
        match wire::read(&mut stream) {
            Ok(Request::Leave) => break None,
            Ok(Request::Failed { error }) => break Some(error),
            Ok(Request::Stalled { error }) => break Some(investigate(shared, rank, error)),
            Ok(Request::Waiting { on }) => {
                shared.state.lock().waiting.insert(rank, on);
                shared.changed.notify_all();
            }
            _ => break Some(Error::Died { rank }),
        }
    };
    let mut state = shared.state.lock();
    state.monitored.remove(&rank);
    let news = match end {
        None => {
            state.left.insert(rank);
            Reply::Left { rank }
        }
        // Losing connections after a failure, or while closing, is a consequence.
        Some(_) if state.closing || state.failed.is_some() => return,
        Some(error) => {
            state.failed = Some(error.clone());
            Reply::Failed { error }
        }
    };
    // The rank that reported a failure may still be there and wait for who is to blame.
    let _ = wire::write(&mut stream, &news);
    tell_all(&mut state, &news);
    shared.changed.notify_all();
}

/// Tells a rank what has happened before it came, and adds it to those that hear of what happens next; false
/// if there is no such rank, or it is there already.
fn admit(shared: &Shared, rank: Rank, mut stream: SecureStream) -> bool {
    let mut state = shared.state.lock();
    let world_size = shared.world;
    let error = if rank.0 >= world_size {
        Some(Error::UnknownRank { rank, world_size })
    } else if state.monitored.contains_key(&rank) || state.left.contains(&rank) {
        Some(Error::DuplicateRank { rank })
    } else {
        None
    };
    if let Some(error) = error {
        // If it cannot be told it is gone already.
        let _ = wire::write(&mut stream, &Reply::Failed { error });
        return false;
    }
    let failed = state.failed.clone().map(|error| Reply::Failed { error });
    let left = state.left.iter().map(|&rank| Reply::Left { rank });
    for reply in std::iter::once(Reply::Monitored).chain(failed).chain(left) {
        // If it cannot be told, the next read from it fails.
        let _ = wire::write(&mut stream, &reply);
    }
    state.monitored.insert(rank, stream);
    true
}

/// Sends a reply to all ranks.
pub(super) fn tell_all(state: &mut State, news: &Reply) {
    for other in state.monitored.values_mut() {
        // A rank that cannot be told is gone, too; its own thread notices.
        let _ = wire::write(other, news);
    }
}

/// A rank has waited too long for another, which may itself be waiting: asks all, and blames the one that is
/// not.
fn investigate(shared: &Shared, reporter: Rank, error: Error) -> Error {
    let Error::Timeout { rank: blamed, during, waited } = error else { return error };
    let until = Instant::now() + PROBE_TIMEOUT;
    let mut state = shared.state.lock();
    // Several ranks may time out at once; each report is an answer to the others' probes.
    if state.investigations == 0 {
        state.waiting.clear();
    }
    state.investigations += 1;
    state.waiting.insert(reporter, Some(blamed));
    shared.changed.notify_all();
    tell_all(&mut state, &Reply::Probe);
    while state.failed.is_none() && state.monitored.keys().any(|rank| !state.waiting.contains_key(rank)) {
        if shared.changed.wait_until(&mut state, until).timed_out() {
            break;
        }
    }
    state.investigations -= 1;
    let world = state.waiting.len() + 1;
    let rank = culprit(blamed, world, |rank| state.waiting.get(&rank).copied().flatten());
    Error::Timeout { rank, during, waited }
}
