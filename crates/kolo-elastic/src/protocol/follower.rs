//! A coordinator that follows: it reports the events of its own members to the leader, passes the leader's
//! replies on to them, and knows enough to lead when the launchers before it are gone.

use std::net::SocketAddr;
use std::time::Instant;

use super::context::Context;
use super::effect::{Effect, Effects};
use super::event::Event;
use super::local_members::{Detached, LocalMembers};
use super::missing::nodes_missing;
use super::succession::{LeaderAnswer, LeaderLoss, Succession, succeed};
use crate::events::{CoordinatorEvent, MemberEvent};
use crate::generation::Formed;
use crate::launcher_protocol::{Hello, ToFollower, ToLeader};
use crate::launcher_view::LauncherView;
use crate::member_name::node_rank_of;
use kolo_schedule::words::counted;

/// The follower's part of a coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Follower {
    /// Address at which others reach this launcher's store.
    address: SocketAddr,
    pub(crate) view: LauncherView,
    connection: Connection,
    /// Number of connections that the launcher has made since a leader last welcomed it.
    tries: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Connection {
    Open,
    /// The last leader is lost, and the driver connects to the next one.
    Opening,
    /// The leader is lost, for the reason in the text, and the driver probes whether it lives.
    Lost(String),
}

pub(crate) enum NextRole {
    /// The launcher goes on following.
    Follow,
    /// The launcher leads, with its view.
    Lead,
    /// The launcher looks for the job again.
    Rediscover,
    /// The launcher no longer belongs to a job.
    Detach(Detached),
}

impl NextRole {
    fn detach(reason: impl Into<String>) -> NextRole {
        NextRole::Detach(Detached::Alone(reason.into()))
    }
}

impl Follower {
    pub(crate) fn new(
        address: SocketAddr,
        view: LauncherView,
        local: &LocalMembers,
        out: &mut Effects,
    ) -> Follower {
        report_members(local, out);
        Follower { address, view, connection: Connection::Open, tries: 0 }
    }

    /// Sends a message to the leader, or drops it without a connection: [`report_members`] informs the next
    /// one.
    fn send(&self, message: ToLeader, out: &mut Effects) {
        if self.connection == Connection::Open {
            out.push(Effect::ToLeader(message));
        }
    }

    /// Describes the launchers or members that this launcher and its members wait for.
    pub(crate) fn waits_for(&self, context: &Context, local: &LocalMembers) -> Option<String> {
        let leader = self.view.leader().map(|leader| leader.address)?;
        if self.connection != Connection::Open {
            return Some(format!("the launcher at {leader}, which leads, does not answer"));
        }
        if self.view.initial_nodes.is_none() {
            let came: Vec<usize> = self.view.launchers.iter().map(|launcher| launcher.node_rank).collect();
            return Some(nodes_missing(context, &came));
        }
        local.wait().then(|| {
            format!("workers here wait for others; the launcher at {leader} leads, and says for whom")
        })
    }

    /// Reports local events to the leader, carries out its messages, and finds the next leader after it.
    pub(crate) fn handle(
        &mut self,
        event: Event,
        now: Instant,
        context: &Context,
        local: &mut LocalMembers,
        out: &mut Effects,
    ) -> NextRole {
        match (event, &self.connection) {
            (Event::Member { member, event }, _) => self.send(ToLeader::Member { member, event }, out),
            (Event::WorkDone, _) => self.send(ToLeader::WorkDone, out),
            (Event::Closed(cause), _) => self.send(ToLeader::Closed(cause), out),
            (Event::End, _) => self.send(ToLeader::Goodbye, out),
            (Event::FromLeader(message), Connection::Open) => {
                return self.handle_message(message, context, local, out);
            }
            (Event::LeaderLost { why }, Connection::Open | Connection::Opening) => {
                out.push(Effect::Disconnect);
                return self.leader_lost(why, context, local, out);
            }
            (Event::Probed { view, .. }, Connection::Lost(why)) => {
                let answer = LeaderAnswer::of(&self.view, view);
                let why = why.clone();
                return self.succeed(answer, &why, context, local, out);
            }
            (Event::Welcomed, Connection::Opening) => {
                (self.connection, self.tries) = (Connection::Open, 0);
                report_members(local, out);
            }
            // A refusal is final.
            (Event::RefusedByLeader { why }, Connection::Opening) => return NextRole::detach(why),
            (Event::Tick, _) if self.view.initial_nodes.is_none() && now >= context.begins_by => {
                let (came, waited) = (self.view.launchers.len(), context.start_timeout);
                let min = context.limits.min;
                return NextRole::detach(format!(
                    "it needs {} (--nnodes), and {came} {} come within {waited:?}",
                    counted(min, "node"),
                    if came == 1 { "has" } else { "have" }
                ));
            }
            _ => {}
        }
        NextRole::Follow
    }

    fn handle_message(
        &mut self,
        message: ToFollower,
        context: &Context,
        local: &mut LocalMembers,
        out: &mut Effects,
    ) -> NextRole {
        match message {
            ToFollower::View(view) => {
                out.push(Effect::Publish(view.clone()));
                local.initial_nodes = view.initial_nodes;
                self.view = view;
            }
            ToFollower::Refused { reason } => return NextRole::detach(format!("the job {reason}")),
            ToFollower::Superseded { reason } => {
                return NextRole::Detach(Detached::Superseded(reason));
            }
            ToFollower::CannotBegin(obstacle) => return NextRole::Detach(Detached::CannotBegin(obstacle)),
            ToFollower::Goodbye { ended, obstacle } => {
                ended.iter().for_each(|identity| local.lineage.died(identity));
                out.push(Effect::Disconnect);
                if let Some(obstacle) = obstacle.filter(|_| local.formed.generation == 0) {
                    return NextRole::Detach(Detached::CannotBegin(obstacle));
                }
                return self.succeed(LeaderAnswer::Nothing, "it has said that it ends", context, local, out);
            }
            ToFollower::Formed(Formed { generation, .. }) if generation <= local.formed.generation => {}
            ToFollower::Formed(formed) => local.generation_formed(formed, out),
            ToFollower::Reply { member, arrival, reply } => local.reply(&member, arrival, reply, out),
            ToFollower::RequestRegroup { generation } => out.push(Effect::RequestRegroup { generation }),
            ToFollower::Evict { member, reason } => {
                out.report(CoordinatorEvent::MemberHung { member, reason });
            }
            ToFollower::TooFewMembers { present } => out.report(CoordinatorEvent::TooFewMembers { present }),
            ToFollower::RemoteMembers { count } => local.remote_members = count,
            ToFollower::Welcome { .. } => {}
        }
        NextRole::Follow
    }

    /// Probes the lost leader; its answer, or its silence, decides.
    fn leader_lost(
        &mut self,
        why: String,
        context: &Context,
        local: &mut LocalMembers,
        out: &mut Effects,
    ) -> NextRole {
        let Some(leader) = self.view.leader() else {
            return self.succeed(LeaderAnswer::Nothing, &why, context, local, out);
        };
        out.push(Effect::Probe { launcher: leader.id, address: leader.address, connection: 0 });
        self.connection = Connection::Lost(why);
        NextRole::Follow
    }

    fn succeed(
        &mut self,
        answer: LeaderAnswer,
        why: &str,
        context: &Context,
        local: &mut LocalMembers,
        out: &mut Effects,
    ) -> NextRole {
        let loss = LeaderLoss {
            answer,
            tries: self.tries,
            job_runs: local.formed.generation > 0,
            ranks_given: context.ranks_given,
            members_wait: local.wait(),
        };
        let (succession, reason) = succeed(&self.view, context.launcher_id, loss);
        log::info!("the leading launcher is lost ({why}): {reason}");
        if let Succession::Lead(_) | Succession::Follow { .. } = succession {
            // A leader that is only stopped has not ended its generation, and its own request may be lost.
            out.push(Effect::RequestRegroup { generation: local.formed.generation });
        }
        let next = match &succession {
            Succession::Follow { leader, .. } => leader.id,
            _ => context.launcher_id,
        };
        let lost = self.view.leader().map(|leader| leader.id);
        local.left.extend(lost.filter(|lost| *lost != next));
        match succession {
            Succession::Lead(view) => {
                self.view = view;
                NextRole::Lead
            }
            Succession::Follow { leader, view } => {
                (self.view, self.connection) = (view, Connection::Opening);
                self.tries += 1;
                let (address, node_rank) = (self.address, local.node_rank);
                let rejoins = Some(local.lineage.generations());
                let hello =
                    Hello { address, node_rank, deferred_workers: 0, rejoins, left: local.left.clone() };
                out.push(Effect::Connect { leader: leader.address, hello });
                NextRole::Follow
            }
            Succession::Rediscover => NextRole::Rediscover,
            Succession::Detach => NextRole::detach(format!("{reason}: {why}")),
        }
    }
}

/// Reports the state of all members of this node to a new leader.
fn report_members(local: &LocalMembers, out: &mut Effects) {
    let mut report = |member: &String, event| {
        out.push(Effect::ToLeader(ToLeader::Member { member: member.clone(), event }));
    };
    for member in &local.formed.members {
        if node_rank_of(member) == local.node_rank && !local.contains(member) {
            report(member, MemberEvent::Exited(local.exit_of(member)));
        }
    }
    for (member, unanswered) in &local.unanswered {
        report(member, MemberEvent::Started);
        if let Some(arrival) = unanswered.clone() {
            report(member, MemberEvent::Arrived(arrival));
        }
    }
    local.fixed.iter().for_each(|(member, setting)| report(member, MemberEvent::Fixed(setting.clone())));
    local.stopped.iter().for_each(|member| report(member, MemberEvent::Stopped(true)));
    if let Some((member, exit)) = &local.unable
        && !local.formed.members.contains(member)
    {
        report(member, MemberEvent::Exited(exit.clone()));
    }
    if let Some(cause) = local.closed {
        out.push(Effect::ToLeader(ToLeader::Closed(cause)));
    }
    out.push(Effect::ToLeader(ToLeader::MembersTold));
}
