//! A coordinator that follows: it passes on what happens to its own members, hands them the leader's replies,
//! and knows enough to lead when the launchers before it are gone.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::Instant;

use kolo_rendezvous::Error;
use kolo_rendezvous::store::Server;

use crate::context::Context;
use crate::events::{CoordinatorEvent, MemberEvent, MemberExit};
use crate::generation::Formed;
use crate::launcher_protocol::{self, Hello, ToFollower, ToLeader};
use crate::launcher_view::{LauncherInfo, LauncherView};
use crate::leader_connection::LeaderConnection;
use crate::local_members::{Detached, LocalMembers};
use crate::member_name::node_rank_of;
use crate::succession::{LeaderLoss, Succession, succeed};
use crate::timeouts::{LAUNCHER_SILENCE, PROBE, TAKEOVER};

/// The follower's part of a coordinator.
pub(crate) struct Follower {
    /// This launcher's store, where others find it, and to which they connect when it leads.
    pub(crate) store: Server,
    /// This host, as others reach it.
    pub(crate) ip: IpAddr,
    pub(crate) view: LauncherView,
    connection: Connection,
}

/// The way to the leader.
enum Connection {
    Open(LeaderConnection),
    /// The last leader is lost, and a thread connects to the next one.
    Opening(Receiver<Result<LeaderConnection, Error>>),
}

/// The role that a follower has from now on.
pub(crate) enum NextRole {
    /// It goes on following.
    Follow,
    /// It leads; its view says so.
    Lead,
    /// It looks for the job once more.
    Rediscover,
    /// It belongs to no job any more.
    Detach(Detached),
}

impl NextRole {
    fn detach(reason: impl Into<String>) -> NextRole {
        NextRole::Detach(reason.into().into())
    }
}

impl Follower {
    /// A follower that the leader has welcomed.
    pub(crate) fn new(
        store: Server,
        ip: IpAddr,
        view: LauncherView,
        connection: LeaderConnection,
        local: &LocalMembers,
    ) -> Follower {
        tell_members(&connection, local);
        Follower { store, ip, view, connection: Connection::Open(connection) }
    }

    /// Tells the leader. What happens while no leader is connected the next one learns by [`tell_members`].
    pub(crate) fn send(&self, message: ToLeader) {
        if let Connection::Open(connection) = &self.connection {
            connection.send(message);
        }
    }

    /// Tells the leader what has happened to a member of this node.
    pub(crate) fn member_event(&self, member: &str, event: MemberEvent) {
        self.send(ToLeader::Member { member: member.into(), event });
    }

    /// Does what the leader says, and finds the next leader if that is lost.
    pub(crate) fn tick(&mut self, context: &Context, local: &mut LocalMembers) -> NextRole {
        match &self.connection {
            Connection::Open(connection) => {
                while let Some(received) = connection.receive() {
                    match received {
                        Ok(ToFollower::View(view)) => {
                            launcher_protocol::publish_view(&self.store, &view);
                            local.initial_nodes = view.initial_nodes;
                            self.view = view;
                        }
                        Ok(ToFollower::Refused { reason }) => {
                            return NextRole::detach(format!("the job {reason}"));
                        }
                        Ok(ToFollower::Superseded { reason }) => {
                            return NextRole::Detach(Detached { reason, superseded: true });
                        }
                        Ok(ToFollower::Goodbye { ended }) => {
                            ended.iter().for_each(|identity| local.lineage.died(identity));
                            let error = Error::system("the launcher that leads ends", "it has said so");
                            return self.leader_lost(context, local, false, &error);
                        }
                        Ok(message) => obey(message, local),
                        Err(error) => return self.leader_lost(context, local, true, &error),
                    }
                }
            }
            Connection::Opening(opened) => match opened.try_recv() {
                Ok(Ok(connection)) => {
                    tell_members(&connection, local);
                    self.connection = Connection::Open(connection);
                }
                // A refusal is final.
                Ok(Err(refused @ Error::LauncherRefused { .. })) => {
                    return NextRole::detach(refused.to_string());
                }
                Ok(Err(error)) => return self.leader_lost(context, local, true, &error),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => return NextRole::detach("a thread has ended"),
            },
        }
        if self.view.initial_nodes.is_none() && Instant::now() >= context.begins_by {
            let (came, waited) = (self.view.launchers.len(), context.start_timeout);
            let reason = format!(
                "it needs {} nodes (--nnodes), and {came} have come within {waited:?}",
                context.limits.min
            );
            return NextRole::detach(reason);
        }
        NextRole::Follow
    }

    /// Finds out what is known of the lost leader, which `may_live`, and acts on the decision of [`succeed`].
    fn leader_lost(
        &mut self,
        context: &Context,
        local: &LocalMembers,
        may_live: bool,
        error: &Error,
    ) -> NextRole {
        let lost = self.view.leader().map(|leader| leader.address).filter(|_| may_live);
        let answers = |address| launcher_protocol::probe_view(address, &context.access, PROBE);
        let discovery = context.discovery.as_ref();
        let loss = LeaderLoss {
            leader_answers: lost.and_then(answers).is_some_and(|view| view.job_id == self.view.job_id),
            job_runs: local.formed.generation > 0,
            ranks_given: discovery.is_some_and(|discovery| discovery.nodes.node_rank.is_some()),
            members_wait: local.unanswered.values().any(Option::is_some),
        };
        let (succession, reason) = succeed(&self.view, context.launcher_id, loss);
        log::info!("the leading launcher is lost ({error}): {reason}");
        if let Succession::Lead(_) | Succession::Follow { .. } = succession {
            // A leader that is only stopped has not ended its generation.
            local.request_regroup(local.formed.generation);
        }
        match succession {
            Succession::Lead(view) => {
                self.view = view;
                NextRole::Lead
            }
            Succession::Follow { leader, view } => {
                self.view = view;
                match self.connect(&leader, context, local) {
                    Ok(opened) => {
                        self.connection = Connection::Opening(opened);
                        NextRole::Follow
                    }
                    Err(error) => NextRole::detach(error.to_string()),
                }
            }
            Succession::Rediscover => NextRole::Rediscover,
            Succession::Detach => NextRole::detach(format!("{reason}: {error}")),
        }
    }

    /// Connects to the next leader, by a thread of its own.
    fn connect(
        &self,
        next: &LauncherInfo,
        context: &Context,
        local: &LocalMembers,
    ) -> Result<Receiver<Result<LeaderConnection, Error>>, Error> {
        let bound = self.store.address().map_err(|cause| Error::system("cannot read an address", cause))?;
        let address = SocketAddr::from((self.ip, bound.port()));
        let rejoins = Some(local.lineage.generations());
        let hello = Hello { address, node_rank: local.node_rank, deferred_workers: 0, rejoins };
        let (to, id, access) = (next.address, context.launcher_id, context.access.clone());
        let (answer, connection) = mpsc::channel();
        let work = move || {
            let opened = LeaderConnection::open(to, id, &access, LAUNCHER_SILENCE);
            let welcomed = opened.and_then(|opened| opened.introduce(hello, TAKEOVER).map(|_| opened));
            // Nobody waits for the answer any more when the coordinator has ended.
            let _ = answer.send(welcomed);
        };
        let thread = std::thread::Builder::new().name("kolo-takeover".into()).spawn(work);
        thread.map(|_| connection).map_err(|cause| Error::system("cannot start a thread", cause))
    }
}

/// Tells a new leader everything about this node's members.
fn tell_members(connection: &LeaderConnection, local: &LocalMembers) {
    let tell = |member: &String, event| connection.send(ToLeader::Member { member: member.clone(), event });
    for member in &local.formed.members {
        if node_rank_of(member) == local.node_rank && !local.contains(member) {
            tell(member, MemberEvent::Exited(MemberExit::Clean));
        }
    }
    for (member, unanswered) in &local.unanswered {
        tell(member, MemberEvent::Started);
        if let Some(arrival) = unanswered.clone() {
            tell(member, MemberEvent::Arrived(arrival));
        }
    }
    connection.send(ToLeader::MembersTold);
}

fn obey(message: ToFollower, local: &mut LocalMembers) {
    match message {
        ToFollower::Formed(Formed { generation, .. }) if generation <= local.formed.generation => {}
        ToFollower::Formed(formed) => local.generation_formed(formed),
        ToFollower::Reply { member, arrival, reply } => local.reply(&member, arrival, &reply),
        ToFollower::RequestRegroup { generation } => local.request_regroup(generation),
        ToFollower::Evict { member } => local.tell_launcher(CoordinatorEvent::MemberHung { member }),
        ToFollower::TooFewMembers { present } => {
            local.tell_launcher(CoordinatorEvent::TooFewMembers { present });
        }
        ToFollower::RemoteMembers { count } => local.remote_members = count,
        ToFollower::Welcome { .. }
        | ToFollower::View(_)
        | ToFollower::Refused { .. }
        | ToFollower::Goodbye { .. }
        | ToFollower::Superseded { .. } => {}
    }
}
