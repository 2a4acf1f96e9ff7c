//! How a group comes together over the store: everybody shows a card, all read all cards, then the transport is
//! chosen and set up.

mod meeting;

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use self::meeting::Meeting;
use self::meeting::Via;
use crate::memory::{Backing, Mapping};
use crate::options::Options;
use crate::transport::data_listener::Calls;
use crate::transport::mailbox::{Mailbox, inbox_len};
use crate::transport::mixed::Mixed;
use crate::transport::tcp::Tcp;
use crate::transport::{Solo, Transport};
use kolo_rendezvous::AdvertisedAddress;
use kolo_rendezvous::Error;
use kolo_rendezvous::Liveness;
use kolo_rendezvous::env::WorkerEnv;
use kolo_rendezvous::establish_store;
use kolo_rendezvous::secure::Access;
use kolo_rendezvous::store::{FailureDetector, Server, Store};
use kolo_schedule::Rank;
use kolo_schedule::Topology;

/// Which transport a group uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportChoice {
    /// Shared memory; an error if the ranks are not all on one host.
    Shm,
    /// TCP, also between processes of one host.
    Tcp,
}

impl std::str::FromStr for TransportChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "shm" => Ok(TransportChoice::Shm),
            "tcp" => Ok(TransportChoice::Tcp),
            _ => Err(format!("is `{text}`; known are shm, tcp")),
        }
    }
}

/// What ties a rank to its group; saying goodbye is dropping it.
pub(crate) struct Membership {
    // The order matters: first this rank's own goodbye, then the end of the store it may serve.
    pub(crate) watch: FailureDetector,
    server: Option<Server>,
}

impl Membership {
    /// Keeps serving the store until the others have left, too, or `limit` has passed.
    pub(crate) fn leave(self, limit: Duration) {
        let Membership { watch, server } = self;
        drop(watch);
        if let Some(server) = server {
            server.linger(limit);
        }
    }
}

/// What a rank shows the others.
#[derive(Serialize, Deserialize)]
struct Card {
    /// Ranks with equal nodes can map each other's memory.
    node: String,
    pid: u32,
    inbox: i32,
    /// Where it listens for those who cannot.
    address: Option<SocketAddr>,
    encrypt: bool,
    streams: usize,
}

/// What a rank brings along to every group that it founds with others.
#[derive(Clone, Debug)]
pub(crate) struct Ground {
    /// Ranks of one node can map each other's memory.
    node: String,
    choice: Option<TransportChoice>,
    /// Where others reach this host; `None` for threads of one process.
    reach: Option<AdvertisedAddress>,
    access: Access,
    timeout: Duration,
    delay: Duration,
    /// Connections between two ranks.
    streams: usize,
    /// Ranks of the group on this host.
    pub(crate) on_host: usize,
}

impl Ground {
    /// Threads of one process.
    pub(crate) fn of_threads() -> Self {
        let (node, timeout) = ("threads".into(), Options::default().arrival());
        Ground {
            node,
            choice: None,
            reach: None,
            access: Access::default(),
            timeout,
            delay: Duration::ZERO,
            streams: 1,
            on_host: 1,
        }
    }
}

/// A group's means of talking.
pub(crate) struct Founded {
    pub(crate) transport: Box<dyn Transport>,
    pub(crate) topology: Arc<Topology>,
    pub(crate) backing: Backing,
    pub(crate) ground: Ground,
}

impl Founded {
    /// One rank, which talks to nobody.
    pub(crate) fn alone() -> Self {
        let (topology, ground) = (Arc::new(Topology::single(1)), Ground::of_threads());
        Founded { transport: Box::new(Solo), topology, backing: Backing::Heap, ground }
    }
}

/// A job's group, formed.
pub(crate) struct Formed {
    pub(crate) membership: Membership,
    pub(crate) founded: Founded,
    pub(crate) liveness: Arc<Liveness>,
}

/// Who serves the store of a job's group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Host {
    Rank0,
    /// Somebody who is there before the ranks come.
    Elsewhere,
}

/// How long somebody who serves the store, and did before the ranks came, may take to answer; longer than a busy host lets
/// anyone wait.
const SERVED: Duration = Duration::from_secs(20);

/// Meets the other ranks of the job.
pub(crate) fn form(place: &WorkerEnv, options: &Options, host: Host) -> Result<Formed, Error> {
    let (rank, world, timeout) = (place.rank, place.world_size, options.arrival());
    let access = Access::new(options.token.clone(), options.encrypt)?;
    let (server, address) = match host {
        Host::Rank0 => establish_store(place, &access, timeout)?,
        Host::Elsewhere => (None, place.endpoint.addresses()[0]),
    };
    let liveness = Arc::new(Liveness::new(world));
    let connecting = if host == Host::Elsewhere { timeout.min(SERVED) } else { timeout };
    let mut store = Store::connect(address, &access, connecting)?;
    let reach = AdvertisedAddress::choose(options.interface.as_ref(), store.local_ip()?, &place.endpoint);
    let watch = FailureDetector::start(address, rank, liveness.clone(), &access, connecting)?;
    let ground = Ground {
        node: options.node.as_ref().map_or_else(node, |name| format!("{} {name}", node())),
        choice: options.transport,
        reach: Some(reach),
        access,
        timeout,
        delay: options.delay,
        streams: options.streams.unwrap_or(1),
        on_host: 1,
    };
    let via = Via::Store { store: &mut store, address, rank };
    let mut meeting = Meeting { via, world, timeout, liveness: &liveness };
    let founded = found(&mut meeting, rank, &ground)?;
    Ok(Formed { membership: Membership { watch, server }, founded, liveness })
}

/// Founds a group with those in the meeting, as `rank` among them.
pub(crate) fn found(meeting: &mut Meeting<'_>, rank: Rank, ground: &Ground) -> Result<Founded, Error> {
    let world = meeting.world;
    let (pages, file) = Mapping::create(inbox_len(world))?;
    let pages = Arc::new(pages);
    let reach = ground.reach.as_ref().filter(|_| world > 1);
    let calls = reach.map(|reach| Calls::listen(reach, rank, world, &ground.access)).transpose()?;
    let card = Card {
        node: ground.node.clone(),
        pid: std::process::id(),
        inbox: file.as_raw_fd(),
        address: calls.as_ref().map(Calls::address).transpose()?,
        encrypt: ground.access.encrypt,
        streams: ground.streams,
    };
    let cards: Vec<Card> = meeting.exchange("card", &card)?;
    agree_on_encryption(&cards)?;
    agree_on_streams(&cards)?;
    let mapped = map_inboxes(rank, &pages, &cards, ground);
    let obstacles: Vec<Option<String>> =
        meeting.exchange("shm", &mapped.as_ref().err().map(Error::to_string))?;
    // The inbox's file must stay open until all have mapped it; after this nobody needs it.
    drop(file);

    let topology = Arc::new(sharing(&cards, &obstacles));
    let blocked = obstacles.iter().enumerate().find_map(|(r, why)| why.as_ref().map(|why| (r, why)));
    if ground.choice == Some(TransportChoice::Shm) && topology.nodes().len() > 1 {
        let (r, why) = match blocked {
            Some((r, why)) => (r, why.clone()),
            None => (topology.nodes()[1][0].0, "it is on another host than rank 0".into()),
        };
        return Err(Error::Invalid(format!("shared memory is not possible on rank {r}: {why}")));
    }
    if let Some((r, why)) = blocked {
        log::debug!("tcp within the node of rank {r}: {why}");
    }
    let near = |mapped: Vec<Option<Arc<Mapping>>>| {
        let pids = cards.iter().map(|card| card.pid).collect();
        let together = (0..world)
            .map(|r| mapped[r].clone().filter(|_| topology.together(rank, Rank(r))))
            .collect::<Vec<_>>();
        match ground.reach {
            None => Mailbox::within_process(rank, &together, meeting.liveness),
            Some(_) => Mailbox::across_processes(rank, &together, pids, meeting.liveness),
        }
    };
    let elsewhere: Vec<usize> =
        (0..world).filter(|&r| r != rank.0 && !topology.together(rank, Rank(r))).collect();
    let channels = match calls {
        Some(calls) if !elsewhere.is_empty() => {
            let addresses: Vec<Option<SocketAddr>> = cards.iter().map(|card| card.address).collect();
            meeting.connect(rank, &calls, &addresses, &elsewhere, ground.streams)?
        }
        _ => Vec::new(),
    };
    let on_host = cards.iter().filter(|card| host_of(&card.node) == host_of(&ground.node)).count();
    let transport: Box<dyn Transport> = match (mapped, elsewhere.len() + 1) {
        _ if world == 1 => Box::new(Solo),
        (Ok(mapped), 1) => Box::new(near(mapped)?),
        (Ok(mapped), others) if others < world => {
            let far = Tcp::new(channels, on_host, ground.delay, meeting.liveness)?;
            Box::new(Mixed::new(rank, topology.clone(), near(mapped)?, far))
        }
        _ => Box::new(Tcp::new(channels, on_host, ground.delay, meeting.liveness)?),
    };
    let shared = ground.reach.is_some() && topology.nodes().iter().any(|node| node.len() > 1);
    let backing = if shared { Backing::Shared } else { Backing::Heap };
    Ok(Founded { transport, topology, backing, ground: Ground { on_host, ..ground.clone() } })
}

/// Who shares memory with whom: ranks of one node, none of which has met an obstacle.
fn sharing(cards: &[Card], obstacles: &[Option<String>]) -> Topology {
    let blocked =
        |node: &str| cards.iter().zip(obstacles).any(|(card, why)| card.node == node && why.is_some());
    let apart = |rank: usize| blocked(&cards[rank].node).then_some(rank);
    let names: Vec<_> = (0..cards.len()).map(|rank| (&cards[rank].node, apart(rank))).collect();
    Topology::of_names(&names)
}

/// Maps the inboxes of the ranks on this rank's node.
fn map_inboxes(
    rank: Rank,
    own: &Arc<Mapping>,
    cards: &[Card],
    ground: &Ground,
) -> Result<Vec<Option<Arc<Mapping>>>, Error> {
    if ground.choice == Some(TransportChoice::Tcp) {
        return Err(Error::Invalid("KOLO_TRANSPORT asks for tcp".into()));
    }
    let len = inbox_len(cards.len());
    let map = |(peer, card): (usize, &Card)| match peer == rank.0 {
        true => Ok(Some(own.clone())),
        false if card.node != ground.node => Ok(None),
        false => Mapping::open(card.pid, card.inbox, len).map(|mapping| Some(Arc::new(mapping))),
    };
    cards.iter().enumerate().map(map).collect()
}

fn agree_on_encryption(cards: &[Card]) -> Result<(), Error> {
    let Some(other) = cards.iter().position(|card| card.encrypt != cards[0].encrypt) else { return Ok(()) };
    let (with, without) = if cards[0].encrypt { (0, other) } else { (other, 0) };
    let problem = format!("is 1 on rank {with}, but not on rank {without}; give all workers the same");
    Err(Error::environment(kolo_rendezvous::env::ENCRYPT, problem))
}

fn agree_on_streams(cards: &[Card]) -> Result<(), Error> {
    let Some(other) = cards.iter().position(|card| card.streams != cards[0].streams) else { return Ok(()) };
    let (first, second) = (cards[0].streams, cards[other].streams);
    let problem = format!("is {first} on rank 0, but {second} on rank {other}; give all workers the same");
    Err(Error::environment(kolo_rendezvous::env::STREAMS, problem))
}

/// The part of a node's name that tells hosts apart.
fn host_of(node: &str) -> &str {
    node.split(' ').next().unwrap_or_default()
}

/// Everything that two processes must share to map each other's memory by process number. The network is part of
/// it because separated networks are used to try out distance on one host.
fn node() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = |name: &str| {
        let link = std::fs::read_link(format!("/proc/self/ns/{name}"));
        link.map(|link| link.display().to_string()).unwrap_or_default()
    };
    format!("{} {} {} uid {}", boot.trim(), space("pid"), space("net"), rustix::process::getuid().as_raw())
}

/// What `exchange` does with another rank's words.
#[cfg(feature = "fuzzing")]
pub(crate) fn decode_for_fuzzing(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = serde_json::from_str::<Card>(&text);
    let _ = serde_json::from_str::<Option<String>>(&text);
}

#[cfg(feature = "fuzzing")]
pub(crate) fn seed_for_fuzzing() -> String {
    let address = Some(SocketAddr::from(([127, 0, 0, 1], 29500)));
    let node = "boot pid:[1] net:[2] uid 0".into();
    let card = Card { node, pid: 4711, inbox: 5, address, encrypt: false, streams: 1 };
    serde_json::to_string(&card).unwrap_or_default()
}
