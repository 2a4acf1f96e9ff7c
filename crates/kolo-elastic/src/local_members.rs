//! The members of a coordinator's own node, and the store at which they arrive, whoever leads the job.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use kolo_rendezvous::store::Server;

use crate::events::CoordinatorEvent;
use crate::generation::{Formed, identity};
use crate::lineage::Lineage;
use crate::member_ranks::MemberRanks;
use crate::worker_protocol::{self, Arrival, Reply};

/// What a coordinator knows of its own node, and by what it speaks to the members and the launcher there.
pub(crate) struct LocalMembers {
    store: Arc<Server>,
    launcher: Sender<CoordinatorEvent>,
    /// The members of this node that have not ended, each with its arrival while that has not been answered.
    pub(crate) unanswered: BTreeMap<String, Option<Arrival>>,
    /// What tells those that have arrived from other processes of their names.
    pub(crate) identities: BTreeMap<String, String>,
    /// The last generation that is known here.
    pub(crate) formed: Formed,
    /// The generations that the next one may follow, as far as is known here.
    pub(crate) lineage: Lineage,
    /// The ranks of its members, for the launcher.
    pub(crate) ranks: MemberRanks,
    /// Members on other nodes.
    pub(crate) remote_members: usize,
    /// This node's rank, once it has one.
    pub(crate) node_rank: Option<usize>,
    /// Nodes with which the job has begun, once it has.
    pub(crate) initial_nodes: Option<usize>,
}

impl LocalMembers {
    /// No members yet; they will arrive at `store`, and `launcher` hears the coordinator's events.
    pub(crate) fn new(store: Arc<Server>, launcher: Sender<CoordinatorEvent>) -> LocalMembers {
        let (unanswered, formed) = (BTreeMap::new(), Formed::default());
        let (node_rank, initial_nodes) = (None, None);
        let (ranks, lineage, identities) = (MemberRanks::default(), Lineage::default(), BTreeMap::new());
        LocalMembers {
            store,
            launcher,
            unanswered,
            identities,
            formed,
            lineage,
            ranks,
            remote_members: 0,
            node_rank,
            initial_nodes,
        }
    }

    /// Takes note of a member that has been started here.
    pub(crate) fn started(&mut self, member: &str) {
        self.unanswered.entry(member.into()).or_default();
    }

    /// Takes note of a member's arrival, which the leader is to answer.
    pub(crate) fn arrived(&mut self, member: &str, arrival: Arrival) {
        self.lineage.heard(&arrival.history);
        self.identities.insert(member.into(), identity(member, arrival.incarnation));
        self.unanswered.insert(member.into(), Some(arrival));
    }

    /// Takes note of the end of a member's process.
    pub(crate) fn exited(&mut self, member: &str) {
        self.unanswered.remove(member);
        if let Some(identity) = self.identities.remove(member) {
            self.lineage.died(&identity);
        }
    }

    /// Whether a member of this node lives.
    pub(crate) fn contains(&self, member: &str) -> bool {
        self.unanswered.contains_key(member)
    }

    /// Tells members which job they belong to.
    pub(crate) fn publish_job_id(&self, job_id: u64) {
        self.set(worker_protocol::JOB_ID, format!("{job_id:016x}"));
    }

    /// Answers an arrival of a member of this node.
    pub(crate) fn reply(&mut self, member: &str, number: u64, reply: &Reply) {
        if let Some(unanswered) = self.unanswered.get_mut(member)
            && unanswered.as_ref().is_some_and(|arrival| arrival.number == number)
        {
            *unanswered = None;
        }
        match serde_json::to_string(reply) {
            Ok(text) => self.set(&worker_protocol::reply_key(member, number), text),
            Err(error) => self.warn(format!("a reply to {member} cannot be written: {error}")),
        }
    }

    /// Answers all members that wait: no generation will be formed for them.
    pub(crate) fn refuse_all(&mut self, detached: &Detached) {
        let waiting =
            self.unanswered.iter().filter_map(|(m, arrival)| Some((m.clone(), arrival.as_ref()?.number)));
        for (member, number) in waiting.collect::<Vec<_>>() {
            self.reply(&member, number, &detached.reply());
        }
    }

    /// Asks the members of a generation to arrive again after a step.
    pub(crate) fn request_regroup(&self, generation: u64) {
        self.set(&worker_protocol::regroup_key(generation), "1".into());
    }

    /// Takes note of a generation that has begun, and tells the launcher.
    pub(crate) fn generation_formed(&mut self, formed: Formed) {
        // Nobody is in the last one any more to be asked to leave it.
        self.store.remove(&worker_protocol::regroup_key(self.formed.generation));
        self.formed = formed.clone();
        self.lineage.told(&formed);
        self.ranks.formed(formed.generation, &formed.members);
        let Formed { generation, members, reason, .. } = formed;
        self.tell_launcher(CoordinatorEvent::GenerationFormed { generation, members, reason });
    }

    /// Tells the launcher that runs this coordinator.
    pub(crate) fn tell_launcher(&self, event: CoordinatorEvent) {
        // The launcher listens no more when it is about to end.
        let _ = self.launcher.send(event);
    }

    fn set(&self, key: &str, value: String) {
        if let Err(why) = self.store.set(key, value) {
            self.warn(format!("the coordinator cannot keep `{key}`: {why}"));
        }
    }

    /// Tells the launcher of something that does not work as it should.
    pub(crate) fn warn(&self, text: String) {
        self.tell_launcher(CoordinatorEvent::Warning { text });
    }
}

/// Why a coordinator belongs to no job any more.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// The members that have arrived at a coordinator's store since the last call; waits for the first one at
/// most `wait`. An error says why an arrival is not understood.
pub(crate) fn take_arrivals(store: &Server, wait: Duration) -> Vec<(String, Result<Arrival, String>)> {
    let decode = |(member, text): (String, String)| {
        let arrival = serde_json::from_str::<Arrival>(&text).map_err(|error| error.to_string());
        (member, arrival)
    };
    store.take(worker_protocol::ARRIVAL, wait).into_iter().map(decode).collect()
}

/// The members that have told their CPU time at a coordinator's store since the last call, with what each
/// one's process has taken.
pub(crate) fn take_cpu_times(store: &Server) -> Vec<(String, Duration)> {
    let decode = |(member, ms): (String, String)| Some((member, Duration::from_millis(ms.parse().ok()?)));
    store.take(worker_protocol::CPU_TIME, Duration::ZERO).into_iter().filter_map(decode).collect()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::mpsc;

    use kolo_rendezvous::secure::Access;
    use kolo_rendezvous::store::Store;

    use super::*;

    #[test]
    fn a_job_of_many_generations_leaves_nothing_in_the_store() {
        let access = Access::new(None, false).unwrap();
        let server = Arc::new(Server::start((Ipv4Addr::LOCALHOST, 0).into(), 1, &access).unwrap());
        let mut member = Store::connect(server.address().unwrap(), &access, Duration::from_secs(60)).unwrap();
        let (launcher, _events) = mpsc::channel();
        let mut local = LocalMembers::new(server.clone(), launcher);
        for generation in 1..=20 {
            local.reply("node0/0.0", generation, &Reply::StateLost);
            let key = worker_protocol::reply_key("node0/0.0", generation);
            assert!(member.take(&key, Duration::from_secs(60)).unwrap().is_some());
            local.request_regroup(generation - 1);
            local.generation_formed(Formed { generation, ..Formed::default() });
        }
        for prefix in ["reply/", "regroup/"] {
            let left = server.take(prefix, Duration::ZERO);
            assert!(left.is_empty(), "{prefix}: {left:?}");
        }
    }
}
