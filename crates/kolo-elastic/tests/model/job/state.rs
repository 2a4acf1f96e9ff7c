//! The state of the model at one moment.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Instant;

use super::{Actor, Job, PASSES, POLICY};
use crate::arbiter::{Claim, Record};
use crate::generation::{Formed, GenerationId};
use crate::launcher_protocol::{ConnectionId, Hello, ToFollower, ToLeader};
use crate::launcher_view::{LauncherView, NodeLimits};
use crate::member_name::member_name;
use crate::protocol::{Context, Event, LauncherState, Membership, MembershipPolicy, Role};
use crate::timeouts::takeover;
use crate::worker_protocol::{Arrival, Reply};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) launchers: Vec<Launcher>,
    pub(super) workers: Vec<Worker>,
    /// Pairs of launchers whose hosts cannot reach each other, the lower number first.
    pub(super) cut: BTreeSet<(Actor, Actor)>,
    /// Remains of ended connections: messages that may still arrive.
    pub(super) ended: Vec<Ended>,
    /// Arrivals that workers sent just before they died, and that their launchers have not received.
    pub(super) late_arrivals: Vec<LateArrival>,
    /// Generations that were announced to workers.
    pub(super) generations: BTreeMap<GenerationId, Generation>,
    /// The generation that made each step.
    pub(super) steps: Vec<GenerationId>,
    /// The last record of an arbiter with a memory.
    pub(super) record: Option<Record>,
    pub(super) faults: u8,
    pub(super) ticks: u8,
    /// Number of times that time has passed since the beginning.
    pub(super) clock: u32,
    pub(super) broken: BTreeSet<Broken>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Broken {
    /// Two generations could make a step at the same time.
    TwoTrain,
    /// Two generations made the same step; the second did not have the state of the first.
    Again,
    /// A job that had begun was begun anew.
    Anew,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Launcher {
    pub(super) life: Life,
    pub(super) state: LauncherState,
    /// Events of its own node that it has not received yet, because it is stopped.
    pub(super) pending: VecDeque<Event>,
    /// True if others can connect to its store.
    pub(super) serves: bool,
    /// The view that it publishes for probes.
    pub(super) shows: Option<LauncherView>,
    /// Its messages to followers that have not been taken, by connection and number.
    pub(super) to_followers: BTreeMap<(ConnectionId, u64), ToFollower>,
    /// Messages that reached its store while it did not lead.
    pub(super) to_leader: Vec<(ConnectionId, ToLeader)>,
    /// Number of connections that it has made to leaders.
    pub(super) connections: u64,
    pub(super) leader: Option<Connection>,
    pub(super) questions: Vec<Question>,
    /// Generations of this node's members that are asked to end.
    pub(super) regroup: BTreeSet<u64>,
    /// True if it starts no more workers.
    pub(super) closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Life {
    /// The process has not started yet.
    Absent,
    Runs,
    /// The process is stopped, and will go on.
    Stopped,
    /// The process is gone for good.
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) leader: Actor,
    /// Messages that the follower has sent and the leader's store has not received.
    pub(super) sent: VecDeque<ToLeader>,
    /// Number of the next message from the leader.
    pub(super) next: u64,
    /// The view of a launcher that joins; `None` for one that connects to the next leader.
    pub(super) joins: Option<LauncherView>,
    /// True if it has broken and the follower has not noticed.
    pub(super) broken: bool,
    /// The time at which it was opened.
    pub(super) since: u32,
}

/// The messages of an ended connection that the leader has not received; the last one reports the end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ended {
    pub(super) id: ConnectionId,
    pub(super) leader: Actor,
    pub(super) sent: VecDeque<ToLeader>,
}

/// An arrival that is received after its worker's end: the two take different ways.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LateArrival {
    pub(super) launcher: Actor,
    pub(super) member: String,
    pub(super) arrival: Arrival,
}

/// A question of a launcher without an answer yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Question {
    /// A probe of a launcher because of a connection.
    Probe(Actor, u64),
    Connect(Actor, Hello),
    Claim(Claim),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Worker {
    pub(super) place: Place,
    pub(super) restarts: usize,
    pub(super) membership: Membership,
    /// The reply to an arrival, which the worker has not read yet.
    pub(super) reply: Option<(u64, Reply)>,
    pub(super) steps: u8,
    /// True if it does nothing more by itself.
    pub(super) hangs: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Absent,
    /// The worker waits after the arrival with this number.
    Waits(u64),
    /// The worker forms the group of a generation.
    Forms(GenerationId),
    In(GenerationId),
    /// Its process is gone. The reason is that of a worker that has ended by itself.
    Gone(Option<String>),
}

/// A generation that was announced to its workers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Generation {
    pub(super) members: BTreeSet<Actor>,
    /// Members that have begun to form its group.
    pub(super) entered: BTreeSet<Actor>,
    /// The time at which it was granted. Its members do not wait long for one another.
    pub(super) granted_at: u32,
    /// True if its leader has reported the death of a member to the others.
    pub(super) failed: bool,
}

impl Job {
    /// Returns the state before any launcher has started.
    pub(super) fn initial(&self) -> State {
        let launchers = 1 + self.nodes.iter().max().copied().unwrap_or(0);
        let launcher = Launcher {
            life: Life::Absent,
            state: LauncherState::new(Role::Discovering),
            pending: VecDeque::new(),
            serves: false,
            shows: None,
            to_followers: BTreeMap::new(),
            to_leader: Vec::new(),
            connections: 0,
            leader: None,
            questions: Vec::new(),
            regroup: BTreeSet::new(),
            closed: false,
        };
        let worker = |worker| Worker {
            place: Place::Absent,
            restarts: 0,
            membership: Membership::new(worker as u64, false),
            reply: None,
            steps: 0,
            hangs: false,
        };
        State {
            launchers: vec![launcher; launchers],
            workers: (0..self.nodes.len()).map(worker).collect(),
            cut: BTreeSet::new(),
            ended: Vec::new(),
            late_arrivals: Vec::new(),
            generations: BTreeMap::new(),
            steps: Vec::new(),
            record: None,
            faults: 0,
            ticks: 0,
            clock: 0,
            broken: BTreeSet::new(),
        }
    }

    /// Constants that a launcher receives at its start.
    pub(super) fn context(&self, launcher: Actor) -> Context {
        Context {
            launcher_id: launcher as u64,
            place: format!("host{launcher}"),
            policy: MembershipPolicy { min_members: self.min_members, ..POLICY },
            limits: NodeLimits { min: self.first, max: self.nodes.len() },
            deferred_workers: 0,
            start_timeout: POLICY.start_timeout,
            begins_by: beginning() + POLICY.start_timeout,
            ranks_given: true,
        }
    }

    pub(super) fn name(&self, worker: Actor, restarts: usize) -> String {
        let node = self.nodes[worker];
        let slot = self.nodes[..worker].iter().filter(|other| **other == node).count();
        member_name(node, slot, restarts)
    }

    pub(super) fn workers_of(&self, launcher: Actor) -> impl Iterator<Item = Actor> {
        (0..self.nodes.len()).filter(move |worker| self.nodes[*worker] == launcher)
    }
}

impl State {
    pub(super) fn now(&self) -> Instant {
        beginning() + PASSES * self.clock
    }

    pub(super) fn runs(&self, launcher: Actor) -> bool {
        self.launchers[launcher].life == Life::Runs
    }

    /// Returns true if a packet from one launcher's host reaches the other's.
    pub(super) fn reaches(&self, one: Actor, other: Actor) -> bool {
        !self.cut.contains(&(one.min(other), one.max(other)))
    }

    /// Returns true if a follower has waited too long for a welcome.
    pub(super) fn waits_in_vain(&self, connection: &Connection) -> bool {
        connection.next == 0 && PASSES * (self.clock - connection.since) >= takeover()
    }

    /// Returns true if a worker's process lives.
    pub(super) fn lives(&self, worker: Actor) -> bool {
        !matches!(self.workers[worker].place, Place::Absent | Place::Gone(_))
    }

    pub(super) fn leads(&self, launcher: Actor) -> bool {
        matches!(self.launchers[launcher].state.role, Role::Leading(_))
    }

    /// Name of a worker's process.
    pub(super) fn name(&self, job: &Job, worker: Actor) -> String {
        job.name(worker, self.workers[worker].restarts)
    }

    /// The worker whose process has this name.
    pub(super) fn worker(&self, job: &Job, name: &str) -> Option<Actor> {
        (0..self.workers.len()).find(|worker| self.name(job, *worker) == name)
    }

    pub(super) fn announced(&mut self, job: &Job, formed: &Formed) {
        let members = formed.members.iter().map(|member| self.worker(job, member));
        // A member that has died meanwhile never comes.
        let members = members.map(|member| member.unwrap_or(Actor::MAX)).collect();
        let (entered, granted_at, failed) = (BTreeSet::new(), self.clock, false);
        let generation = Generation { members, entered, granted_at, failed };
        self.generations.entry(formed.id()).or_insert(generation);
    }
}

/// The launcher whose store listens at this address.
pub(super) fn launcher_at(address: SocketAddr) -> Actor {
    usize::from(address.port())
}

pub(super) fn address_of(launcher: Actor) -> SocketAddr {
    ([127, 0, 0, 1], launcher as u16).into()
}

/// The same moment in all states.
fn beginning() -> Instant {
    static BEGINNING: OnceLock<Instant> = OnceLock::new();
    *BEGINNING.get_or_init(Instant::now)
}
