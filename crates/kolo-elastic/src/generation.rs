//! The id of a generation, its members, and the generations that a member has been in.

use serde::{Deserialize, Serialize};

/// Id of a generation, unique within its job. Two leaders that do not know of each other may give two
/// generations the same number; at most one of these ever trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct GenerationId {
    /// Number of the generation within the job, from 1.
    pub(crate) number: u64,
    /// Id of the launcher that claimed it.
    pub(crate) leader: u64,
}

/// A generation that its leader has announced to the members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Formed {
    /// The generation's number; 0 if there has been none yet.
    pub(crate) generation: u64,
    /// Id of the launcher that claimed it.
    pub(crate) leader: u64,
    /// Names of its members, in the order of their ranks.
    pub(crate) members: Vec<String>,
    /// The unique [`identity`] of each member's process: the launcher after a lost one reuses the names.
    pub(crate) identities: Vec<String>,
    /// Names of evicted members that may still run, as far as their leader knows. The next leader evicts
    /// them again.
    #[serde(default)]
    pub(crate) evicted: Vec<String>,
    /// Reason for the end of the last generation.
    pub(crate) reason: String,
    /// True if some member has held the job's state: members without it must not begin anew then.
    pub(crate) state_held: bool,
}

impl Formed {
    pub(crate) fn id(&self) -> GenerationId {
        GenerationId { number: self.generation, leader: self.leader }
    }
}

/// Unique identity of a member's process: the member's name and a number that the process has drawn.
pub(crate) fn identity(member: &str, incarnation: u64) -> String {
    format!("{member} {incarnation:016x}")
}

/// The generations that a member has been in, as far as they matter to the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct History {
    /// The last generation whose group the member has formed. A group forms only after all members have
    /// entered.
    pub(crate) formed: Option<GenerationId>,
    /// Later generations that the member has entered and not seen formed. Others may have formed them.
    pub(crate) entered: Vec<GenerationId>,
}

impl History {
    /// Records that the member begins to form this generation's group. Returns false if the member has been
    /// in a later one: then it must not enter.
    pub(crate) fn enter(&mut self, id: GenerationId) -> bool {
        let later = self.entered.last().max(self.formed.as_ref()).is_none_or(|last| id.number > last.number);
        if later {
            self.entered.push(id);
        }
        later
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = GenerationId> {
        self.formed.into_iter().chain(self.entered.iter().copied())
    }

    /// Records that the member has formed the group of the generation that it entered last.
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
