//! A leader's messages to members and followers after a decision.

use std::net::SocketAddr;

use super::state::Leader;
use crate::events::CoordinatorEvent;
use crate::generation::{Formed, GenerationId};
use crate::launcher_protocol::ToFollower;
use crate::member_name::node_of;
use crate::protocol::context::Context;
use crate::protocol::effect::{Effect, Effects};
use crate::protocol::local_members::LocalMembers;
use crate::protocol::worker_set::{Action, Candidate, Decision};
use crate::worker_protocol::{Assignment, Reply};

impl Leader {
    pub(super) fn act(
        &mut self,
        decision: Decision,
        context: &Context,
        local: &mut LocalMembers,
        out: &mut Effects,
    ) {
        let Decision { action, reason } = decision;
        if self.last_reason != reason {
            log::debug!("{reason}: {action:?}");
            self.last_reason.clone_from(&reason);
        }
        match action {
            Action::Wait | Action::EndGeneration | Action::FormGeneration(_) => {}
            Action::RequestRegroup => {
                let generation = self.workers.generation();
                out.push(Effect::RequestRegroup { generation });
                self.send_all(&ToFollower::RequestRegroup { generation }, out);
            }
            Action::Evict(members) => members.into_iter().for_each(|member| self.evict(member, out)),
            Action::GiveUp { candidates, present, waited } => {
                let min = context.policy.min_members;
                let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                self.reply(local, &candidates, out, |rank| Reply::TooFew {
                    present,
                    min,
                    waited_ms,
                    first: rank == 0,
                });
                out.report(CoordinatorEvent::TooFewMembers { present });
                self.send_all(&ToFollower::TooFewMembers { present }, out);
            }
            Action::ReportStateLost(candidates) => self.reply(local, &candidates, out, |_| Reply::StateLost),
        }
    }

    pub(super) fn form_generation(
        &mut self,
        leader: u64,
        local: &mut LocalMembers,
        candidates: &[Candidate],
        reason: String,
        store: SocketAddr,
        out: &mut Effects,
    ) {
        let generation = self.workers.generation();
        log::debug!("{reason}: generation {generation} of {} members", candidates.len());
        let id = GenerationId { number: generation, leader };
        let members: Vec<String> = candidates.iter().map(|candidate| candidate.member.clone()).collect();
        // Followers learn of the generation before its members: the next leader must know where these are.
        let state_held = self.workers.state_was_held();
        let identities = self.identities_of(candidates);
        let evicted = self.evicted.iter().cloned().collect();
        let reason_of = reason.clone();
        let formed =
            Formed { generation, leader, members, identities, evicted, reason: reason_of, state_held };
        self.lineage.announced(&formed);
        self.followers.iter_mut().for_each(|followers| followers.granted(generation, out));
        self.send_all(&ToFollower::Formed(formed.clone()), out);
        local.generation_formed(formed, out);
        self.reply(local, candidates, out, |rank| {
            let node = node_of(&candidates[rank].member);
            let local_rank = candidates[..rank].iter().filter(|other| node_of(&other.member) == node).count();
            let (world_size, reason) = (candidates.len(), reason.clone());
            Reply::Assigned(Assignment { generation: id, rank, world_size, local_rank, store, reason })
        });
    }

    /// Asks the launcher that has started a member to kill it.
    pub(super) fn evict(&mut self, member: String, out: &mut Effects) {
        self.evicted.insert(member.clone());
        match (self.owner(&member), &mut self.followers) {
            (Some(id), Some(followers)) => followers.send(id, &ToFollower::Evict { member }, out),
            _ => out.report(CoordinatorEvent::MemberHung { member }),
        }
    }

    /// Answers the arrival of each candidate, by its position in the list.
    pub(super) fn reply(
        &mut self,
        local: &mut LocalMembers,
        candidates: &[Candidate],
        out: &mut Effects,
        reply: impl Fn(usize) -> Reply,
    ) {
        for (place, Candidate { member, arrival }) in candidates.iter().enumerate() {
            let (member, arrival, reply) = (member.clone(), *arrival, reply(place));
            match (self.owner(&member), &mut self.followers) {
                (Some(id), Some(followers)) => {
                    followers.send(id, &ToFollower::Reply { member, arrival, reply }, out);
                }
                _ => local.reply(&member, arrival, reply, out),
            }
        }
    }
}
