//! The members of a coordinator's own node, in every role of the coordinator.

use std::collections::{BTreeMap, BTreeSet};

use super::effect::{Effect, Effects};
use super::lineage::Lineage;
use crate::events::{CoordinatorEvent, EndCause, MemberExit, Obstacle};
use crate::generation::{Formed, identity};
use crate::worker_protocol::{Arrival, Reply};

/// A coordinator's knowledge of its own node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct LocalMembers {
    /// The members of this node that have not ended, each with its unanswered arrival if it has one.
    pub(crate) unanswered: BTreeMap<String, Option<Arrival>>,
    /// Identity and number of the last arrival of each member that has arrived.
    arrived: BTreeMap<String, (String, u64)>,
    /// Members whose processes have ended. Earlier messages of theirs may be handled later: arrivals stay in
    /// a store until the coordinator takes them, while the end of a process is reported at once.
    ended: BTreeSet<String>,
    /// Workers that form a fixed group, each with the setting that makes them do so.
    pub(crate) fixed: BTreeMap<String, String>,
    /// Members whose processes a signal has stopped.
    pub(crate) stopped: BTreeSet<String>,
    /// The last generation known on this node.
    pub(crate) formed: Formed,
    /// The generations that the next one may follow, as far as this node knows.
    pub(crate) lineage: Lineage,
    /// Leaders that this launcher has left for good.
    pub(crate) left: BTreeSet<u64>,
    /// Number of members on other nodes.
    pub(crate) remote_members: usize,
    /// This node's rank, once it has one.
    pub(crate) node_rank: Option<usize>,
    /// Number of nodes with which the job began, once it has begun.
    pub(crate) initial_nodes: Option<usize>,
    /// The cause for which this node starts no more workers; `None` while it may.
    pub(crate) closed: Option<EndCause>,
    /// The last member that could not begin, and its end: this launcher may have had no leader to report to.
    pub(crate) unable: Option<(String, MemberExit)>,
}

impl LocalMembers {
    pub(crate) fn started(&mut self, member: &str) {
        self.ended.remove(member);
        self.unanswered.entry(member.into()).or_default();
    }

    /// Records a member's arrival, which the leader must answer. Returns false if no process waits for an
    /// answer: the member has ended, or repeats a known arrival after it lost its connection.
    pub(crate) fn arrived(&mut self, member: &str, arrival: &Arrival) -> bool {
        if self.ended.contains(member) {
            return false;
        }
        let this = (identity(member, arrival.incarnation), arrival.number);
        let is_new = |(identity, number): &(String, u64)| *identity != this.0 || *number < this.1;
        if !self.arrived.get(member).is_none_or(is_new) {
            return false;
        }
        self.lineage.reported(&arrival.history);
        self.arrived.insert(member.into(), this);
        self.unanswered.insert(member.into(), Some(arrival.clone()));
        true
    }

    /// Records that a worker forms a fixed group, because of a setting.
    pub(crate) fn fixed(&mut self, member: &str, setting: &str) {
        if self.contains(member) {
            self.fixed.insert(member.into(), setting.into());
        }
    }

    /// Records that a signal has stopped a member's process, or that it has continued.
    pub(crate) fn stopped(&mut self, member: &str, stopped: bool) {
        match stopped {
            true => self.stopped.insert(member.into()),
            false => self.stopped.remove(member),
        };
    }

    /// Records the end of a member's process.
    pub(crate) fn exited(&mut self, member: &str, exit: &MemberExit) {
        self.stopped.remove(member);
        self.fixed.remove(member);
        if let MemberExit::CannotBegin { .. } = exit {
            self.unable = Some((member.into(), exit.clone()));
        }
        self.ended.insert(member.into());
        self.unanswered.remove(member);
        if let Some((identity, _)) = self.arrived.remove(member) {
            self.lineage.died(&identity);
        }
    }

    /// Returns the end of a member of this node whose process is gone, for a leader that may not know it.
    pub(crate) fn exit_of(&self, member: &str) -> MemberExit {
        let own = self.unable.as_ref().filter(|(unable, _)| unable == member);
        own.map_or(MemberExit::Clean, |(_, exit)| exit.clone())
    }

    /// Returns true if a member of this node lives.
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
        if reply == Reply::StateLost {
            out.report(CoordinatorEvent::StateLost);
        }
        out.push(Effect::Reply { member: member.into(), arrival, reply });
    }

    /// Returns true if some member of this node waits for an assignment, which shows that the program is
    /// elastic.
    pub(crate) fn wait(&self) -> bool {
        self.unanswered.values().any(Option::is_some)
    }

    /// Refuses all members that wait, because no generation will be formed for them. If the job does not
    /// begin, their launcher ends them instead, so that one error says why.
    pub(crate) fn refuse_all(&mut self, detached: &Detached, out: &mut Effects) {
        let reply = match detached.clone() {
            Detached::Alone(reason) => Reply::Failed { reason },
            Detached::Superseded(reason) => Reply::Superseded { reason },
            Detached::CannotBegin(obstacle) => {
                if self.wait() || !self.fixed.is_empty() {
                    out.report(CoordinatorEvent::CannotBegin(obstacle));
                }
                return;
            }
        };
        let waiting =
            self.unanswered.iter().filter_map(|(m, arrival)| Some((m.clone(), arrival.as_ref()?.number)));
        for (member, number) in waiting.collect::<Vec<_>>() {
            self.reply(&member, number, reply.clone(), out);
        }
    }

    pub(crate) fn generation_formed(&mut self, formed: Formed, out: &mut Effects) {
        let after = self.formed.generation;
        self.formed = formed.clone();
        self.lineage.announced(&formed);
        out.push(Effect::GenerationFormed { formed, after });
    }
}

/// The reason why a coordinator no longer belongs to a job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Detached {
    /// The coordinator has lost the others or not found them, for the reason in this sentence.
    Alone(String),
    /// Another part of the job goes on, or may, as this sentence explains.
    Superseded(String),
    /// The job does not begin, because some worker cannot.
    CannotBegin(Obstacle),
}

impl Detached {
    /// The reason, as a sentence.
    pub(crate) fn reason(&self) -> &str {
        match self {
            Detached::Alone(reason) | Detached::Superseded(reason) => reason,
            Detached::CannotBegin(obstacle) => &obstacle.reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Membership;

    /// Without this check a generation contained a dead member whose end was never reported again, and
    /// waited for it forever. `kolo chaos` found it with seed 178, by a kill 43 ms after another one.
    #[test]
    fn who_has_ended_arrives_no_more() {
        let mut local = LocalMembers::default();
        let arrival = Membership::new(1, false).arrive(None, None);
        local.started("a");
        local.exited("a", &MemberExit::Failed("was killed".into()));
        assert!(!local.arrived("a", &arrival), "it was said before the end, and is heard after it");
        assert!(!local.contains("a"));
        local.started("a");
        assert!(local.arrived("a", &arrival), "another process of that name");
        assert!(!local.arrived("a", &arrival), "said again");
    }
}
