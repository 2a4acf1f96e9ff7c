//! How a group comes together over the store: everybody shows a card, all read all cards, then the transport is
//! chosen and set up.

use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::env::Place;
use crate::error::Error;
use crate::liveness::Liveness;
use crate::memory::{Backing, Mapping};
use crate::rank::Rank;
use crate::secure::Access;
use crate::secure::data::Calls;
use crate::store::{Server, Store, Watch};
use crate::transport::Transport;
use crate::transport::channel::Channel;
use crate::transport::mailbox::{Mailbox, inbox_len};
use crate::transport::tcp::Tcp;

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
    pub(crate) watch: Watch,
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
    encrypt: bool,
}

pub(crate) struct Formed {
    pub(crate) membership: Membership,
    pub(crate) transport: Box<dyn Transport>,
    pub(crate) backing: Backing,
    pub(crate) liveness: Arc<Liveness>,
}

/// Meets the other ranks.
pub(crate) fn form(
    place: &Place,
    choice: Option<TransportChoice>,
    timeout: Duration,
    access: &Access,
) -> Result<Formed, Error> {
    let (rank, world) = (place.rank, place.world_size);
    let server = if rank == Rank(0) { Some(Server::start(place.master, world, access)?) } else { None };
    let address = match &server {
        Some(server) => {
            server.address().map_err(|cause| Error::system("cannot read the store's address", cause))?
        }
        None => place.master,
    };
    let liveness = Arc::new(Liveness::new(world));
    let mut store = Store::connect(address, access, timeout)?;
    let watch = Watch::start(address, rank, liveness.clone(), access, timeout)?;
    let mut meeting = Meeting { store: &mut store, world, address, timeout, liveness: &liveness, access };

    let (pages, file) = Mapping::create(inbox_len(world))?;
    let card =
        Card { node: node(), pid: std::process::id(), inbox: file.as_raw_fd(), encrypt: access.encrypt };
    let cards: Vec<Card> = meeting.exchange("card", rank, &card)?;

    agree_on_encryption(&cards)?;

    let strangers: Vec<usize> = (0..world).filter(|&r| cards[r].node != cards[0].node).collect();
    let mapped = match (choice, strangers.first()) {
        (Some(TransportChoice::Tcp), _) => Err("KOLO_TRANSPORT asks for tcp".to_string()),
        (_, Some(stranger)) => Err(format!("rank 0 and rank {stranger} are not on one host")),
        (_, None) => map_inboxes(rank, pages, &cards).map_err(|error| error.to_string()),
    };
    // One rank that cannot use shared memory is enough for none to use it.
    let views: Vec<Option<String>> = meeting.exchange("shm", rank, &mapped.as_ref().err())?;
    let obstacle = views.iter().enumerate().find_map(|(r, view)| view.as_ref().map(|why| (r, why)));

    let (transport, backing): (Box<dyn Transport>, _) = match (mapped, obstacle) {
        (Ok(inboxes), None) => {
            let pids = cards.iter().map(|card| card.pid).collect();
            (Box::new(Mailbox::across_processes(rank, &inboxes, pids, &liveness)), Backing::Shared)
        }
        (_, Some((r, why))) if choice == Some(TransportChoice::Shm) => {
            return Err(Error::Invalid(format!("shared memory is not possible on rank {r}: {why}")));
        }
        (_, obstacle) => {
            if let Some((r, why)) = obstacle {
                log::debug!("using tcp: on rank {r}, {why}");
            }
            (Box::new(Tcp::new(meeting.connect_all(rank)?, &liveness)?), Backing::Heap)
        }
    };
    // The inbox's file must stay open until all have mapped it; after this nobody needs it.
    drop(file);
    Ok(Formed { membership: Membership { watch, server }, transport, backing, liveness })
}

fn agree_on_encryption(cards: &[Card]) -> Result<(), Error> {
    let Some(other) = cards.iter().position(|card| card.encrypt != cards[0].encrypt) else { return Ok(()) };
    let (with, without) = if cards[0].encrypt { (0, other) } else { (other, 0) };
    let problem = format!("is 1 on rank {with}, but not on rank {without}; give all workers the same");
    Err(Error::environment(crate::env::ENCRYPT, problem))
}

fn map_inboxes(rank: Rank, own: Mapping, cards: &[Card]) -> Result<Vec<Arc<Mapping>>, Error> {
    let mut own = Some(own);
    let len = inbox_len(cards.len());
    let map = |(peer, card): (usize, &Card)| match own.take_if(|_| peer == rank.0) {
        Some(own) => Ok(Arc::new(own)),
        None => Mapping::open(card.pid, card.inbox, len).map(Arc::new),
    };
    cards.iter().enumerate().map(map).collect()
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

/// The store, as used while a group forms.
struct Meeting<'a> {
    store: &'a mut Store,
    world: usize,
    address: SocketAddr,
    timeout: Duration,
    liveness: &'a Liveness,
    access: &'a Access,
}

impl Meeting<'_> {
    /// Shows this rank's value and collects everybody's.
    fn exchange<S: Serialize, T: for<'de> Deserialize<'de>>(
        &mut self,
        topic: &str,
        rank: Rank,
        own: &S,
    ) -> Result<Vec<T>, Error> {
        let bad =
            |cause: serde_json::Error| Error::system(format!("rendezvous: unreadable `{topic}`"), cause);
        let own = serde_json::to_string(own).map_err(bad)?;
        self.store.set(&format!("{topic}/{}", rank.0), own).map_err(|error| self.liveness.reason(error))?;
        let until = Instant::now() + self.timeout;
        let (mut values, mut missing) = (Vec::new(), Vec::new());
        for peer in 0..self.world {
            match self.wait_for(&format!("{topic}/{peer}"), until)? {
                Some(text) => values.push(serde_json::from_str(&text).map_err(bad)?),
                None => missing.push(Rank(peer)),
            }
        }
        if missing.is_empty() {
            return Ok(values);
        }
        Err(Error::Missing { missing, address: self.address, waited: self.timeout })
    }

    /// Waits in short turns, because a rank may die while others wait for it.
    fn wait_for(&mut self, key: &str, until: Instant) -> Result<Option<String>, Error> {
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            let answer = self.store.get(key, rest.min(Duration::from_millis(500)));
            match (answer, self.liveness.failure()) {
                (_, Some(error)) => return Err(error),
                (Ok(None), None) if !rest.is_zero() => {}
                (answer, None) => return answer.map_err(|error| self.liveness.reason(error)),
            }
        }
    }

    /// One connection to each peer: this rank calls those below it and is called by those above.
    fn connect_all(&mut self, rank: Rank) -> Result<Vec<Option<Channel>>, Error> {
        let calls = Calls::listen(self.store.local_ip()?, self.world, self.access)?;
        let own = calls.address()?;
        let addresses: Vec<SocketAddr> = self.exchange("tcp", rank, &own)?;
        let mut channels: Vec<Option<Channel>> = (0..self.world).map(|_| None).collect();
        let until = Instant::now() + self.timeout;
        for (peer, address) in addresses.iter().enumerate().take(rank.0) {
            channels[peer] = Some(calls.call(rank, Rank(peer), *address, until, self.liveness)?);
        }
        while let Some(missing) = (rank.0 + 1..self.world).find(|&peer| channels[peer].is_none()) {
            match calls.next(Duration::from_millis(50)) {
                // A rank that calls again has lost its first connection.
                Some((caller, channel)) if caller > rank && caller.0 < self.world => {
                    channels[caller.0] = Some(channel);
                }
                Some((caller, _)) => {
                    log::debug!("refused a data connection: {rank} is not called by {caller}")
                }
                None => {}
            }
            if let Some(error) = self.liveness.failure() {
                return Err(error);
            }
            if Instant::now() > until {
                let (missing, waited) = (vec![Rank(missing)], self.timeout);
                return Err(Error::Missing { missing, address: own, waited });
            }
        }
        Ok(channels)
    }
}

/// What `exchange` does with another rank's words.
#[cfg(feature = "fuzzing")]
pub(crate) fn decode_for_fuzzing(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = serde_json::from_str::<Card>(&text);
    let _ = serde_json::from_str::<SocketAddr>(&text);
    let _ = serde_json::from_str::<Option<String>>(&text);
}

#[cfg(feature = "fuzzing")]
pub(crate) fn seed_for_fuzzing() -> String {
    let card = Card { node: "boot pid:[1] net:[2] uid 0".into(), pid: 4711, inbox: 5, encrypt: false };
    serde_json::to_string(&card).unwrap_or_default()
}
