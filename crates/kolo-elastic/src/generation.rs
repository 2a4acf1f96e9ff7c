//! What a generation is called, who belongs to it, and in which of them a member has been.

use serde::{Deserialize, Serialize};

/// Tells a generation from all others of its job. Two leaders that do not know of one another may give two
/// generations the same number; at most one of these ever trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct GenerationId {
    /// Counts the generations of the job, from 1.
    pub(crate) number: u64,
    /// The launcher that has claimed it.
    pub(crate) leader: u64,
}

/// A generation of which its leader has told the members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Formed {
    /// The generation's number; 0 where there has been none yet.
    pub(crate) generation: u64,
    /// The launcher that has claimed it.
    pub(crate) leader: u64,
    /// The names of its members, in the order of their ranks.
    pub(crate) members: Vec<String>,
    /// What tells each of them from all other processes ([`identity`]). A launcher that comes in place of a
    /// lost one starts members of the same names.
    pub(crate) identities: Vec<String>,
    /// The names of members that were to be killed and have not ended, as far as their leader knows. Whoever
    /// leads next has them killed.
    #[serde(default)]
    pub(crate) evicted: Vec<String>,
    /// Why the last generation has ended.
    pub(crate) reason: String,
    /// Some member of an earlier generation held the state of the job: who has none must not begin anew.
    pub(crate) state_held: bool,
}

impl Formed {
    /// What tells it from all others.
    pub(crate) fn id(&self) -> GenerationId {
        GenerationId { number: self.generation, leader: self.leader }
    }
}

/// What tells a member's process from all others: its name and what it has drawn for itself.
pub(crate) fn identity(member: &str, incarnation: u64) -> String {
    format!("{member} {incarnation:016x}")
}

/// The generations that a member has been in, as far as the next one must know of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct History {
    /// The last one whose group the member has formed. All of its members have entered it, because a group
    /// is formed by all.
    pub(crate) formed: Option<GenerationId>,
    /// Those that the member has entered since and not seen formed. Others may have.
    pub(crate) entered: Vec<GenerationId>,
}

impl History {
    /// The member begins to form this generation's group. False if it has been in a later one: then it must
    /// not.
    pub(crate) fn enter(&mut self, id: GenerationId) -> bool {
        let later = self.entered.last().max(self.formed.as_ref()).is_none_or(|last| id.number > last.number);
        if later {
            self.entered.push(id);
        }
        later
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = GenerationId> {
        self.formed.into_iter().chain(self.entered.iter().copied())
    }

    /// The member has formed the group of the generation that it has entered last.
    pub(crate) fn formed(&mut self) {
        self.formed = self.entered.pop().or(self.formed);
        self.entered.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_enters_later_generations_only_and_remembers_those_it_has_not_seen_formed() {
        let id = |number, leader| GenerationId { number, leader };
        let mut history = History::default();
        assert!(history.enter(id(1, 9)));
        history.formed();
        assert_eq!(history, History { formed: Some(id(1, 9)), entered: Vec::new() });
        assert!(history.enter(id(2, 9)) && history.enter(id(3, 9)));
        assert!(!history.enter(id(3, 8)) && !history.enter(id(1, 9)), "another leader's, or an old one");
        assert_eq!(history, History { formed: Some(id(1, 9)), entered: vec![id(2, 9), id(3, 9)] });
        history.formed();
        assert_eq!(history, History { formed: Some(id(3, 9)), entered: Vec::new() });
    }
}
