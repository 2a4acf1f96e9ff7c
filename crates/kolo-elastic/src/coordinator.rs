//! The coordinator: every launcher has one, to which its workers come; that of the first launcher leads.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::home::Home;
use super::lead::Lead;
use super::member_name;
use super::orders::{Departure, Order};
use super::role::{Own, Role};
use super::roll::Terms;
use super::roster::Rules;
use super::seek::{Nodes, Seeker};
use kolo_comm::Options;
use kolo_rendezvous::Error;
use kolo_rendezvous::hash::splitmix64;
use kolo_rendezvous::lock;
use kolo_rendezvous::secure::Access;
use kolo_rendezvous::store::Server;

/// How often a coordinator looks at the time when nothing happens.
const TICK: Duration = Duration::from_millis(50);

/// A running coordinator. Ends on drop, in good order.
pub struct Coordinator {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    address: SocketAddr,
}

struct Shared {
    /// Where members meet.
    meeting: Arc<Server>,
    own: Own,
    state: Mutex<State>,
    closing: Arc<AtomicBool>,
}

struct State {
    role: Role,
    home: Home,
}

impl Coordinator {
    /// Listens at `address` (port 0 takes a free one) for the members of a job of about `size` workers, all of one launcher.
    /// What it wants done comes by the receiver.
    ///
    /// # Errors
    ///
    /// The address cannot be listened at.
    pub fn start(
        address: SocketAddr,
        size: usize,
        rules: Rules,
        options: &Options,
    ) -> Result<(Coordinator, Receiver<Order>), Error> {
        let access = Access::new(options.token.clone(), options.encrypt)?;
        let lead = Lead::new(rules, access.clone(), address.ip(), None, 0);
        let own =
            Own { id: identity(), rules, access, terms: Terms { min: 1, max: 1 }, starts: 0, seeker: None };
        Self::run(address, size, own, Role::Leading(Box::new(lead)), Arc::default(), &[])
    }

    /// As [`Coordinator::start`], for one of several launchers of a job, on loopback for its own members. It finds the others
    /// meanwhile; when that fails it says so by [`Order::Lost`].
    ///
    /// # Errors
    ///
    /// Nothing can be listened at, or no thread can be started.
    pub fn among(
        nodes: Nodes,
        size: usize,
        rules: Rules,
        options: &Options,
    ) -> Result<(Coordinator, Receiver<Order>), Error> {
        let access = Access::new(options.token.clone(), options.encrypt)?;
        let terms = Terms { min: nodes.min, max: nodes.max };
        // Before any of them can come, and before others hear of them: the first generation waits for all.
        let first =
            nodes.node.into_iter().flat_map(|node| (0..nodes.workers).map(move |local| (node, local)));
        let first: Vec<String> = first.map(|(node, local)| member_name(node, local, 0)).collect();
        let (id, starts, closing) = (identity(), nodes.later(), Arc::new(AtomicBool::new(false)));
        let interface = options.interface.clone();
        let seeker =
            Arc::new(Seeker { nodes, id, access: access.clone(), interface, closing: closing.clone() });
        let found = seeker.start()?;
        let own = Own { id, rules, access, terms, starts, seeker: Some(seeker) };
        Self::run((Ipv4Addr::LOCALHOST, 0).into(), size, own, Role::Seeking(found), closing, &first)
    }

    fn run(
        address: SocketAddr,
        size: usize,
        own: Own,
        role: Role,
        closing: Arc<AtomicBool>,
        first: &[String],
    ) -> Result<(Coordinator, Receiver<Order>), Error> {
        let meeting = Arc::new(Server::start(address, size, &own.access)?);
        let address = meeting
            .address()
            .map_err(|cause| Error::system("cannot read the coordinator's address", cause))?;
        let (orders, receiver) = mpsc::channel();
        let mut home = Home::new(meeting.clone(), orders);
        first.iter().for_each(|member| home.expect(member));
        if let Role::Leading(_) = role {
            home.join(own.id);
        }
        let shared = Arc::new(Shared { meeting, own, state: Mutex::new(State { role, home }), closing });
        let for_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("kolo-coordinator".into())
            .spawn(move || while for_thread.look() {})
            .map_err(|cause| Error::system("cannot start a thread", cause))?;
        Ok((Coordinator { shared, thread: Some(thread), address }, receiver))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A member has been started. The first generation waits for it.
    pub fn expect(&self, member: &str) {
        let mut state = lock(&self.shared.state);
        state.home.expect(member);
        state.role.expect(member);
        drop(state);
        self.shared.meeting.notify();
    }

    /// A member's process has ended. Those of its generation hear of it at once.
    pub fn gone(&self, member: &str, departure: &Departure) {
        let mut state = lock(&self.shared.state);
        state.home.members.remove(member);
        state.role.gone(member, departure);
        drop(state);
        self.shared.meeting.notify();
    }

    /// Nobody else will be started here: too few members need not wait for others, if this is the only launcher.
    pub fn close(&self) {
        lock(&self.shared.state).role.close();
        self.shared.meeting.notify();
    }

    /// The work of the members that have been started here is done: no launcher is to join the job any more.
    pub fn done(&self) {
        lock(&self.shared.state).role.done();
    }

    /// Whether all members of the last generation have ended well, as far as is known here. Those who come now are told that they
    /// are too late.
    pub fn is_over(&self) -> bool {
        matches!(&lock(&self.shared.state).role, Role::Leading(lead) if lead.is_over())
    }

    /// Generations so far, as far as is known here.
    pub fn generation(&self) -> u64 {
        lock(&self.shared.state).home.formed.generation
    }

    /// Members that other launchers have started and that have not ended.
    pub fn elsewhere(&self) -> usize {
        lock(&self.shared.state).home.elsewhere
    }

    /// This node's number and the number of nodes with which the job has begun, once it has. Jobs of one launcher never say so.
    pub fn place(&self) -> Option<(usize, usize)> {
        let state = lock(&self.shared.state);
        state.home.node.zip(state.home.began)
    }

    /// Whether other launchers need this one, because it leads.
    pub fn is_needed(&self) -> bool {
        let state = lock(&self.shared.state);
        matches!(&state.role, Role::Leading(lead) if lead.crew.as_ref().is_some_and(|crew| !crew.is_empty()))
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.meeting.notify();
        if let Some(thread) = self.thread.take() {
            // It cannot panic in earnest, and nobody could do anything about it here.
            let _ = thread.join();
        }
        let mut state = lock(&self.shared.state);
        if let Role::Following(follow) = &state.role {
            follow.bye();
        }
        // Waits until that is said.
        state.role = Role::Over(String::new());
    }
}

impl Shared {
    /// Hears what is new and does what follows. False when it is time to end.
    fn look(&self) -> bool {
        let arrivals = Home::take(&self.meeting, TICK);
        let mut state = lock(&self.state);
        let State { role, home } = &mut *state;
        for (member, arrival) in arrivals {
            home.members.insert(member.clone(), Some(arrival.clone()));
            role.arrive(&member, arrival);
        }
        for (member, total) in Home::worked(&self.meeting) {
            role.worked(&member, total);
        }
        *role = std::mem::replace(role, Role::Over(String::new())).look(&self.own, home);
        !self.closing.load(Ordering::Acquire)
    }
}

/// Tells a launcher from all others of its job.
fn identity() -> u64 {
    let since_1970 = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let words = format!("{boot} {} {}", std::process::id(), since_1970.as_nanos());
    splitmix64(kolo_rendezvous::hash::fnv1a(words.as_bytes()))
}
