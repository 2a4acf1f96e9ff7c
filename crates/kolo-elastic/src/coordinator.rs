//! The coordinator that every launcher runs: it serves the members of its node, and agrees with other
//! coordinators.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

use parking_lot::Mutex;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kolo_comm::Options;
use kolo_rendezvous::Error;
use kolo_rendezvous::secure::Access;
use kolo_rendezvous::store::Server;

use crate::arbiter::Arbiter;
use crate::driver::{Discovery, Driver, DriverParts};
use crate::events::{CoordinatorEvent, EndCause, MemberEvent, MemberExit};
use crate::ids::{new_place, unique_id};
use crate::launcher_view::NodeLimits;
use crate::member_name::initial_members;
use crate::member_ranks::MemberRanks;
use crate::node_config::NodeConfig;
use crate::protocol::{Context, Event, MembershipPolicy, Role};
use crate::worker_protocol::ARRIVAL;

/// The time after which an idle coordinator looks at the clock again.
const TICK: Duration = Duration::from_millis(50);

/// A running coordinator: a store for the members of one node, and a thread that leads the job or follows
/// its leader. Drop it after the node's members have ended: it says goodbye to its leader or its followers.
pub struct Coordinator {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    address: SocketAddr,
    ranks: MemberRanks,
}

kolo_comm::opaque_debug!(Coordinator { address });

struct Shared {
    /// The store at which members arrive.
    store: Arc<Server>,
    driver: Mutex<Driver>,
    closing: Arc<AtomicBool>,
}

impl Coordinator {
    /// Starts the coordinator of a job of one node, for about `size` members. It listens at `address`; port
    /// 0 takes a free port. The receiver gets the coordinator's events.
    ///
    /// # Errors
    ///
    /// The coordinator cannot listen at the address, or cannot start a thread.
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
            policy,
            limits: NodeLimits { min: 1, max: 1 },
            deferred_workers: 0,
            start_timeout: policy.start_timeout,
            begins_by: Instant::now() + policy.start_timeout,
            ranks_given: false,
        };
        let parts = |members, launcher| DriverParts {
            context,
            access: access.clone(),
            arbiter: Arbiter::sole(),
            ip: address.ip(),
            discovery: None,
            members,
            launcher,
        };
        Self::run(address, size, &access, Arc::default(), &[], parts)
    }

    /// Starts the coordinator of one node of several, for about `size` members, which reach it over
    /// loopback. Meanwhile it searches for the coordinators of the other nodes; if that fails, the receiver
    /// gets [`CoordinatorEvent::Detached`].
    ///
    /// # Errors
    ///
    /// The coordinator cannot listen, or cannot start a thread.
    pub fn multi_node(
        nodes: NodeConfig,
        size: usize,
        policy: MembershipPolicy,
        options: &Options,
    ) -> Result<(Coordinator, Receiver<CoordinatorEvent>), Error> {
        let access = Access::new(options.token.clone(), options.encrypt)?;
        let limits = NodeLimits { min: nodes.min_nodes, max: nodes.max_nodes };
        // Registered before any of them can arrive, so that the first generation waits for all.
        let first = nodes.node_rank.into_iter().flat_map(|rank| initial_members(rank, nodes.local_workers));
        let first: Vec<String> = first.collect();
        let context = Context {
            launcher_id: unique_id(),
            place: new_place(),
            policy,
            limits,
            deferred_workers: nodes.deferred_workers(),
            start_timeout: nodes.start_timeout,
            begins_by: Instant::now() + nodes.start_timeout,
            ranks_given: nodes.node_rank.is_some(),
        };
        let (arbiter, closing) = (nodes.arbiter.clone(), Arc::new(AtomicBool::new(false)));
        let discovery = Discovery {
            nodes,
            id: context.launcher_id,
            access: access.clone(),
            interface: options.interface.clone(),
            closing: closing.clone(),
            begins_by: context.begins_by,
        };
        let ip = Ipv4Addr::LOCALHOST.into();
        let parts = |members, launcher| DriverParts {
            context,
            access: access.clone(),
            arbiter,
            ip,
            discovery: Some(Arc::new(discovery)),
            members,
            launcher,
        };
        Self::run((ip, 0).into(), size, &access, closing, &first, parts)
    }

    fn run(
        address: SocketAddr,
        size: usize,
        access: &Access,
        closing: Arc<AtomicBool>,
        first: &[String],
        parts: impl FnOnce(Arc<Server>, Sender<CoordinatorEvent>) -> DriverParts,
    ) -> Result<(Coordinator, Receiver<CoordinatorEvent>), Error> {
        let store = Arc::new(Server::start(address, size, access)?);
        let address =
            store.address().map_err(|cause| Error::system("cannot read the coordinator's address", cause))?;
        let (events, receiver) = mpsc::channel();
        let mut driver = Driver::new(parts(store.clone(), events));
        first.iter().for_each(|member| driver.handle_member_event(member, MemberEvent::Started));
        let ranks = driver.ranks();
        let shared = Arc::new(Shared { store, driver: Mutex::new(driver), closing });
        let for_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("kolo-coordinator".into())
            .spawn(move || while for_thread.poll() {})
            .map_err(|cause| Error::system("cannot start a thread", cause))?;
        Ok((Coordinator { shared, thread: Some(thread), address, ranks }, receiver))
    }

    /// Address at which the coordinator listens for members.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the ranks of the members, which stay up to date.
    pub fn ranks(&self) -> MemberRanks {
        self.ranks.clone()
    }

    /// Records that this node has started a member. The first generation waits for it.
    pub fn member_started(&self, member: &str) {
        self.shared.driver.lock().handle_member_event(member, MemberEvent::Started);
        self.shared.store.notify();
    }

    /// Records that a signal has stopped a member's process, or that it has continued. The last members that
    /// have the state of the job are waited for as long as they are stopped.
    pub fn member_stopped(&self, member: &str, stopped: bool) {
        self.shared.driver.lock().handle_member_event(member, MemberEvent::Stopped(stopped));
    }

    /// Records that a member's process has ended. The rest of its generation learns of a failure at once.
    pub fn member_exited(&self, member: &str, exit: &MemberExit) {
        self.shared.driver.lock().handle_member_event(member, MemberEvent::Exited(exit.clone()));
        self.shared.store.notify();
    }

    /// Records that this node starts no more members, and why. When no node starts any, the members need not
    /// wait for others.
    pub fn close(&self, cause: EndCause) {
        self.shared.driver.lock().handle(Event::Closed(cause));
        self.shared.store.notify();
    }

    /// Records that the work of this node's members is done: no launcher may join the job any more.
    pub fn work_done(&self) {
        self.shared.driver.lock().handle(Event::WorkDone);
    }

    /// Returns true if all members of the last generation have ended well, as far as this coordinator knows.
    /// Members that arrive now get the reply that they are too late.
    pub fn is_finished(&self) -> bool {
        matches!(&self.shared.driver.lock().state.role, Role::Leading(leader) if leader.is_finished())
    }

    /// Number of the last generation that this coordinator knows; 0 before the first.
    pub fn generation(&self) -> u64 {
        self.shared.driver.lock().state.local.formed.generation
    }

    /// Returns true if a member of this node waits for its assignment.
    pub fn has_waiting_members(&self) -> bool {
        self.shared.driver.lock().state.local.wait()
    }

    /// Number of members of other nodes that have started and have not ended.
    pub fn remote_members(&self) -> usize {
        self.shared.driver.lock().state.local.remote_members
    }

    /// This node's rank, and the number of nodes with which the job began; `None` before, and in jobs of one
    /// node.
    pub fn node_rank_and_count(&self) -> Option<(usize, usize)> {
        let driver = self.shared.driver.lock();
        driver.state.local.node_rank.zip(driver.state.local.initial_nodes)
    }

    /// Returns true if this coordinator leads others, which need it even when it has no members of its own.
    pub fn has_followers(&self) -> bool {
        self.shared.driver.lock().state.has_followers()
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.store.notify();
        if let Some(thread) = self.thread.take() {
            // The thread has already reported its own panic, and drop cannot do more about it.
            let _ = thread.join();
        }
        self.shared.driver.lock().end();
    }
}

impl Shared {
    /// Handles new arrivals and events. Returns false when the coordinator is closing.
    fn poll(&self) -> bool {
        let arrivals = self.store.take(ARRIVAL, TICK);
        self.driver.lock().poll(arrivals);
        !self.closing.load(Ordering::Acquire)
    }
}
