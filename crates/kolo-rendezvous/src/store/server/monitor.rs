//! The store's monitor of ranks: detects failures and departures, and finds the culprit of a timeout.

use std::time::{Duration, Instant};

use super::state::{Shared, State};
use crate::error::Error;
use crate::liveness::culprit;
use crate::secure::SecureStream;
use crate::store::wire::{self, Reply, Request};
use kolo_schedule::Rank;

/// Time limit for answers to a probe; stopped ranks never answer.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves the connection that shows that a rank lives, and reports its end to the other ranks.
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
    let event = match end {
        None => {
            state.left.insert(rank);
            Reply::Left { rank }
        }
        // After a failure, or while closing, a lost connection is a consequence.
        Some(_) if state.closing || state.failed.is_some() => return,
        Some(error) => {
            state.failed = Some(error.clone());
            Reply::Failed { error }
        }
    };
    // The rank that reported a failure may still be there and wait for the verdict.
    let _ = wire::write(&mut stream, &event);
    send_to_all(&mut state, &event);
    shared.changed.notify_all();
}

/// Sends a rank the events before its arrival and registers it for later ones. Returns false if there is no
/// such rank, or it is registered already.
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
        // If this fails, the rank is gone already.
        let _ = wire::write(&mut stream, &Reply::Failed { error });
        return false;
    }
    let failed = state.failed.clone().map(|error| Reply::Failed { error });
    let left = state.left.iter().map(|&rank| Reply::Left { rank });
    for reply in std::iter::once(Reply::Monitored).chain(failed).chain(left) {
        // If this fails, the next read from the rank fails.
        let _ = wire::write(&mut stream, &reply);
    }
    state.monitored.insert(rank, stream);
    true
}

pub(super) fn send_to_all(state: &mut State, event: &Reply) {
    for other in state.monitored.values_mut() {
        // If this fails, the other rank is gone, too, and its own thread notices.
        let _ = wire::write(other, event);
    }
}

/// Finds the culprit when a rank has waited too long for another one, which may itself be waiting: asks all
/// ranks and blames the one that does not wait.
fn investigate(shared: &Shared, reporter: Rank, error: Error) -> Error {
    let Error::Timeout { rank: blamed, during, waited } = error else { return error };
    let until = Instant::now() + PROBE_TIMEOUT;
    let mut state = shared.state.lock();
    // Several ranks may time out at once; each report also answers the other investigations' probes.
    if state.investigations == 0 {
        state.waiting.clear();
    }
    state.investigations += 1;
    state.waiting.insert(reporter, Some(blamed));
    shared.changed.notify_all();
    send_to_all(&mut state, &Reply::Probe);
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
