//! The I/O of a launcher: it passes events to the protocol ([`LauncherState`]) and carries out its effects.
//! Clocks, connections, stores and threads are here; nothing is decided here.

mod discovery;
mod launcher_store;
mod leader_connection;
mod questions;
mod setback;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use kolo_rendezvous::secure::Access;
use kolo_rendezvous::store::Server;
use kolo_rendezvous::{Error, WaitNotice};
use kolo_schedule::Rank;

use discovery::Discovered;
pub(crate) use discovery::Discovery;
use leader_connection::LeaderConnection;
use questions::{Answer, Questions};

use crate::arbiter::{Arbiter, Claim, Verdict};
use crate::events::{CoordinatorEvent, MemberEvent};
use crate::generation::Formed;
use crate::launcher_protocol::{self, Hello};
use crate::member_ranks::MemberRanks;
use crate::protocol::{ClaimAnswer, Context, Effect, Event, Found, LauncherState, Role};
use crate::timeouts::{FAREWELL, PROBE, launcher_silence, takeover};
use crate::worker_protocol::{self, Arrival, Reply};

/// Time after which a job does not begin whose members cannot be served for lack of threads.
const WITHOUT_THREADS: Duration = Duration::from_secs(5);

/// A launcher's protocol, and the means by which it acts.
pub(crate) struct Driver {
    context: Context,
    pub(crate) state: LauncherState,
    access: Access,
    arbiter: Arbiter,
    /// Address of this host, at which members on all nodes reach the stores of generations.
    ip: IpAddr,
    /// The search for other launchers; `None` for a job of one node.
    discovery: Option<Arc<Discovery>>,
    /// The store at which the members of this node arrive.
    members: Arc<Server>,
    /// Channel to the launcher that runs the coordinator.
    launcher: Sender<CoordinatorEvent>,
    ranks: MemberRanks,
    /// This launcher's store, where others find it, and to which followers connect when it leads.
    own: Option<Server>,
    leader: Option<LeaderConnection>,
    /// The store of the running generation.
    generation: Option<Server>,
    questions: Questions,
    /// Timer for messages to the user about a wait; `None` while this launcher waits for nothing.
    wait: Option<WaitNotice>,
}

pub(crate) struct DriverParts {
    pub(crate) context: Context,
    pub(crate) access: Access,
    pub(crate) arbiter: Arbiter,
    pub(crate) ip: IpAddr,
    pub(crate) discovery: Option<Arc<Discovery>>,
    pub(crate) members: Arc<Server>,
    pub(crate) launcher: Sender<CoordinatorEvent>,
}

impl Driver {
    /// Creates a launcher that looks for its job, or leads it alone if it has no [`Discovery`].
    pub(crate) fn new(parts: DriverParts) -> Driver {
        let DriverParts { context, access, arbiter, ip, discovery, members, launcher } = parts;
        let role = match discovery {
            Some(_) => Role::Discovering,
            None => Role::alone(&context, Instant::now()),
        };
        let questions = Questions::new(members.clone());
        let mut driver = Driver {
            context,
            state: LauncherState::new(role),
            access,
            arbiter,
            ip,
            discovery,
            members,
            launcher,
            ranks: MemberRanks::default(),
            own: None,
            leader: None,
            generation: None,
            questions,
            wait: None,
        };
        driver.act(match driver.discovery {
            Some(_) => Effect::Discover,
            None => Effect::PublishJobId(driver.context.launcher_id),
        });
        driver
    }

    /// Returns the ranks of the members, which stay up to date.
    pub(crate) fn ranks(&self) -> MemberRanks {
        self.ranks.clone()
    }

    /// Passes an event to the protocol, and carries out its effects.
    pub(crate) fn handle(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for effect in self.state.handle(event, Instant::now(), &self.context) {
                events.extend(self.act(effect));
            }
        }
    }

    /// Passes an event of a member of this node to the protocol.
    pub(crate) fn handle_member_event(&mut self, member: &str, event: MemberEvent) {
        self.handle(Event::Member { member: member.into(), event });
    }

    /// Collects events of members, launchers and the arbiter, and passes them to the protocol.
    pub(crate) fn poll(&mut self, arrivals: Vec<(String, String)>) {
        for (member, text) in arrivals {
            match serde_json::from_str::<Arrival>(&text) {
                Ok(arrival) => self.handle_member_event(&member, MemberEvent::Arrived(arrival)),
                Err(why) => {
                    let built = "build both with the same version of Kolo";
                    self.warn(format!(
                        "the coordinator does not understand worker {member} ({why}); {built}"
                    ));
                }
            }
        }
        for (member, setting) in self.members.take(worker_protocol::FIXED, Duration::ZERO) {
            self.handle_member_event(&member, MemberEvent::Fixed(setting));
        }
        for (member, milliseconds) in self.members.take(worker_protocol::CPU_TIME, Duration::ZERO) {
            if let Ok(milliseconds) = milliseconds.parse() {
                self.handle_member_event(&member, MemberEvent::CpuTime(Duration::from_millis(milliseconds)));
            }
        }
        while let Some(answer) = self.questions.next() {
            let event = self.answered(answer);
            event.into_iter().for_each(|event| self.handle(event));
        }
        while let Some(received) = self.leader.as_ref().and_then(LeaderConnection::receive) {
            self.handle(match received {
                Ok(message) => Event::FromLeader(message),
                Err(error) => Event::LeaderLost { why: error.to_string() },
            });
        }
        // A launcher that connects before this one leads must wait until it does.
        if let (Role::Leading(_), Some(own)) = (&self.state.role, &self.own) {
            let taken = own.take(launcher_protocol::TO_LEADER, Duration::ZERO);
            let refused = own.token_refusals();
            for (connection, message) in launcher_protocol::in_order(taken) {
                self.handle(Event::FromFollower { connection, message });
            }
            refused.into_iter().for_each(|host| self.handle(Event::TokenRefused(host)));
        }
        self.handle(Event::Tick);
        self.report_wait();
        let without_threads = self.members.without_threads().filter(|(since, _)| *since >= WITHOUT_THREADS);
        if let Some((_, cause)) = without_threads.filter(|_| self.state.local.formed.generation == 0) {
            self.notify_launcher(CoordinatorEvent::WithoutThreads { cause });
        }
    }

    /// Reports to the user now and then which launchers or members this launcher waits for.
    fn report_wait(&mut self) {
        let Some(awaited) = self.state.waits_for(&self.context) else {
            self.wait = None;
            return;
        };
        if let Some(waited) = self.wait.get_or_insert_default().due() {
            self.warn(format!("waiting since {waited:?}: {awaited}"));
        }
    }

    /// Ends in good order: says goodbye to its leader or its followers, and gives them time to receive it.
    pub(crate) fn end(&mut self) {
        self.handle(Event::End);
        if self.state.has_followers() {
            std::thread::sleep(FAREWELL);
        }
        self.act(Effect::Leave);
    }

    /// Carries out one effect. Returns the event that follows at once.
    fn act(&mut self, effect: Effect) -> Option<Event> {
        match effect {
            Effect::PublishJobId(job_id) => self.set(worker_protocol::JOB_ID, format!("{job_id:016x}")),
            Effect::PublishNoJob { reason } => self.set(worker_protocol::NO_JOB, reason),
            Effect::Reply { member, arrival, reply } => self.reply(&member, arrival, &reply),
            Effect::RequestRegroup { generation } => {
                self.set(&worker_protocol::regroup_key(generation), "1".into());
            }
            Effect::GenerationFormed { formed, after } => self.generation_formed(formed, after),
            Effect::Report(event) => self.notify_launcher(event),
            Effect::Publish(view) => {
                self.own.iter().for_each(|own| launcher_store::publish_view(own, &view));
            }
            Effect::ToLeader(message) => {
                self.leader.iter().for_each(|leader| leader.send(message.clone()));
            }
            Effect::ToFollower { connection, number, message } => {
                let key = launcher_protocol::to_follower_key(connection, number);
                self.own.iter().for_each(|own| launcher_store::put(own, &key, &message));
            }
            Effect::Connect { leader, hello } => self.connect(leader, hello),
            Effect::Disconnect => self.leader = None,
            Effect::Leave => (self.leader, self.own, self.generation) = (None, None, None),
            Effect::Probe { launcher, address, connection } => {
                let access = self.access.clone();
                let unknown = Answer::Probed { launcher, connection, view: None };
                self.questions.ask("kolo-probe", unknown, move || {
                    let view = launcher_store::probe_view(address, &access, PROBE).ok().flatten();
                    Answer::Probed { launcher, connection, view }
                });
            }
            Effect::Claim(claim) => return self.claim(claim),
            Effect::ServeLast { members } => {
                let store = self.serve_generation(members).map_err(|error| error.to_string());
                return Some(Event::LastServed(store));
            }
            Effect::FailGeneration { rank } => {
                self.generation.iter().for_each(|store| store.fail(Error::Died { rank: Rank(rank) }));
            }
            Effect::Discover => self.discover(),
        }
        None
    }

    fn answered(&mut self, answer: Answer) -> Option<Event> {
        Some(match answer {
            Answer::Found(Ok(discovered)) => {
                let Discovered { store, ip, node_rank, view, connection } = *discovered;
                let address = match store.address() {
                    Ok(bound) => (ip, bound.port()).into(),
                    Err(cause) => return Some(not_found(&Error::system("cannot read an address", cause))),
                };
                let leads = connection.is_none();
                (self.ip, self.own, self.leader) = (ip, Some(store), connection);
                Event::Found(Found { address, node_rank, view, leads })
            }
            Answer::Found(Err(error)) => not_found(&error),
            Answer::Connected(Ok(connection)) => {
                // A launcher that has left its job meanwhile closes the connection again.
                let Role::Following(_) = self.state.role else { return None };
                self.leader = Some(connection);
                Event::Welcomed
            }
            Answer::Connected(Err(error)) => {
                let why = error.to_string();
                match error {
                    Error::LauncherRefused { .. } => Event::RefusedByLeader { why },
                    _ => Event::LeaderLost { why },
                }
            }
            Answer::Probed { launcher, connection, view } => Event::Probed { launcher, connection, view },
            Answer::Claimed { claim, verdict } => {
                // Nobody enters the generation of a launcher that has left its job meanwhile.
                let Role::Leading(_) = self.state.role else { return None };
                self.claim_answered(&claim, verdict)
            }
        })
    }

    fn discover(&mut self) {
        let Some(discovery) = self.discovery.clone() else { return };
        let unknown = Answer::Found(Err(Error::system("cannot look for the others", "no thread does")));
        let launcher = self.launcher.clone();
        self.questions.ask("kolo-discovery", unknown, move || {
            // The launcher may have stopped listening, when it is about to end.
            let warn = |text| drop(launcher.send(CoordinatorEvent::Warning { text }));
            Answer::Found(discovery.search(&warn).map(Box::new))
        });
    }

    fn connect(&mut self, leader: SocketAddr, hello: Hello) {
        self.leader = None;
        let (id, access) = (self.context.launcher_id, self.access.clone());
        let unknown = Answer::Connected(Err(Error::system("cannot connect", "no thread does")));
        self.questions.ask("kolo-takeover", unknown, move || {
            let opened = LeaderConnection::open(leader, id, &access, launcher_silence());
            Answer::Connected(opened.and_then(|opened| opened.introduce(hello, takeover()).map(|_| opened)))
        });
    }

    /// Asks the arbiter. Returns the answer if it comes at once.
    fn claim(&mut self, claim: Claim) -> Option<Event> {
        if self.arbiter.is_immediate() {
            let verdict = self.arbiter.claim(&claim);
            return Some(self.claim_answered(&claim, verdict));
        }
        let (arbiter, verdict) = (self.arbiter.clone(), Err("a thread has ended".into()));
        let unknown = Answer::Claimed { claim: claim.clone(), verdict };
        self.questions.ask("kolo-claim", unknown, move || {
            let verdict = arbiter.claim(&claim);
            Answer::Claimed { claim, verdict }
        });
        None
    }

    /// Serves the generation that a claim is granted.
    fn claim_answered(&mut self, claim: &Claim, verdict: Result<Verdict, String>) -> Event {
        Event::ClaimAnswered(match verdict {
            Ok(Verdict::Granted(number)) => {
                let store = self.serve_generation(claim.members.len()).map_err(|error| error.to_string());
                ClaimAnswer::Granted { number, store }
            }
            Ok(Verdict::Superseded(reason)) => ClaimAnswer::Superseded(reason),
            Ok(Verdict::NotYet(reason)) | Err(reason) => ClaimAnswer::NotYet(reason),
        })
    }

    /// Starts the store of a generation, which replaces that of the last one, in which no member is left.
    /// Returns the address at which members on all nodes reach it.
    fn serve_generation(&mut self, world_size: usize) -> Result<SocketAddr, Error> {
        let server = Server::start((self.ip, 0).into(), world_size, &self.access)?;
        let bound = server.address().map_err(|cause| Error::system("cannot read an address", cause))?;
        self.generation = Some(server);
        Ok((self.ip, bound.port()).into())
    }

    fn reply(&self, member: &str, arrival: u64, reply: &Reply) {
        match serde_json::to_string(reply) {
            Ok(text) => self.set(&worker_protocol::reply_key(member, arrival), text),
            Err(error) => self.warn(format!("a reply to {member} cannot be written: {error}")),
        }
    }

    fn generation_formed(&self, formed: Formed, after: u64) {
        // No member is left in the last generation to be asked to leave it.
        self.members.remove(&worker_protocol::regroup_key(after));
        self.ranks.formed(formed.generation, &formed.members);
        let Formed { generation, members, reason, .. } = formed;
        self.notify_launcher(CoordinatorEvent::GenerationFormed { generation, members, reason });
    }

    fn notify_launcher(&self, event: CoordinatorEvent) {
        // The launcher may have stopped listening, when it is about to end.
        let _ = self.launcher.send(event);
    }

    fn warn(&self, text: String) {
        self.notify_launcher(CoordinatorEvent::Warning { text });
    }

    /// Sets a key of the store at which this node's members arrive.
    fn set(&self, key: &str, value: String) {
        if let Err(why) = self.members.set(key, value) {
            self.warn(format!("the coordinator cannot keep `{key}`: {why}"));
        }
    }
}

fn not_found(error: &Error) -> Event {
    Event::NotFound { reason: error.to_string(), for_all: matches!(error, Error::TokenDiffers { .. }) }
}
