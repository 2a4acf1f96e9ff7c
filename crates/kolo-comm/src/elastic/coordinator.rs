//! The coordinator: hears who comes and who has ended, and forms generations.

use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::roster::{Guest, Roster, Rules, Verdict};
use super::words::{self, Arrival, Place, Seat};
use crate::error::Error;
use crate::liveness::lock;
use crate::options::Options;
use crate::rank::Rank;
use crate::secure::Access;
use crate::store::Server;

/// How often a coordinator looks at the time when nothing happens.
const TICK: Duration = Duration::from_millis(50);

/// How a member's process has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Departure {
    /// Well: its work is done, or it has left in good order.
    Well,
    /// Otherwise; the rest of a sentence that begins with who it was, such as `was killed by SIGKILL`.
    Failed(String),
}

/// What a coordinator asks of whoever has started the members, or lets them know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// A generation has begun.
    Formed {
        /// Its number, from 1.
        generation: u64,
        /// Its members, in the order of their ranks.
        members: Vec<String>,
        /// Why the last one has ended.
        reason: String,
    },
    /// A member has not come back from the last generation: it hangs, and is to be killed.
    Evict {
        /// Its name.
        member: String,
    },
    /// Too few members have waited too long for others; they have been told.
    TooFew {
        /// How many there were.
        present: usize,
    },
}

/// A running coordinator. Ends on drop.
pub struct Coordinator {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    address: SocketAddr,
}

struct Shared {
    /// Where members meet.
    server: Server,
    access: Access,
    rules: Rules,
    state: Mutex<State>,
}

struct State {
    roster: Roster,
    /// The store of the generation that runs.
    generation: Option<Server>,
    orders: Sender<Order>,
    closing: bool,
}

impl Coordinator {
    /// Listens at `address` (port 0 takes a free one) for the members of a job of about `size` workers. What it wants done
    /// comes by the receiver.
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
        let access = Access::new(options)?;
        let server = Server::start(address, size, &access)?;
        let address = server
            .address()
            .map_err(|cause| Error::system("cannot read the coordinator's address", cause))?;
        let (orders, receiver) = mpsc::channel();
        let roster = Roster::new(rules, Instant::now());
        let state = Mutex::new(State { roster, generation: None, orders, closing: false });
        let shared = Arc::new(Shared { server, access, rules, state });
        let for_thread = shared.clone();
        let thread = std::thread::Builder::new()
            .name("kolo-coordinator".into())
            .spawn(move || while for_thread.look(address) {})
            .map_err(|cause| Error::system("cannot start a thread", cause))?;
        Ok((Coordinator { shared, thread: Some(thread), address }, receiver))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A member has been started. The first generation waits for it.
    pub fn expect(&self, member: &str) {
        lock(&self.shared.state).roster.expect(member);
        self.shared.server.notify();
    }

    /// A member's process has ended. Those of its generation hear of it at once.
    pub fn gone(&self, member: &str, departure: &Departure) {
        let failed = match departure {
            Departure::Well => None,
            Departure::Failed(how) => Some(how.as_str()),
        };
        let mut state = lock(&self.shared.state);
        let rank = state.roster.gone(member, failed, Instant::now());
        if let (Some(rank), Some(_), Some(server)) = (rank, failed, &state.generation) {
            server.fail(Error::Died { rank: Rank(rank) });
        }
        drop(state);
        self.shared.server.notify();
    }

    /// Whether all members of the last generation have ended well. Those who come now are told that they are too late.
    pub fn is_over(&self) -> bool {
        lock(&self.shared.state).roster.is_over()
    }

    /// Generations so far.
    pub fn generation(&self) -> u64 {
        lock(&self.shared.state).roster.generation()
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        lock(&self.shared.state).closing = true;
        self.shared.server.notify();
        if let Some(thread) = self.thread.take() {
            // It cannot panic in earnest, and nobody could do anything about it here.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Hears what is new and does what follows. False when it is time to end.
    fn look(&self, address: SocketAddr) -> bool {
        let arrivals = self.server.take(words::ARRIVAL, TICK);
        let work = self.server.take(words::WORK, Duration::ZERO);
        let mut state = lock(&self.state);
        let now = Instant::now();
        for (member, text) in arrivals {
            match serde_json::from_str::<Arrival>(&text) {
                Ok(Arrival { number, reason, patience_ms }) => {
                    state.roster.arrive(&member, number, reason, now);
                    patience_ms.into_iter().for_each(|ms| state.roster.told(Duration::from_millis(ms)));
                }
                Err(error) => log::warn!("member {member} cannot be understood: {error}"),
            }
        }
        for (member, ms) in work.iter().filter_map(|(member, text)| Some((member, text.parse().ok()?))) {
            state.roster.worked(member, Duration::from_millis(ms), now);
        }
        match state.roster.decide(now) {
            Verdict::Wait => {}
            Verdict::Form { guests, reason } => self.form(&mut state, address, &guests, &reason),
            Verdict::Change => self.set(&words::change(state.roster.generation()), "1".into()),
            Verdict::Evict(members) => {
                for member in members {
                    // Nobody listens any more when the launcher is about to end.
                    let _ = state.orders.send(Order::Evict { member });
                }
            }
            Verdict::Refuse { guests, waited } => {
                let (present, min) = (guests.len(), self.rules.min);
                let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
                self.tell(&guests, |_| Seat::Refused { present, min, waited_ms });
                let _ = state.orders.send(Order::TooFew { present });
            }
            Verdict::Orphan(guests) => self.tell(&guests, |_| Seat::Orphaned),
        }
        !state.closing
    }

    fn form(&self, state: &mut State, address: SocketAddr, guests: &[Guest], reason: &str) {
        let mut at = address;
        at.set_port(0);
        let served = Server::start(at, guests.len(), &self.access)
            .and_then(|server| Ok((server.address().map_err(|e| Error::system("no address", e))?, server)));
        let (store, server) = match served {
            Ok(served) => served,
            Err(error) => {
                log::error!("no generation can be formed: {error}");
                return;
            }
        };
        // The last generation's store goes: none of its members is left in it.
        state.generation = Some(server);
        let generation = state.roster.generation();
        let node = |guest: &Guest| guest.member.split('/').next().unwrap_or_default().to_string();
        self.tell(guests, |rank| {
            let local_rank = guests[..rank].iter().filter(|other| node(other) == node(&guests[rank])).count();
            let (world_size, reason) = (guests.len(), reason.into());
            Seat::Taken(Place { generation, rank, world_size, local_rank, store, reason })
        });
        let members = guests.iter().map(|guest| guest.member.clone()).collect();
        let _ = state.orders.send(Order::Formed { generation, members, reason: reason.into() });
    }

    /// Gives each guest its seat, by its place in the list.
    fn tell(&self, guests: &[Guest], seat: impl Fn(usize) -> Seat) {
        for (rank, guest) in guests.iter().enumerate() {
            if let Ok(text) = serde_json::to_string(&seat(rank)) {
                self.set(&words::seat(&guest.member, guest.arrival), text);
            }
        }
    }

    fn set(&self, key: &str, value: String) {
        if let Err(why) = self.server.set(key, value) {
            log::error!("the coordinator cannot keep `{key}`: {why}");
        }
    }
}
