//! The protocol by which launchers agree about their workers, as a value: a state, and a function that takes
//! an event and gives what is to be done. No clocks, sockets or threads: `driver` feeds it, and so does the
//! model checker (`model`).
//!
//! From the top down; no two files import each other:
//!
//! | file | idea |
//! |---|---|
//! | `role` | what a launcher does for its job: look for it, lead it, follow its leader |
//! | `follower`, `leader` | the two roles |
//! | `followers`, `follower_state` | the followers as the leader sees them |
//! | `claims` | a leader's questions to the arbiter |
//! | `local_members` | the members of a launcher's own node |
//! | `succession` | which launcher leads next: a pure function |
//! | `lineage` | the generations that the next one may follow |
//! | `worker_set` | when a generation begins and who belongs to it: a pure function |
//! | `context` | what a launcher is told at its start |
//! | `event`, `effect` | what goes in, and what comes out |
//! | `missing` | whom a launcher waits for, in words |
//! | `membership` | the other side: a worker, which arrives and is assigned |

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

/// All that a launcher knows of its job.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LauncherState {
    pub(crate) role: Role,
    pub(crate) local: LocalMembers,
}

impl LauncherState {
    /// Whether this launcher leads others.
    pub(crate) fn has_followers(&self) -> bool {
        let Role::Leading(leader) = &self.role else { return false };
        leader.followers.as_ref().is_some_and(|followers| !followers.is_empty())
    }

    /// Whom this launcher waits for, as a sentence; `None` where it waits for nobody, or where the search for
    /// the job tells.
    pub(crate) fn waits_for(&self, context: &Context) -> Option<String> {
        match &self.role {
            Role::Leading(leader) => leader.waits_for(context),
            Role::Following(follower) => follower.waits_for(context, &self.local),
            Role::Discovering | Role::Detached(_) => None,
        }
    }

    /// A launcher in this role, without members.
    pub(crate) fn new(role: Role) -> LauncherState {
        LauncherState { role, local: LocalMembers::default() }
    }

    /// Takes note of an event that is told at `now`, which never goes back; gives what is to be done.
    pub(crate) fn handle(&mut self, event: Event, now: Instant, context: &Context) -> Vec<Effect> {
        let mut out = Effects::default();
        if let Event::Member { member, event } = &event {
            match event {
                MemberEvent::Started => self.local.started(member),
                MemberEvent::Arrived(arrival) if !self.local.arrived(member, arrival) => return out.0,
                MemberEvent::Arrived(_) => {}
                MemberEvent::Exited(_) => self.local.exited(member),
                MemberEvent::CpuTime(_) => {}
            }
        }
        self.local.closed |= event == Event::Closed;
        let role = std::mem::replace(&mut self.role, Role::Discovering);
        self.role = role.handle(event, now, context, &mut self.local, &mut out);
        out.0
    }
}
