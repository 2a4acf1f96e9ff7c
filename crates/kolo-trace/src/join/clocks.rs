//! Computes the offsets between the clocks of hosts from the collectives alone: a collective cannot end on
//! any rank before it has begun on all.
//!
//! For clocks A and B, each collective implies that B − A is at least (last start on B) − (first end on A)
//! and at most (first end on B) − (last start on A), each by its own clock. The intersection of all these
//! intervals remains. Its middle is the estimate; half of its width is the uncertainty. This is interval
//! intersection, as in Marzullo and Owicki (1983), with collectives instead of extra messages.

use std::collections::BTreeMap;

use super::collectives::{Collectives, Side};
use crate::part::Part;

/// Clock of a host, relative to that of rank 0's host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Nanoseconds by which it is ahead.
    pub ahead: i64,
    /// Uncertainty in nanoseconds; `None` if it is unknown. Without a common collective, first events count
    /// as simultaneous. Collectives that contradict each other, because the clocks drift apart, are all met
    /// as well as possible.
    pub uncertainty: Option<u64>,
}

/// Converts a moment to the clock of rank 0's host.
pub(super) fn aligned(moment: u64, clock: Option<&Clock>) -> i64 {
    moment as i64 - clock.map_or(0, |clock| clock.ahead)
}

/// Returns the clocks of all parts; the first part is rank 0's.
pub(super) fn find(parts: &[Part], collectives: &Collectives) -> BTreeMap<String, Clock> {
    let mut clocks = BTreeMap::new();
    let Some(reference) = parts.first().map(|part| &part.header.clock) else { return clocks };
    clocks.insert(reference.clone(), Clock { ahead: 0, uncertainty: Some(0) });
    for part in parts {
        let name = &part.header.clock;
        if !clocks.contains_key(name) {
            clocks.insert(name.clone(), relative_to(reference, name, parts, collectives));
        }
    }
    clocks
}

fn relative_to(reference: &str, other: &str, parts: &[Part], collectives: &Collectives) -> Clock {
    let (mut least, mut most) = (i64::MIN, i64::MAX);
    for sides in collectives.each() {
        let of =
            |name: &str| Bounds::of(sides.iter().filter(|side| parts[side.part].header.clock == name), parts);
        if let (Some(a), Some(b)) = (of(reference), of(other)) {
            least = least.max(b.last_start - a.first_end);
            most = most.min(b.first_end - a.last_start);
        }
    }
    if least > i64::MIN {
        let uncertainty = u64::try_from(most - least).ok().map(|width| width / 2);
        return Clock { ahead: least.midpoint(most), uncertainty };
    }
    let first = |name: &str| {
        let of = parts.iter().filter(|part| part.header.clock == name);
        of.filter_map(|part| part.events.first()).map(|event| event.start as i64).min().unwrap_or(0)
    };
    Clock { ahead: first(other) - first(reference), uncertainty: None }
}

/// Bounds of a collective on one host.
struct Bounds {
    last_start: i64,
    first_end: i64,
}

impl Bounds {
    fn of<'a>(sides: impl Iterator<Item = &'a Side>, parts: &[Part]) -> Option<Self> {
        let events = sides.map(|side| &parts[side.part].events[side.event]);
        let bounds =
            events.map(|event| Bounds { last_start: event.start as i64, first_end: event.end as i64 });
        bounds.reduce(|a, b| Bounds {
            last_start: a.last_start.max(b.last_start),
            first_end: a.first_end.min(b.first_end),
        })
    }
}
