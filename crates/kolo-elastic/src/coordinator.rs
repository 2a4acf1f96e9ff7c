//! The coordinator that every launcher runs: its node's members arrive at it, and it agrees with the
//! coordinators of other nodes.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};

use parking_lot::Mutex;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kolo_comm::Options;
use kolo_rendezvous::Error;
use kolo_rendezvous::secure::Access;
use kolo_rendezvous::store::Server;

use crate::arbiter::Arbiter;
use crate::context::{Context, new_place, unique_id};
use crate::discovery::Discovery;
use crate::events::{CoordinatorEvent, MemberEvent, MemberExit};
use crate::followers::Followers;
use crate::launcher_protocol::ToLeader;
use crate::launcher_view::NodeLimits;
use crate::leader::Leader;
use crate::local_members::{LocalMembers, take_arrivals, take_cpu_times};
use crate::member_name::initial_members;
use crate::member_ranks::MemberRanks;
use crate::node_config::NodeConfig;
use crate::role::Role;
use crate::worker_set::MembershipPolicy;

/// A coordinator looks at the time so often when nothing happens.
const TICK: Duration = Duration::from_millis(50);

/// A running coordinator: a store for the members of one node, and a thread that decides about them or
/// follows the one that does. On drop, when its node's members have ended, it ends in good order, and tells
/// its leader or its followers.
pub struct Coordinator {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    address: SocketAddr,
    ranks: MemberRanks,
}

struct Shared {
    /// Where members arrive.
    store: Arc<Server>,
    context: Context,
    state: Mutex<State>,
    closing: Arc<AtomicBool>,
}

struct State {
    role: Role,
    local: LocalMembers,
}

impl Coordinator {
    /// Starts the coordinator of a job of one node, for about `size` members. It listens at `address`; port 0
    /// takes a free one. The receiver gets its events.
    ///
    /// # Errors
    ///
    /// The address cannot be listened at, or no thread can be started.
    pub fn single_node(
        address: SocketAddr,
        size: usize,
        policy: MembershipPolicy,
        options: &Options,
    ) -> Result<(Coordinator, Receiver<CoordinatorEvent>), Error> {
        let access = Access::new(options.token.clone(), options.encrypt)?;
        let context = Context {
            launcher_id: unique_id(),
            place: new_place(),
            arbiter: Arbiter::sole(),
            policy,
            access,
            limits: NodeLimits { min: 1, max: 1 },
            deferred_workers: 0,
            start_timeout: policy.start_timeout,
            begins_by: Instant::now() + policy.start_timeout,
            discovery: None,
        };
        let leader = Leader::new(&context, address.ip(), None);
        Self::run(address, size, context, Role::Leading(Box::new(leader)), Arc::default(), &[])
    }

    /// Starts the coordinator of one node of several, for about `size` members, which reach it over loopback.
    /// It finds the coordinators of the other nodes meanwhile; when that fails the receiver gets
    /// [`CoordinatorEvent::Detached`].
    ///
    /// # Errors
    ///
    /// Nothing can be listened at, or no thread can be started.
    pub fn multi_node(
        nodes: NodeConfig,
        size: usize,
        policy: MembershipPolicy,
        options: &Options,
    ) -> Result<(Coordinator, Receiver<CoordinatorEvent>), Error> {
        let access = Access::new(options.token.clone(), options.encrypt)?;
        let limits = NodeLimits { min: nodes.min_nodes, max: nodes.max_nodes };
        // These members are known before any of them can arrive, and before other launchers hear of this one:
        // the first generation waits for all.
        let first = nodes.node_rank.into_iter().flat_map(|rank| initial_members(rank, nodes.local_workers));
        let first: Vec<String> = first.collect();
        let (launcher_id, deferred_workers) = (unique_id(), nodes.deferred_workers());
        let (start_timeout, begins_by) = (nodes.start_timeout, Instant::now() + nodes.start_timeout);
        let (interface, closing) = (options.interface.clone(), Arc::new(AtomicBool::new(false)));
        let arbiter = nodes.arbiter.clone();
        let discovery = Arc::new(Discovery {
            nodes,
            id: launcher_id,
            access: access.clone(),
            interface,
            closing: closing.clone(),
            begins_by,
        });
        let role = Role::Discovering(discovery.start()?);
        let discovery = Some(discovery);
        let context = Context {
            launcher_id,
            place: new_place(),
            arbiter,
            policy,
            access,
            limits,
            deferred_workers,
            start_timeout,
            begins_by,
            discovery,
        };
        Self::run((Ipv4Addr::LOCALHOST, 0).into(), size, context, role, closing, &first)
    }

    fn run(
        address: SocketAddr,
        size: usize,
        context: Context,
        role: Role,
        closing: Arc<AtomicBool>,
        first: &[String],
    ) -> Result<(Coordinator, Receiver<CoordinatorEvent>), Error> {
        let store = Arc::new(Server::start(address, size, &context.access)?);
        let address =
            store.address().map_err(|cause| Error::system("cannot read the coordinator's address", cause))?;
        let (events, receiver) = mpsc::channel();
        let mut local = LocalMembers::new(store.clone(), events);
        first.iter().for_each(|member| local.started(member));
        if let Role::Leading(_) = role {
            local.publish_job_id(context.launcher_id);
        }
        let ranks = local.ranks.clone();
        let state = Mutex::new(State { role, local });
        let shared = Arc::new(Shared { store, context, state, closing });
        let for_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("kolo-coordinator".into())
            .spawn(move || while for_thread.tick() {})
            .map_err(|cause| Error::system("cannot start a thread", cause))?;
        Ok((Coordinator { shared, thread: Some(thread), address, ranks }, receiver))
    }

    /// Where the coordinator listens for members.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The ranks that members have, from now on.
    pub fn ranks(&self) -> MemberRanks {
        self.ranks.clone()
    }

    /// Takes note that a member has been started on this node. The first generation waits for it.
    pub fn member_started(&self, member: &str) {
        let mut state = self.shared.state.lock();
        state.local.started(member);
        state.role.member_event(member, MemberEvent::Started);
        drop(state);
        self.shared.store.notify();
    }

    /// Takes note that a member's process has ended. Those of its generation hear of a failure at once.
    pub fn member_exited(&self, member: &str, exit: &MemberExit) {
        let mut state = self.shared.state.lock();
        state.local.exited(member);
        state.role.member_event(member, MemberEvent::Exited(exit.clone()));
        drop(state);
        self.shared.store.notify();
    }

    /// No more members will be started on this node: too few members need not wait for others, if this is the
    /// only launcher.
    pub fn close(&self) {
        self.shared.state.lock().role.close();
        self.shared.store.notify();
    }

    /// The work of this node's members is done: no launcher may join the job any more.
    pub fn work_done(&self) {
        self.shared.state.lock().role.work_done();
    }

    /// Whether all members of the last generation have ended well, as far as is known here. Members that
    /// arrive now are told that they are too late.
    pub fn is_finished(&self) -> bool {
        matches!(&self.shared.state.lock().role, Role::Leading(leader) if leader.is_finished())
    }

    /// The number of the last generation, as far as is known here; 0 before the first.
    pub fn generation(&self) -> u64 {
        self.shared.state.lock().local.formed.generation
    }

    /// Members of other nodes that have been started and have not ended.
    pub fn remote_members(&self) -> usize {
        self.shared.state.lock().local.remote_members
    }

    /// This node's rank and the number of nodes with which the job has begun; `None` before that, and in jobs
    /// of one node.
    pub fn node_rank_and_count(&self) -> Option<(usize, usize)> {
        let state = self.shared.state.lock();
        state.local.node_rank.zip(state.local.initial_nodes)
    }

    /// Whether this coordinator leads those of other nodes, which need it even when it has no members of its
    /// own.
    pub fn has_followers(&self) -> bool {
        let leads = |followers: &Followers| !followers.is_empty();
        let state = self.shared.state.lock();
        matches!(&state.role, Role::Leading(leader) if leader.followers.as_ref().is_some_and(leads))
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.store.notify();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is told by the thread itself, and nothing could be done about it here.
            let _ = thread.join();
        }
        let mut state = self.shared.state.lock();
        let State { role, local } = &mut *state;
        match role {
            Role::Following(follower) => follower.send(ToLeader::Goodbye),
            Role::Leading(leader) => leader.say_goodbye(local),
            Role::Discovering(_) | Role::Detached(_) => {}
        }
        // The connection is dropped with the role, and waits until the goodbye is sent.
        state.role = Role::Detached(String::new().into());
    }
}

impl Shared {
    /// Hears what is new and does what follows. False when it is time to end.
    fn tick(&self) -> bool {
        let arrivals = take_arrivals(&self.store, TICK);
        let mut state = self.state.lock();
        let State { role, local } = &mut *state;
        for (member, arrival) in arrivals {
            let arrival = match arrival {
                Ok(arrival) => arrival,
                Err(why) => {
                    let built = "is it built with another version of Kolo?";
                    local.warn(format!("worker {member} is not understood ({why}); {built}"));
                    continue;
                }
            };
            local.arrived(&member, arrival.clone());
            role.member_event(&member, MemberEvent::Arrived(arrival));
        }
        for (member, total) in take_cpu_times(&self.store) {
            role.member_event(&member, MemberEvent::CpuTime(total));
        }
        *role = std::mem::replace(role, Role::Detached(String::new().into())).tick(&self.context, local);
        !self.closing.load(Ordering::Acquire)
    }
}
