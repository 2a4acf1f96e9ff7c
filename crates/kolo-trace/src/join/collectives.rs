//! Which spans of different processes are one collective: the reduction of the same bucket in the same step
//! of the same generation.

use std::collections::{BTreeMap, HashMap};

use super::clocks::aligned;
use crate::Clock;
use crate::part::Part;
use crate::span::What;

/// One process's side of a collective.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    /// Which part it is in, and which of its events it is.
    pub(super) part: usize,
    pub(super) event: usize,
    pub(super) rank: usize,
}

/// All collectives of the parts.
#[derive(Default)]
pub(super) struct Collectives(HashMap<(u64, u64, usize), Vec<Side>>);

/// For whom a side of a collective has waited: the rank that was the last to start, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitedFor {
    pub(super) rank: usize,
    pub(super) nanoseconds: u64,
}

impl Collectives {
    /// A process may have had several ranks, one after another.
    pub(super) fn of(parts: &[Part]) -> Self {
        let mut all = Collectives::default();
        for (part, Part { events, .. }) in parts.iter().enumerate() {
            let (mut now, mut in_generation) = (0, 0);
            for (event, of) in events.iter().enumerate() {
                match &of.what {
                    What::Rank { rank, generation, .. } => (now, in_generation) = (*rank, *generation),
                    What::Reduce(bucket) => {
                        let sides = all.0.entry((in_generation, of.step, bucket.number)).or_default();
                        sides.push(Side { part, event, rank: now });
                    }
                    _ => {}
                }
            }
        }
        all
    }

    pub(super) fn each(&self) -> impl Iterator<Item = &Vec<Side>> {
        self.0.values()
    }

    /// For each side of a collective, by part and event, for whom it has waited.
    pub(super) fn waits(
        &self,
        parts: &[Part],
        clocks: &BTreeMap<String, Clock>,
    ) -> HashMap<(usize, usize), WaitedFor> {
        let start = |side: &Side| {
            let Part { header, events } = &parts[side.part];
            aligned(events[side.event].start, clocks.get(&header.clock))
        };
        let mut waits = HashMap::new();
        for sides in self.each() {
            let Some(last) = sides.iter().max_by_key(|side| start(side)) else { continue };
            for side in sides.iter().filter(|side| side.rank != last.rank) {
                let nanoseconds = (start(last) - start(side)) as u64;
                waits.insert((side.part, side.event), WaitedFor { rank: last.rank, nanoseconds });
            }
        }
        waits
    }
}
