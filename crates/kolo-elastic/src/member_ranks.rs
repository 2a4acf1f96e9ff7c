//! The rank that each member has now: ranks change from one generation to the next, names do not.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;

use kolo_schedule::Rank;

/// Members that have been in none of so many last generations are forgotten: nothing is told of them any
/// more.
const REMEMBERED: u64 = 100;

/// The ranks of an elastic job's members, as far as their coordinator knows them. All copies are of the same
/// job.
///
/// A generation is known here before any of its members is told of it, so that what a member does in a
/// generation is never taken for that of its rank in an earlier one.
#[derive(Clone, Debug, Default)]
pub struct MemberRanks(Arc<RwLock<Known>>);

#[derive(Debug, Default)]
struct Known {
    generation: u64,
    /// By its name, the last generation of each member, and its rank there.
    members: BTreeMap<String, (u64, Rank)>,
}

impl MemberRanks {
    /// Whether any generation has been formed.
    pub fn are_known(&self) -> bool {
        self.0.read().generation > 0
    }

    /// The member's rank in the newest generation; `None` if it does not belong to that.
    pub fn current(&self, member: &str) -> Option<Rank> {
        let known = self.0.read();
        known.members.get(member).filter(|(last, _)| *last == known.generation).map(|(_, rank)| *rank)
    }

    /// The member's rank in the last generation to which it belonged; `None` if it has been in none.
    pub fn last(&self, member: &str) -> Option<Rank> {
        self.0.read().members.get(member).map(|(_, rank)| *rank)
    }

    /// Takes note of a generation of these members, in the order of their ranks.
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
        ranks.formed(2 + REMEMBERED, &names(&["a", "d"]));
        assert_eq!((seen.last("b"), seen.last("c"), seen.last("d")), (None, None, Some(Rank(1))));
    }
}
