//! What there is at one moment.

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
    /// Pairs of launchers whose hosts do not reach each other, the lower number first.
    pub(super) cut: BTreeSet<(Actor, Actor)>,
    /// What is left of connections that have ended: messages that may still come.
    pub(super) ended: Vec<Ended>,
    /// What workers have said just before they died, and their launchers have not heard.
    pub(super) last_words: Vec<LastWords>,
    /// Generations of which workers were told.
    pub(super) generations: BTreeMap<GenerationId, Generation>,
    /// The generation that has made each step.
    pub(super) steps: Vec<GenerationId>,
    /// What an arbiter with a memory has recorded last.
    pub(super) record: Option<Record>,
    pub(super) faults: u8,
    pub(super) ticks: u8,
    /// How often time has passed since the beginning.
    pub(super) clock: u32,
    /// What must not happen and has.
    pub(super) broken: BTreeSet<Broken>,
}

/// A promise that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Broken {
    /// Two generations could make a step at the same time.
    TwoTrain,
    /// A step was made by two generations, the second of which had not got the first one's state.
    Again,
    /// A job that had begun was begun anew.
    Anew,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Launcher {
    pub(super) life: Life,
    pub(super) state: LauncherState,
    /// Events of its own node that it has not heard yet, because it is stopped.
    pub(super) unheard: VecDeque<Event>,
    /// Whether others can connect to its store.
    pub(super) serves: bool,
    /// What it shows to those who probe it.
    pub(super) shows: Option<LauncherView>,
    /// Its messages to followers that have not been taken, by their connections and numbers.
    pub(super) to_followers: BTreeMap<(ConnectionId, u64), ToFollower>,
    /// Messages that have come to its store while it does not lead.
    pub(super) to_leader: Vec<(ConnectionId, ToLeader)>,
    /// How often it has connected to a leader.
    pub(super) connections: u64,
    /// The way to its leader.
    pub(super) leader: Option<Connection>,
    pub(super) questions: Vec<Question>,
    /// Generations of this node's members that are asked to end.
    pub(super) regroup: BTreeSet<u64>,
    /// It starts no workers any more.
    pub(super) closed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Life {
    /// It has not come yet.
    Absent,
    Runs,
    /// Its process is stopped, and goes on some time.
    Stopped,
    /// It is gone for good.
    Gone,
}

/// A follower's connection to its leader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Connection {
    pub(super) id: ConnectionId,
    pub(super) leader: Actor,
    /// Messages that the follower has sent and the leader's store has not got.
    pub(super) sent: VecDeque<ToLeader>,
    /// The number of the next message from the leader.
    pub(super) next: u64,
    /// What a launcher that joins knows of the job; `None` for one that comes to the next leader.
    pub(super) joins: Option<LauncherView>,
    /// It has broken, and the follower has not noticed.
    pub(super) broken: bool,
    /// The time at which it was opened.
    pub(super) since: u32,
}

/// What a connection has left when it ended: messages that the leader has not got, the last of which says so.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ended {
    pub(super) id: ConnectionId,
    pub(super) leader: Actor,
    pub(super) sent: VecDeque<ToLeader>,
}

/// An arrival that comes after its worker's end: the two are heard in different ways.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LastWords {
    pub(super) launcher: Actor,
    pub(super) member: String,
    pub(super) arrival: Arrival,
}

/// A launcher has asked, and has no answer yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Question {
    /// A launcher is probed because of a connection.
    Probe(Actor, u64),
    Connect(Actor, Hello),
    Claim(Claim),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Worker {
    pub(super) place: Place,
    /// How often it was started after it had died.
    pub(super) restarts: usize,
    pub(super) membership: Membership,
    /// The answer to an arrival, which the worker has not read yet.
    pub(super) reply: Option<(u64, Reply)>,
    /// Steps that its state has seen.
    pub(super) steps: u8,
    /// It does nothing more by itself.
    pub(super) hangs: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Absent,
    /// It has arrived, for the so-manieth time.
    Waits(u64),
    /// It forms the group of a generation.
    Forms(GenerationId),
    In(GenerationId),
    /// Its process is gone; the reason is that of a worker that has ended by itself.
    Gone(Option<String>),
}

/// A generation that was told to its workers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Generation {
    pub(super) members: BTreeSet<Actor>,
    /// Those that have begun to form its group.
    pub(super) entered: BTreeSet<Actor>,
    /// The time at which it was granted. Its members do not wait long for one another.
    pub(super) told_at: u32,
    /// Its leader has told the members that one of them has died.
    pub(super) failed: bool,
}

impl Job {
    /// Nobody is there yet.
    pub(super) fn nobody(&self) -> State {
        let launchers = 1 + self.nodes.iter().max().copied().unwrap_or(0);
        let launcher = Launcher {
            life: Life::Absent,
            state: LauncherState::new(Role::Discovering),
            unheard: VecDeque::new(),
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
            last_words: Vec::new(),
            generations: BTreeMap::new(),
            steps: Vec::new(),
            record: None,
            faults: 0,
            ticks: 0,
            clock: 0,
            broken: BTreeSet::new(),
        }
    }

    /// What a launcher is told at its start.
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

    /// The name of a worker that has been started again so often.
    pub(super) fn name(&self, worker: Actor, restarts: usize) -> String {
        let node = self.nodes[worker];
        let slot = self.nodes[..worker].iter().filter(|other| **other == node).count();
        member_name(node, slot, restarts)
    }

    /// The workers of a launcher.
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

    /// Whether a packet from one launcher's host comes to the other's.
    pub(super) fn reaches(&self, one: Actor, other: Actor) -> bool {
        !self.cut.contains(&(one.min(other), one.max(other)))
    }

    /// Whether a follower has waited for too long to be welcomed.
    pub(super) fn waits_in_vain(&self, connection: &Connection) -> bool {
        connection.next == 0 && PASSES * (self.clock - connection.since) >= takeover()
    }

    /// Whether a worker's process lives.
    pub(super) fn lives(&self, worker: Actor) -> bool {
        !matches!(self.workers[worker].place, Place::Absent | Place::Gone(_))
    }

    /// Whether a launcher leads.
    pub(super) fn leads(&self, launcher: Actor) -> bool {
        matches!(self.launchers[launcher].state.role, Role::Leading(_))
    }

    /// The name of a worker's process.
    pub(super) fn name(&self, job: &Job, worker: Actor) -> String {
        job.name(worker, self.workers[worker].restarts)
    }

    /// The worker whose process has this name.
    pub(super) fn worker(&self, job: &Job, name: &str) -> Option<Actor> {
        (0..self.workers.len()).find(|worker| self.name(job, *worker) == name)
    }

    /// Takes note of a generation that workers are told of.
    pub(super) fn told(&mut self, job: &Job, formed: &Formed) {
        let members = formed.members.iter().map(|member| self.worker(job, member));
        // Of one that has died meanwhile nobody comes.
        let members = members.map(|member| member.unwrap_or(Actor::MAX)).collect();
        let (entered, told_at, failed) = (BTreeSet::new(), self.clock, false);
        let generation = Generation { members, entered, told_at, failed };
        self.generations.entry(formed.id()).or_insert(generation);
    }
}

/// The launcher whose store listens there.
pub(super) fn launcher_at(address: SocketAddr) -> Actor {
    usize::from(address.port())
}

/// Where a launcher's store listens.
pub(super) fn address_of(launcher: Actor) -> SocketAddr {
    ([127, 0, 0, 1], launcher as u16).into()
}

/// The same moment in all states.
fn beginning() -> Instant {
    static BEGINNING: OnceLock<Instant> = OnceLock::new();
    *BEGINNING.get_or_init(Instant::now)
}
