//! The protocol by which launchers agree on their workers: a state, and a function from an event to a list
//! of effects. It has no clocks, sockets or threads: `driver` feeds it, and so does the model checker
//! (`model`).
//!
//! From the top down; no two files import each other:
//!
//! | file | idea |
//! |---|---|
//! | `role` | the roles of a launcher in its job: looking for it, leading it, following its leader |
//! | `follower`, `leader` | the two roles |
//! | `followers`, `follower_state` | the leader's record of its followers |
//! | `claims` | a leader's requests to the arbiter |
//! | `local_members` | the members of a launcher's own node |
//! | `succession` | the next leader: a pure function |
//! | `lineage` | the generations that the next one may follow |
//! | `worker_set` | the beginning of a generation and its members: a pure function |
//! | `context` | constants that a launcher receives at its start |
//! | `event`, `effect` | inputs and outputs |
//! | `missing` | descriptions of missing nodes and members, for the user |
//! | `membership` | the other side: a worker, which arrives and receives an assignment |

mod claims;
mod context;
mod effect;
mod event;
mod follower;
mod follower_state;
mod followers;
mod leader;
mod lineage;
mod local_members;
mod membership;
mod missing;
mod role;
mod succession;
mod worker_set;

use std::time::Instant;

pub(crate) use context::Context;
pub(crate) use effect::{Effect, Effects};
pub(crate) use event::{ClaimAnswer, Event, Found};
#[cfg(test)]
pub(crate) use lineage::Lineage;
pub(crate) use local_members::LocalMembers;
pub(crate) use membership::{Membership, Outcome};
pub(crate) use role::Role;
pub use worker_set::MembershipPolicy;

use crate::events::MemberEvent;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LauncherState {
    pub(crate) role: Role,
    pub(crate) local: LocalMembers,
}

impl LauncherState {
    /// Returns true if this launcher leads others.
    pub(crate) fn has_followers(&self) -> bool {
        let Role::Leading(leader) = &self.role else { return false };
        leader.followers.as_ref().is_some_and(|followers| !followers.is_empty())
    }

    /// Describes, as a sentence, which launchers or members this launcher waits for; `None` if it waits for
    /// none, or if the search for the job reports it.
    pub(crate) fn waits_for(&self, context: &Context) -> Option<String> {
        match &self.role {
            Role::Leading(leader) => leader.waits_for(context),
            Role::Following(follower) => follower.waits_for(context, &self.local),
            Role::Discovering | Role::Detached(_) => None,
        }
    }

    pub(crate) fn new(role: Role) -> LauncherState {
        LauncherState { role, local: LocalMembers::default() }
    }

    /// Handles an event at the time `now`, which never goes back. Returns the effects.
    pub(crate) fn handle(&mut self, event: Event, now: Instant, context: &Context) -> Vec<Effect> {
        let mut out = Effects::default();
        if let Event::Member { member, event } = &event {
            match event {
                MemberEvent::Started => self.local.started(member),
                MemberEvent::Arrived(arrival) if !self.local.arrived(member, arrival) => return out.0,
                MemberEvent::Arrived(_) => {}
                MemberEvent::Exited(exit) => self.local.exited(member, exit),
                MemberEvent::Fixed(setting) => self.local.fixed(member, setting),
                MemberEvent::Stopped(stopped) => self.local.stopped(member, *stopped),
                MemberEvent::CpuTime(_) => {}
            }
        }
        if let Event::Closed(cause) = event {
            self.local.closed = self.local.closed.max(Some(cause));
        }
        let role = std::mem::replace(&mut self.role, Role::Discovering);
        self.role = role.handle(event, now, context, &mut self.local, &mut out);
        out.0
    }
}
