//! The members of a coordinator's own node, whoever leads the job.

use std::collections::{BTreeMap, BTreeSet};

use super::effect::{Effect, Effects};
use super::lineage::Lineage;
use crate::generation::{Formed, identity};
use crate::worker_protocol::{Arrival, Reply};

/// What a coordinator knows of its own node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct LocalMembers {
    /// The members of this node that have not ended, each with its arrival while that has not been answered.
    pub(crate) unanswered: BTreeMap<String, Option<Arrival>>,
    /// What tells those that have arrived from other processes of their names, and their last arrivals.
    arrived: BTreeMap<String, (String, u64)>,
    /// The members whose processes have ended. What they said before may be heard later: arrivals lie in a
    /// store until they are taken, and the end of a process is told at once.
    ended: BTreeSet<String>,
    /// The last generation that is known here.
    pub(crate) formed: Formed,
    /// The generations that the next one may follow, as far as is known here.
    pub(crate) lineage: Lineage,
    /// The leaders that this launcher has left for good.
    pub(crate) left: BTreeSet<u64>,
    /// Members on other nodes.
    pub(crate) remote_members: usize,
    /// This node's rank, once it has one.
    pub(crate) node_rank: Option<usize>,
    /// Nodes with which the job has begun, once it has.
    pub(crate) initial_nodes: Option<usize>,
    /// No more workers will be started on this node.
    pub(crate) closed: bool,
}

impl LocalMembers {
    /// Takes note of a member that has been started here.
    pub(crate) fn started(&mut self, member: &str) {
        self.ended.remove(member);
        self.unanswered.entry(member.into()).or_default();
    }

    /// Takes note of a member's arrival, which the leader is to answer. False where nobody waits for an
    /// answer: the member's process has ended, or it has lost its connection and says what has been heard
    /// before.
    pub(crate) fn arrived(&mut self, member: &str, arrival: &Arrival) -> bool {
        if self.ended.contains(member) {
            return false;
        }
        let this = (identity(member, arrival.incarnation), arrival.number);
        let is_new = |(identity, number): &(String, u64)| *identity != this.0 || *number < this.1;
        if !self.arrived.get(member).is_none_or(is_new) {
            return false;
        }
        self.lineage.heard(&arrival.history);
        self.arrived.insert(member.into(), this);
        self.unanswered.insert(member.into(), Some(arrival.clone()));
        true
    }

    /// Takes note of the end of a member's process.
    pub(crate) fn exited(&mut self, member: &str) {
        self.ended.insert(member.into());
        self.unanswered.remove(member);
        if let Some((identity, _)) = self.arrived.remove(member) {
            self.lineage.died(&identity);
        }
    }

    /// Whether a member of this node lives.
    pub(crate) fn contains(&self, member: &str) -> bool {
        self.unanswered.contains_key(member)
    }

    /// Answers an arrival of a member of this node.
    pub(crate) fn reply(&mut self, member: &str, arrival: u64, reply: Reply, out: &mut Effects) {
        if let Some(unanswered) = self.unanswered.get_mut(member)
            && unanswered.as_ref().is_some_and(|waiting| waiting.number == arrival)
        {
            *unanswered = None;
        }
        out.push(Effect::Reply { member: member.into(), arrival, reply });
    }

    /// Answers all members that wait: no generation will be formed for them.
    pub(crate) fn refuse_all(&mut self, detached: &Detached, out: &mut Effects) {
        let waiting =
            self.unanswered.iter().filter_map(|(m, arrival)| Some((m.clone(), arrival.as_ref()?.number)));
        for (member, number) in waiting.collect::<Vec<_>>() {
            self.reply(&member, number, detached.reply(), out);
        }
    }

    /// Takes note of a generation that has begun.
    pub(crate) fn generation_formed(&mut self, formed: Formed, out: &mut Effects) {
        let after = self.formed.generation;
        self.formed = formed.clone();
        self.lineage.told(&formed);
        out.push(Effect::GenerationFormed { formed, after });
    }
}

/// Why a coordinator belongs to no job any more.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Detached {
    /// The reason, as a sentence.
    pub(crate) reason: String,
    /// Another part of the job goes on, or may.
    pub(crate) superseded: bool,
}

impl Detached {
    /// What members are told that arrive.
    fn reply(&self) -> Reply {
        let reason = self.reason.clone();
        if self.superseded { Reply::Superseded { reason } } else { Reply::Failed { reason } }
    }
}

impl From<String> for Detached {
    fn from(reason: String) -> Detached {
        Detached { reason, superseded: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Membership;

    /// Without it a generation was formed with a dead member, whose end nobody told again: the others waited
    /// for it for ever. Found by `kolo chaos`, seed 178, by a kill 43 ms after another one.
    #[test]
    fn who_has_ended_arrives_no_more() {
        let mut local = LocalMembers::default();
        let arrival = Membership::new(1, false).arrive(None, None);
        local.started("a");
        local.exited("a");
        assert!(!local.arrived("a", &arrival), "it was said before the end, and is heard after it");
        assert!(!local.contains("a"));
        local.started("a");
        assert!(local.arrived("a", &arrival), "another process of that name");
        assert!(!local.arrived("a", &arrival), "said again");
    }
}
