//! A leader's decisions, and its claims on generations.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Instant;

use super::state::Leader;
use crate::arbiter::Claim;
use crate::events::EndCause;
use crate::generation::{Formed, History};
use crate::launcher_protocol::ToFollower;
use crate::protocol::claims::Claimed;
use crate::protocol::context::Context;
use crate::protocol::effect::Effects;
use crate::protocol::followers::Followers;
use crate::protocol::local_members::{Detached, LocalMembers};
use crate::protocol::worker_set::{Action, Candidate};
use crate::worker_protocol::Reply;

impl Leader {
    /// Decides from everything that the leader knows now.
    pub(super) fn tick(
        &mut self,
        now: Instant,
        context: &Context,
        local: &mut LocalMembers,
        out: &mut Effects,
    ) {
        if let Some(followers) = &mut self.followers {
            followers.probe_the_silent(now, out);
            let started = followers.begin_job(self.deferred_workers, out);
            started.iter().for_each(|member| self.workers.started(member));
            local.initial_nodes = followers.view.initial_nodes;
            if !followers.has_begun() && now >= context.begins_by {
                let reason = followers.too_few(context.start_timeout);
                followers.send_all(&ToFollower::Refused { reason: reason.clone() }, out);
                self.given_up = Some((now, Detached::Alone(format!("it {reason}"))));
                return;
            }
        }
        self.count_remote_members(local, out);
        if let Some(followers) = &self.followers {
            self.workers.close_members(followers.closing_members());
        }
        if let Some(cause) = local.closed {
            if cause >= EndCause::Failed {
                self.workers.close_members(local.unanswered.keys());
            }
            if self.followers.as_ref().is_none_or(Followers::are_closed) {
                self.workers.close(cause);
            }
        }
        if self.followers.as_ref().is_none_or(Followers::are_ready) {
            self.decide(now, context, local, out);
        }
    }

    fn decide(&mut self, now: Instant, context: &Context, local: &mut LocalMembers, out: &mut Effects) {
        let decision = self.workers.decide(now);
        let Action::FormGeneration(candidates) = &decision.action else {
            self.workers.apply(&decision, now);
            return self.act(decision, now, context, local, out);
        };
        let Some(store) = self.claim(context, local, candidates, now, out) else {
            self.claims.take_refusal().into_iter().for_each(|refusal| out.warn(refusal));
            return;
        };
        self.workers.apply(&decision, now);
        match store {
            Ok(store) => {
                let (candidates, reason) = (candidates.clone(), decision.reason);
                self.form_generation(context.launcher_id, local, &candidates, reason, store, out);
            }
            Err(reason) => {
                out.warn(format!("no generation can be formed: {reason}"));
                self.reply(local, candidates, out, |_| Reply::Failed { reason: reason.clone() });
            }
        }
    }

    /// Claims the next generation for these members. Returns its store if it may be formed now. The leader
    /// gives up if another one goes on, or may.
    fn claim(
        &mut self,
        context: &Context,
        local: &LocalMembers,
        candidates: &[Candidate],
        now: Instant,
        out: &mut Effects,
    ) -> Option<Result<SocketAddr, String>> {
        let claim = Claim {
            job: self.followers.as_ref().map_or(context.launcher_id, |followers| followers.view.job_id),
            leader: context.launcher_id,
            place: context.place.clone(),
            newest: self.lineage.newest().max(self.workers.generation()),
            members: self.identities_of(candidates),
            left: self.workers.histories(candidates).flat_map(History::all).collect(),
            abandoned: self.abandoned_by(candidates, local),
            announced: self.lineage.generations().iter().map(Formed::id).collect(),
            predecessors: self.lineage.predecessors(self.workers.histories(candidates)),
        };
        match self.claims.claim(&claim, now, out) {
            Claimed::Granted { number, store } => {
                self.workers.granted(number);
                Some(store)
            }
            Claimed::Waits => None,
            Claimed::Refused(reason) => {
                self.send_all(&ToFollower::Superseded { reason: reason.clone() }, out);
                self.given_up = Some((now, Detached::Superseded(reason)));
                None
            }
        }
    }

    /// Returns the leaders that the candidates' launchers have left for good.
    fn abandoned_by(&self, candidates: &[Candidate], local: &LocalMembers) -> BTreeSet<(String, u64)> {
        let mut abandoned = BTreeSet::new();
        for Candidate { member, .. } in candidates {
            let left = match (self.owner(member), &self.followers) {
                (Some(id), Some(followers)) => followers.left_by(id),
                _ => Some(&local.left),
            };
            if let (Some(left), Some(identity)) = (left, self.identities.get(member)) {
                abandoned.extend(left.iter().map(|leader| (identity.clone(), *leader)));
            }
        }
        abandoned
    }

    pub(super) fn identities_of(&self, candidates: &[Candidate]) -> Vec<String> {
        let known = candidates.iter().filter_map(|candidate| self.identities.get(&candidate.member));
        known.cloned().collect()
    }

    fn count_remote_members(&mut self, local: &mut LocalMembers, out: &mut Effects) {
        let Some(followers) = &mut self.followers else { return };
        let members: BTreeSet<&str> = self.workers.members().collect();
        local.remote_members = members.iter().filter(|member| !local.contains(member)).count();
        followers.send_remote_members(&members, out);
    }
}
