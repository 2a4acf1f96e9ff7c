//! The current rank of each member: ranks change from one generation to the next, names do not.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;

use kolo_schedule::Rank;

/// Number of generations after which an absent member is forgotten: no output of it can arrive any more.
const REMEMBERED: u64 = 100;

/// The ranks of an elastic job's members, as far as their coordinator knows them. Clones share the same
/// data.
///
/// A generation is recorded here before any of its members learns of it. Output of a member in a generation
/// is therefore never attributed to its rank in an earlier one.
#[derive(Clone, Debug, Default)]
pub struct MemberRanks(Arc<RwLock<Known>>);

#[derive(Debug, Default)]
struct Known {
    generation: u64,
    /// The last generation of each member and its rank there, by the member's name.
    members: BTreeMap<String, (u64, Rank)>,
}

impl MemberRanks {
    /// Returns true if any generation has been formed.
    pub fn are_known(&self) -> bool {
        self.0.read().generation > 0
    }

    /// Returns the member's rank in the newest generation; `None` if the member does not belong to that one.
    pub fn current(&self, member: &str) -> Option<Rank> {
        let known = self.0.read();
        known.members.get(member).filter(|(last, _)| *last == known.generation).map(|(_, rank)| *rank)
    }

    /// Returns the member's rank in the last generation to which it belonged; `None` if it has been in none.
    pub fn last(&self, member: &str) -> Option<Rank> {
        self.0.read().members.get(member).map(|(_, rank)| *rank)
    }

    /// Returns true if the member was in one of the last three generations: workers that die at once may be
    /// noticed one after another.
    pub fn was_here_lately(&self, member: &str) -> bool {
        let known = self.0.read();
        known.members.get(member).is_some_and(|(last, _)| *last + 2 >= known.generation)
    }

    /// Records a generation of these members, in the order of their ranks.
    pub(crate) fn formed(&self, generation: u64, members: &[String]) {
        let mut known = self.0.write();
        known.generation = generation;
        let ranks = members.iter().enumerate();
        known.members.extend(ranks.map(|(rank, member)| (member.clone(), (generation, Rank(rank)))));
        known.members.retain(|_, (last, _)| *last + REMEMBERED > generation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_the_generations() {
        let ranks = MemberRanks::default();
        let seen = ranks.clone();
        assert!(!seen.are_known() && seen.last("a").is_none());
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        ranks.formed(1, &names(&["a", "b", "c"]));
        assert_eq!((seen.current("c"), seen.last("c")), (Some(Rank(2)), Some(Rank(2))));
        ranks.formed(2, &names(&["a", "c"]));
        assert_eq!((seen.current("c"), seen.current("b")), (Some(Rank(1)), None));
        assert_eq!(seen.last("b"), Some(Rank(1)), "it was rank 1 when it was last heard");
        assert!(["a", "b", "c"].iter().all(|member| seen.was_here_lately(member)));
        ranks.formed(2 + REMEMBERED, &names(&["a", "d"]));
        assert!(!seen.was_here_lately("b") && !seen.was_here_lately("e") && seen.was_here_lately("d"));
        assert_eq!((seen.last("b"), seen.last("c"), seen.last("d")), (None, None, Some(Rank(1))));
    }
}
