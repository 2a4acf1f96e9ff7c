//! Matches the spans that are one collective: reductions of one bucket in the same step and generation.

use std::collections::HashMap;

use crate::part::Part;
use crate::span::What;

/// Participation of one process in a collective.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side {
    /// Indices of the part and of the event within it.
    pub(super) part: usize,
    pub(super) event: usize,
    pub(super) rank: usize,
}

#[derive(Default)]
pub(super) struct Collectives(HashMap<(u64, u64, usize), Vec<Side>>);

impl Collectives {
    /// Collects the collectives. A process may have had several ranks, one after another.
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
}
