//! Which spans of different processes are one collective: the reduction of the same bucket in the same step
//! of the same generation.

use std::collections::HashMap;

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
}
