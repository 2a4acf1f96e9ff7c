//! Finds the rank for which each participant of a collective waited.

use std::collections::{BTreeMap, HashMap};

use super::clocks::{Clock, aligned};
use super::collectives::{Collectives, Side};
use crate::part::Part;

/// Rank that was the last to start a collective, and the time that a participant waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitedFor {
    pub(super) rank: usize,
    pub(super) nanoseconds: u64,
}

/// Returns the wait of each participant of a collective, by part and event.
pub(super) fn waits(
    collectives: &Collectives,
    parts: &[Part],
    clocks: &BTreeMap<String, Clock>,
) -> HashMap<(usize, usize), WaitedFor> {
    let start = |side: &Side| {
        let Part { header, events } = &parts[side.part];
        aligned(events[side.event].start, clocks.get(&header.clock))
    };
    let mut waits = HashMap::new();
    for sides in collectives.each() {
        let Some(last) = sides.iter().max_by_key(|side| start(side)) else { continue };
        for side in sides.iter().filter(|side| side.rank != last.rank) {
            let nanoseconds = (start(last) - start(side)) as u64;
            waits.insert((side.part, side.event), WaitedFor { rank: last.rank, nanoseconds });
        }
    }
    waits
}
