//! A leader's claim to the next generation, and the answer.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::generation::GenerationId;

/// A leader's claim that a generation of these members follows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Claim {
    pub(crate) job: u64,
    pub(crate) leader: u64,
    /// Host and process of that launcher, for messages to users on other nodes.
    pub(crate) place: String,
    /// The highest number of all generations that the leader knows of.
    pub(crate) newest: u64,
    /// Identities of the members, in the order of their ranks. All of them wait, as far as the leader knows.
    pub(crate) members: Vec<String>,
    /// Generations that some of them have been in and come back from, so that these are over.
    pub(crate) left: BTreeSet<GenerationId>,
    /// Members, by their identities, whose launcher has left a leader for good; each with that leader.
    pub(crate) abandoned: BTreeSet<(String, u64)>,
    /// The generations that were announced to members, as far as the leader knows, including its own.
    pub(crate) announced: BTreeSet<GenerationId>,
    /// The generations that the next one may follow.
    pub(crate) predecessors: Vec<Predecessor>,
}

impl Claim {
    /// Returns true if a granted generation is over for certain. Either a member has come back from it. Or
    /// it is the claiming leader's own and was never announced: the answer was lost, or other members waited
    /// by then. Or a waiting member never learned of it and never will, because its launcher has left its
    /// leader.
    pub(crate) fn is_over(&self, last: &Record) -> bool {
        let id = last.id();
        let is_abandoned = |member: &String| self.abandoned.contains(&(member.clone(), last.leader));
        self.left.contains(&id)
            || last.leader == self.leader && !self.announced.contains(&id)
            || last.members.iter().any(is_abandoned)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The claimed generation is the next, and has this number.
    Granted(u64),
    /// The claim fails for now: others may still come. The text is the reason, as a sentence.
    NotYet(String),
    /// Another leader has gone on, and no event here can change it. The text names it, as a sentence.
    Superseded(String),
}

/// A generation as recorded by an arbiter with a memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) generation: u64,
    pub(crate) leader: u64,
    pub(crate) place: String,
    pub(crate) members: Vec<String>,
}

impl Record {
    pub(crate) fn id(&self) -> GenerationId {
        GenerationId { number: self.generation, leader: self.leader }
    }
}

/// A generation that the claimed one may follow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Predecessor {
    pub(crate) id: GenerationId,
    /// Its members that are not known to be dead, by rank; `None` if the members are unknown.
    pub(crate) members: Option<Vec<String>>,
}
