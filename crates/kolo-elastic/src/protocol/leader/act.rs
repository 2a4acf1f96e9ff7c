//! A leader's messages to members and followers after a decision.

use std::net::SocketAddr;
use std::time::Instant;

use super::state::Leader;
use crate::events::CoordinatorEvent;
use crate::generation::{Formed, GenerationId};
use crate::launcher_protocol::ToFollower;
use crate::protocol::context::Context;
use crate::protocol::effect::{Effect, Effects};
use crate::protocol::local_members::{Detached, LocalMembers};
use crate::protocol::worker_set::{Action, Candidate, Decision, GivingUp};
use crate::worker_protocol::{Assignment, Reply};

impl Leader {
    pub(super) fn act(
        &mut self,
        decision: Decision,
        now: Instant,
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
            Action::Evict(members) => {
                members.into_iter().for_each(|member| self.evict(member, &reason, out));
            }
            Action::GiveUp(ends) if ends.survivors.is_empty() => {
                self.end_job(ends, Err(reason), context, local, out);
            }
            Action::GiveUp(ends) => {
                out.push(Effect::ServeLast { members: ends.survivors.len() });
                self.ends = Some(ends);
            }
            Action::Abandon(obstacle) => {
                self.send_all(&ToFollower::CannotBegin(obstacle.clone()), out);
                self.given_up = Some((now, Detached::CannotBegin(obstacle)));
            }
            Action::ReportStateLost(candidates) => self.reply(local, &candidates, out, |_| Reply::StateLost),
        }
    }

    /// Tells all that too few members are left. The survivors form a last group with this store.
    pub(super) fn end_job(
        &mut self,
        ends: GivingUp,
        store: Result<SocketAddr, String>,
        context: &Context,
        local: &mut LocalMembers,
        out: &mut Effects,
    ) {
        let GivingUp { survivors, others, present, waited } = ends;
        let min = context.policy.min_members;
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        let too_few = |last| Reply::TooFew { present, min, waited_ms, last };
        self.reply(local, &others, out, |_| too_few(None));
        // No arbiter is asked: the group trains no further, and the run folder has one writer.
        let id = GenerationId { number: self.workers.generation(), leader: context.launcher_id };
        let reason = &self.last_reason.clone();
        self.reply(local, &survivors, out, |rank| match &store {
            Ok(store) => too_few(Some(assignment(id, survivors.len(), rank, *store, reason))),
            Err(reason) => Reply::Failed { reason: reason.clone() },
        });
        out.report(CoordinatorEvent::TooFewMembers { present });
        self.send_all(&ToFollower::TooFewMembers { present }, out);
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
            Reply::Assigned(assignment(id, candidates.len(), rank, store, &reason))
        });
    }

    /// Asks the launcher that has started a member to kill it for this reason.
    pub(super) fn evict(&mut self, member: String, reason: &str, out: &mut Effects) {
        self.evicted.insert(member.clone());
        let reason = reason.into();
        match (self.owner(&member), &mut self.followers) {
            (Some(id), Some(followers)) => followers.send(id, &ToFollower::Evict { member, reason }, out),
            _ => out.report(CoordinatorEvent::MemberHung { member, reason }),
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

/// Assigns a rank to one of the members of a group.
fn assignment(
    generation: GenerationId,
    world_size: usize,
    rank: usize,
    store: SocketAddr,
    reason: &str,
) -> Assignment {
    Assignment { generation, rank, world_size, store, reason: reason.into() }
}
