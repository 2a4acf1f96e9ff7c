//! How a launcher finds the others: it asks at the places that all of them know, and begins the job if it is the one to do so.
//!
//! A place is a host and a port that is derived from what the user says (`--master`), for rank 0 of a program that is not elastic
//! listens at that one itself. Only at the first place a job begins; at the others those that have joined can be found.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use super::START;
use super::crew::{ask, set};
use super::line::{Line, SILENCE};
use super::roll::{Peer, Roll};
use super::talk::{self, Down, Hello, Up};
use kolo_rendezvous::Error;
use kolo_rendezvous::env::Endpoint;
use kolo_rendezvous::secure::Access;
use kolo_rendezvous::store::Server;
use kolo_rendezvous::{AdvertisedAddress, Interface};

/// How long one place may take to answer.
const KNOCK: Duration = Duration::from_secs(1);
/// Between two rounds through all places.
const PAUSE: Duration = Duration::from_millis(100);

/// The launchers of a job of several nodes, and this one among them.
#[derive(Clone, Debug)]
pub struct Nodes {
    /// By which launchers find each other, the same on all nodes: hosts and ports, at least one. The job begins at the first.
    pub masters: Vec<(String, u16)>,
    /// This node's number, from 0; node 0 begins the job. `None`: nodes are numbered as they come, and whoever runs on the first
    /// master begins the job.
    pub node: Option<usize>,
    /// Nodes with which the job begins.
    pub min: usize,
    /// Nodes that it may have.
    pub max: usize,
    /// Workers that this node starts: at once if it has a number, else when the job has begun.
    pub workers: usize,
}

impl Nodes {
    /// Workers that are started when the job has begun.
    pub(super) fn later(&self) -> usize {
        if self.node.is_none() { self.workers } else { 0 }
    }
}

/// See the module's text.
pub(super) struct Seeker {
    pub(super) nodes: Nodes,
    pub(super) id: u64,
    pub(super) access: Access,
    pub(super) interface: Option<Interface>,
    pub(super) closing: Arc<AtomicBool>,
}

/// How a launcher belongs to its job.
pub(super) struct Found {
    /// Where others reach it.
    pub(super) peers: Server,
    /// Its host, as others reach it.
    pub(super) ip: IpAddr,
    pub(super) node: usize,
    pub(super) roll: Roll,
    /// To the one that leads; `None` if it does so itself.
    pub(super) line: Option<Line>,
}

impl Seeker {
    /// Looks for the others in a thread of its own.
    pub(super) fn start(self: &Arc<Seeker>) -> Result<Receiver<Result<Found, Error>>, Error> {
        let (seeker, (answer, found)) = (self.clone(), mpsc::channel());
        let work = move || {
            // Nobody wants to know any more when the coordinator has ended.
            let _ = answer.send(seeker.seek());
        };
        let thread = std::thread::Builder::new().name("kolo-seek".into()).spawn(work);
        thread.map(|_| found).map_err(|cause| Error::system("cannot start a thread", cause))
    }

    /// Looks until there is a job, at most as long as a job's beginning may take.
    fn seek(&self) -> Result<Found, Error> {
        let until = Instant::now() + START;
        let mut met = None;
        while !self.closing.load(Ordering::Acquire) && Instant::now() < until {
            match self.look() {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                // It will not be otherwise next time.
                Err(error) if error.is_misuse() => return Err(error),
                Err(error) => met = Some(error),
            }
            std::thread::sleep(PAUSE);
        }
        let why = met.map_or_else(String::new, |error| format!(": {error}"));
        let places: Vec<String> =
            self.nodes.masters.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        Err(Error::Invalid(format!(
            "no launcher of the job is found at {} (--master){why}",
            places.join(", ")
        )))
    }

    fn look(&self) -> Result<Option<Found>, Error> {
        let masters: Vec<Endpoint> = self.nodes.masters.iter().filter_map(meeting_place).collect();
        let job = self.job();
        for place in masters.iter().flat_map(|master| master.addresses()) {
            let Some(roll) = ask(*place, &self.access, KNOCK).filter(|roll| roll.job == job && !roll.over)
            else {
                continue;
            };
            let Some(leader) = roll.leader().cloned() else { continue };
            return self.join(leader.address, roll, &masters).map(Some);
        }
        match masters.first() {
            Some(first) if self.nodes.node.is_none_or(|node| node == 0) => self.found(first, job),
            Some(_) => Ok(None),
            None => Err(Error::system("no host of --master resolves", "is the name right?")),
        }
    }

    /// What tells this job from others.
    fn job(&self) -> String {
        self.nodes
            .masters
            .first()
            .map_or_else(String::new, |(host, port)| format!("kolo launch at {host}:{port}"))
    }

    /// Begins the job, if this host is the first master and nobody else is there.
    fn found(&self, master: &Endpoint, job: String) -> Result<Option<Found>, Error> {
        let mut refused = None;
        for place in master.addresses() {
            match self.listen(master, *place) {
                Ok((peers, address)) => {
                    let node = self.nodes.node.unwrap_or(0);
                    let roll = Roll::new(&job, Peer { id: self.id, node, address });
                    let ip = AdvertisedAddress::choose(self.interface.as_ref(), address.ip(), master).ip();
                    return Ok(Some(Found { peers, ip, node, roll, line: None }));
                }
                Err(error) => refused = Some(error),
            }
        }
        refused.map_or(Ok(None), Err)
    }

    /// Listens to be found at a place of this host. Gives the address at which others reach it.
    fn listen(&self, master: &Endpoint, place: SocketAddr) -> Result<(Server, SocketAddr), Error> {
        // Without a token nothing listens beyond loopback: then a name that leads there serves this host only.
        let at = if self.access.token.is_some() { master.listen_address(place) } else { place };
        let server = Server::start(at, self.nodes.max, &self.access)?;
        let bound = server.address().map_err(|cause| Error::system("cannot read an address", cause))?;
        let ip =
            if at == place { place.ip() } else { AdvertisedAddress::choose(None, place.ip(), master).ip() };
        Ok((server, (ip, bound.port()).into()))
    }

    fn join(&self, leader: SocketAddr, roll: Roll, masters: &[Endpoint]) -> Result<Found, Error> {
        let line = Line::open(leader, self.id, &self.access, SILENCE)?;
        let to_leader = Endpoint::from(leader);
        let ip = AdvertisedAddress::choose(self.interface.as_ref(), line.local, &to_leader).ip();
        let listed = masters
            .iter()
            .skip(1)
            .flat_map(|master| master.addresses().iter().map(move |place| (master, *place)));
        let (peers, address) =
            match listed.into_iter().find_map(|(master, place)| self.listen(master, place).ok()) {
                Some(listening) => listening,
                None => self.listen(&to_leader, (ip, 0).into())?,
            };
        let (node, starts) = (self.nodes.node, self.nodes.later());
        line.say(Up::Hello(Hello { address, node, starts, back: None }));
        let node = welcome(&line, SILENCE)?;
        // Until a newer one comes: whoever asks here is sent on to the one that leads.
        set(&peers, talk::ROLL, &roll);
        Ok(Found { peers, ip, node, roll, line: Some(line) })
    }
}

/// Waits until the one that leads has answered a launcher's hello; gives its number.
pub(super) fn welcome(line: &Line, patience: Duration) -> Result<usize, Error> {
    match line.wait(patience) {
        Some(Ok(Down::Welcome { node })) => Ok(node),
        Some(Ok(Down::Refused { why })) => Err(Error::Invalid(format!("the job {why}"))),
        Some(Ok(other)) => {
            Err(Error::system("the launcher that leads is not understood", format!("{other:?}")))
        }
        Some(Err(error)) => Err(error),
        None => Err(Error::system("the launcher that leads does not answer", format!("within {patience:?}"))),
    }
}

/// Where launchers meet that are told this host and port; `None` if the host is not known now.
fn meeting_place((host, port): &(String, u16)) -> Option<Endpoint> {
    let job = format!("kolo launch at {host}:{port}");
    let resolved = Endpoint::derived(host, &job, *port);
    resolved.inspect_err(|problem| log::debug!("a master is {problem}")).ok()
}
