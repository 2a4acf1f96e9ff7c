//! For whom each side of a collective has waited.

use std::collections::{BTreeMap, HashMap};

use super::clocks::{Clock, aligned};
use super::collectives::{Collectives, Side};
use crate::part::Part;

/// For whom a side of a collective has waited: the rank that was the last to start, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitedFor {
    pub(super) rank: usize,
    pub(super) nanoseconds: u64,
}

/// For each side of a collective, by part and event, for whom it has waited.
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
