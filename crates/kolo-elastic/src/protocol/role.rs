//! The roles of a coordinator: it looks for its job, leads it, or follows its leader. Only this file changes
//! roles.

use std::time::Instant;

use super::context::Context;
use super::effect::{Effect, Effects};
use super::event::{Event, Found};
use super::follower::{Follower, NextRole};
use super::followers::Followers;
use super::leader::Leader;
use super::local_members::{Detached, LocalMembers};
use crate::events::CoordinatorEvent;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    /// The coordinator looks for the other launchers.
    Discovering,
    Leading(Box<Leader>),
    Following(Box<Follower>),
    /// The coordinator no longer belongs to a job, and refuses members that arrive.
    Detached(Detached),
}

impl Role {
    /// The leader of a job of one node.
    pub(crate) fn alone(context: &Context, now: Instant) -> Role {
        Role::Leading(Box::new(Leader::new(context, None, now)))
    }

    pub(crate) fn handle(
        self,
        event: Event,
        now: Instant,
        context: &Context,
        local: &mut LocalMembers,
        out: &mut Effects,
    ) -> Role {
        match self {
            Role::Discovering => match event {
                Event::Found(found) => Role::begin(found, now, context, local, out),
                Event::NotFound { reason, for_all } => {
                    Role::detach(Detached::Alone(reason), for_all, local, out)
                }
                _ => Role::Discovering,
            },
            Role::Leading(mut leader) => match leader.handle(event, now, context, local, out) {
                Ok(()) => Role::Leading(leader),
                Err(detached) => Role::detach(detached, false, local, out),
            },
            Role::Following(mut follower) => match follower.handle(event, now, context, local, out) {
                NextRole::Follow => Role::Following(follower),
                NextRole::Lead => Role::take_over(*follower, now, context, local, out),
                NextRole::Rediscover => {
                    out.push(Effect::Leave);
                    out.push(Effect::Discover);
                    Role::Discovering
                }
                NextRole::Detach(detached) => Role::detach(detached, false, local, out),
            },
            Role::Detached(detached) => {
                if event == Event::Tick {
                    local.refuse_all(&detached, out);
                }
                Role::Detached(detached)
            }
        }
    }

    /// Leads the job that this launcher has begun, or follows the leader of the job that it has joined.
    fn begin(
        found: Found,
        now: Instant,
        context: &Context,
        local: &mut LocalMembers,
        out: &mut Effects,
    ) -> Role {
        let Found { address, node_rank, view, leads } = found;
        local.node_rank = Some(node_rank);
        out.push(Effect::PublishJobId(view.job_id));
        if !leads {
            let leader = view.leader().map(|leader| (leader.node_rank, leader.address));
            out.report(CoordinatorEvent::Joined { node_rank, leader });
            return Role::Following(Box::new(Follower::new(address, view, local, out)));
        }
        let followers = Followers::new(context.limits, view, now, out);
        let mut leader = Leader::new(context, Some(followers), now);
        leader.meet_local_members(local, now);
        Role::Leading(Box::new(leader))
    }

    /// Leads the job that this launcher has followed until now.
    fn take_over(
        follower: Follower,
        now: Instant,
        context: &Context,
        local: &LocalMembers,
        out: &mut Effects,
    ) -> Role {
        log::info!("this launcher leads now");
        let members = &local.formed.members;
        let followers = Followers::inherit(context.limits, follower.view, members, now, out);
        Role::Leading(Box::new(Leader::take_over(context, followers, local, now, out)))
    }

    /// Leaves the job for good, and informs the launcher. `for_all`: members without a coordinator must end,
    /// too.
    fn detach(detached: Detached, for_all: bool, local: &LocalMembers, out: &mut Effects) -> Role {
        let reason = detached.reason().to_string();
        log::info!("this launcher does not work together with others: {reason}");
        out.push(Effect::Leave);
        out.push(Effect::PublishNoJob { reason });
        match detached.clone() {
            Detached::Alone(reason) => {
                out.report(CoordinatorEvent::Detached { reason, ends_job: for_all || local.wait() });
            }
            Detached::Superseded(reason) => out.report(CoordinatorEvent::Superseded { reason }),
            // The next tick reports it, if the program is elastic.
            Detached::CannotBegin(_) => {}
        }
        Role::Detached(detached)
    }
}
