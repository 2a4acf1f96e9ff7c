//! What a coordinator does for its job: find it, lead it, or follow its leader. All changes from one to
//! another are made here.

use std::sync::mpsc::{Receiver, TryRecvError};

use kolo_rendezvous::Error;

use crate::context::Context;
use crate::discovery::{Discovered, Discovery};
use crate::events::{CoordinatorEvent, MemberEvent};
use crate::follower::{Follower, NextRole};
use crate::followers::Followers;
use crate::launcher_protocol::ToLeader;
use crate::leader::Leader;
use crate::local_members::{Detached, LocalMembers};

/// A coordinator's role in its job.
pub(crate) enum Role {
    /// The coordinator looks for the other launchers.
    Discovering(Receiver<Result<Discovered, Error>>),
    Leading(Box<Leader>),
    Following(Box<Follower>),
    /// The coordinator belongs to no job any more: members that arrive are told.
    Detached(Detached),
}

impl Role {
    /// Leads the job that this launcher has begun, or follows the leader of the one that it has joined.
    fn begin(discovered: Discovered, context: &Context, local: &mut LocalMembers) -> Role {
        let Discovered { store, ip, node_rank, view, connection } = discovered;
        local.node_rank = Some(node_rank);
        local.publish_job_id(view.job_id);
        if let Some(connection) = connection {
            return Role::Following(Box::new(Follower::new(store, ip, view, connection, local)));
        }
        let access = context.access.clone();
        let followers = Followers::new(store, access.clone(), context.limits, view);
        let mut leader = Leader::new(context, ip, Some(followers));
        leader.meet_local_members(local);
        Role::Leading(Box::new(leader))
    }

    /// Leads the job that this launcher has followed until now.
    fn take_over(follower: Follower, context: &Context, local: &LocalMembers) -> Role {
        log::info!("this launcher leads now");
        // The connection to the last leader is closed at the end of this function.
        let Follower { store, ip, view, .. } = follower;
        let (access, members) = (context.access.clone(), &local.formed.members);
        let followers = Followers::inherit(store, access, context.limits, view, members);
        Role::Leading(Box::new(Leader::take_over(context, ip, followers, local)))
    }

    /// Looks for the job once more: its leader has gone before anything had begun.
    fn rediscover(context: &Context, local: &LocalMembers) -> Role {
        match context.discovery.as_ref().map(Discovery::start) {
            Some(Ok(discovered)) => Role::Discovering(discovered),
            Some(Err(error)) => Role::detach(local, error.to_string().into()),
            None => Role::detach(local, String::from("it has lost the others").into()),
        }
    }

    /// Belongs to no job any more, and tells the launcher.
    fn detach(local: &LocalMembers, detached: Detached) -> Role {
        Role::detach_for(local, detached, false)
    }

    /// As [`Role::detach`]; `all` says whether the reason holds for members, too, that do without a
    /// coordinator.
    fn detach_for(local: &LocalMembers, detached: Detached, all: bool) -> Role {
        let reason = &detached.reason;
        log::info!("this launcher does not work together with others: {reason}");
        let ends_job = all || local.unanswered.values().any(Option::is_some);
        let reason = reason.clone();
        local.tell_launcher(match detached.superseded {
            true => CoordinatorEvent::Superseded { reason },
            false => CoordinatorEvent::Detached { reason, ends_job },
        });
        Role::Detached(detached)
    }

    /// Takes note of what has happened to a member of this node, or passes it on to the leader.
    pub(crate) fn member_event(&mut self, member: &str, event: MemberEvent) {
        match self {
            Role::Leading(leader) => leader.member_event(member, event),
            Role::Following(follower) => follower.member_event(member, event),
            Role::Discovering(_) | Role::Detached(_) => {}
        }
    }

    /// The work of this node's members is done.
    pub(crate) fn work_done(&mut self) {
        match self {
            Role::Leading(leader) => leader.followers.iter_mut().for_each(Followers::work_done),
            Role::Following(follower) => follower.send(ToLeader::WorkDone),
            Role::Discovering(_) | Role::Detached(_) => {}
        }
    }

    /// No more workers will be started on this node.
    pub(crate) fn close(&mut self) {
        if let Role::Leading(leader) = self {
            leader.close();
        }
    }

    /// Does what is to be done now; gives the role from now on.
    pub(crate) fn tick(self, context: &Context, local: &mut LocalMembers) -> Role {
        match self {
            Role::Discovering(discovered) => match discovered.try_recv() {
                Ok(Ok(discovered)) => Role::begin(discovered, context, local),
                Ok(Err(error)) => {
                    let differs = matches!(error, Error::TokenDiffers { .. });
                    Role::detach_for(local, error.to_string().into(), differs)
                }
                Err(TryRecvError::Empty) => Role::Discovering(discovered),
                Err(TryRecvError::Disconnected) => {
                    Role::detach(local, String::from("a thread has ended").into())
                }
            },
            Role::Leading(mut leader) => match leader.tick(context, local) {
                Ok(()) => Role::Leading(leader),
                Err(detached) => Role::detach(local, detached),
            },
            Role::Following(mut follower) => match follower.tick(context, local) {
                NextRole::Follow => Role::Following(follower),
                NextRole::Lead => Role::take_over(*follower, context, local),
                NextRole::Rediscover => Role::rediscover(context, local),
                NextRole::Detach(detached) => Role::detach(local, detached),
            },
            Role::Detached(detached) => {
                local.refuse_all(&detached);
                Role::Detached(detached)
            }
        }
    }
}
