//! The ranks of a group publish their addresses, and every pair takes the nearest transport between them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::memory::Backing;
use crate::transport::{Connecting, Connector, Distance, GroupContext, Routes, TRANSPORTS, TransportKind};
use kolo_rendezvous::{Error, env};
use kolo_schedule::{Rank, Topology};

/// Publishes this rank's text on a topic to all participating ranks and returns the texts of all of them,
/// in the rank order of the new group. All ranks call it with the same topics in the same order.
pub type Exchange<'a> = dyn FnMut(&str, String) -> Result<Vec<String>, Error> + 'a;

/// This rank's connections to the other ranks of a group.
#[derive(Debug)]
pub struct Connected {
    /// The transport to each rank.
    pub routes: Routes,
    /// The nodes of the group.
    pub topology: Arc<Topology>,
    /// Kind of memory of the group's buffers.
    pub backing: Backing,
    /// Context for connecting sub-groups.
    pub context: GroupContext,
}

impl Connected {
    /// Creates the connections of a group of one rank.
    pub fn alone(context: GroupContext) -> Self {
        let topology = Arc::new(Topology::single(1));
        Connected { routes: Routes::alone(), topology, backing: Backing::Heap, context }
    }
}

/// The facts that a rank publishes before the ranks connect.
#[derive(Serialize, Deserialize)]
struct PeerInfo {
    /// Ranks with equal nodes can map each other's memory.
    node: String,
    encrypt: bool,
    streams: usize,
    opened_streams: usize,
    /// Addresses of this rank, by the names of the transports that it can use.
    addresses: BTreeMap<String, String>,
}

/// The reasons why a rank cannot use a transport within reach, by the transport's name.
type Obstacles = BTreeMap<String, String>;

/// The published facts of all ranks, equal on every rank, so all ranks make the same decisions.
struct Peers {
    infos: Vec<PeerInfo>,
    obstacles: Vec<Obstacles>,
}

/// Connects this rank to all other ranks of the new group.
pub fn connect(group: &Connecting<'_>, exchange: &mut Exchange<'_>) -> Result<Connected, Error> {
    let Connecting { rank, world, context, .. } = *group;
    let mut ends = connectors(group)?;
    let address =
        |(kind, end): &(&TransportKind, Box<dyn Connector + '_>)| Ok((kind.name.to_string(), end.address()?));
    let own = PeerInfo {
        node: context.node.clone(),
        encrypt: context.access.encrypt,
        streams: context.streams,
        opened_streams: context.opened_streams,
        addresses: ends.iter().map(address).collect::<Result<_, Error>>()?,
    };
    let infos: Vec<PeerInfo> = show(exchange, "peer", &own)?;
    agree_on_encryption(&infos)?;
    agree_on_streams(&infos)?;
    let mut obstacles = Obstacles::new();
    for (kind, end) in &mut ends {
        match end.prepare(&addresses(kind, rank, &infos)) {
            Ok(()) => {}
            // No other transport needs fewer files.
            Err(error @ Error::TooManyFiles { .. }) => return Err(error),
            // A rank that stood still while the others gave up comes too late for this group.
            Err(error) if error.is_lost_peer() => return Err(error),
            Err(cause) => {
                obstacles.insert(kind.name.into(), cause.to_string());
            }
        }
    }
    let peers = Peers { infos, obstacles: show(exchange, "obstacles", &obstacles)? };
    for (name, cause) in peers.obstacles_to_report(rank) {
        log::warn!("{rank} does without {name}: {cause}");
    }

    let on_host = peers.infos.iter().filter(|info| host_of(&info.node) == host_of(&context.node)).count();
    let mut connected = Vec::new();
    let routes = peers.routes(rank)?;
    for (kind, end) in ends {
        let reached: Vec<Rank> = (0..world).map(Rank).filter(|peer| routes[peer.0] == Some(kind)).collect();
        if !reached.is_empty() {
            connected.push((kind, end.connect(&reached, on_host)?, reached));
        }
    }
    let topology = Arc::new(peers.topology());
    let mut routes = if world == 1 { Routes::alone() } else { Routes::new(world, connected) };
    routes.use_streams(context.streams);
    let backing = peers.backing(&topology);
    Ok(Connected { routes, topology, backing, context: GroupContext { on_host, ..context.clone() } })
}

/// A transport and this rank's end of it.
type End<'a> = (&'static TransportKind, Box<dyn Connector + 'a>);

/// Creates this rank's ends of all transports that it may use, nearest first.
fn connectors<'a>(group: &Connecting<'a>) -> Result<Vec<End<'a>>, Error> {
    let may_use = |kind: &&TransportKind| group.context.transport.is_none_or(|transport| transport == *kind);
    let mut ends = Vec::new();
    for kind in TRANSPORTS.into_iter().filter(may_use) {
        ends.extend((kind.connector)(group)?.map(|end| (kind, end)));
    }
    Ok(ends)
}

/// Publishes this rank's value on a topic and returns the values of all ranks.
fn show<T: Serialize + DeserializeOwned>(
    exchange: &mut Exchange<'_>,
    topic: &str,
    own: &T,
) -> Result<Vec<T>, Error> {
    let bad = |cause: serde_json::Error| Error::system(format!("rendezvous: unreadable `{topic}`"), cause);
    let texts = exchange(topic, serde_json::to_string(own).map_err(bad)?)?;
    texts.iter().map(|text| serde_json::from_str(text).map_err(bad)).collect()
}

/// Returns true if a transport can span the distance between two ranks.
fn within_reach(kind: &TransportKind, one: &PeerInfo, other: &PeerInfo) -> bool {
    kind.reach == Distance::Network || one.node == other.node
}

/// Addresses of the ranks within reach of `rank`; `None` for the other ranks.
fn addresses(kind: &TransportKind, rank: Rank, infos: &[PeerInfo]) -> Vec<Option<String>> {
    let near = |info: &&PeerInfo| within_reach(kind, &infos[rank.0], info);
    infos.iter().map(|info| Some(info).filter(near)?.addresses.get(kind.name).cloned()).collect()
}

impl Peers {
    /// Returns the transports that `rank` cannot use, and why, if it is the first rank that has such.
    fn obstacles_to_report(&self, rank: Rank) -> impl Iterator<Item = (&String, &String)> {
        let first = self.obstacles.iter().position(|obstacles| !obstacles.is_empty());
        self.obstacles[rank.0].iter().filter(move |_| first == Some(rank.0))
    }

    /// Returns the reason why a rank cannot use a transport, if there is one.
    fn obstacle(&self, kind: &TransportKind, rank: usize) -> Option<&str> {
        match self.infos[rank].addresses.contains_key(kind.name) {
            false => Some("it is not to be used there"),
            true => self.obstacles[rank].get(kind.name).map(String::as_str),
        }
    }

    /// Returns the first rank within reach of `rank` that cannot use a transport, and the reason. It keeps
    /// all of them from using it: a rank that shares memory with some ranks of its node shares it with all.
    fn blocked(&self, kind: &TransportKind, rank: usize) -> Option<(Rank, &str)> {
        let near = |other: &usize| within_reach(kind, &self.infos[rank], &self.infos[*other]);
        (0..self.infos.len()).filter(near).find_map(|other| Some((Rank(other), self.obstacle(kind, other)?)))
    }

    /// Returns the transport that leads to each rank; `None` for `rank` itself.
    fn routes(&self, rank: Rank) -> Result<Vec<Option<&'static TransportKind>>, Error> {
        let usable: Vec<&TransportKind> =
            TRANSPORTS.into_iter().filter(|kind| self.blocked(kind, rank.0).is_none()).collect();
        let near =
            |kind: &&&TransportKind, peer: usize| within_reach(kind, &self.infos[rank.0], &self.infos[peer]);
        let route = |peer: usize| match usable.iter().find(|kind| near(kind, peer)) {
            _ if peer == rank.0 => Ok(None),
            Some(kind) => Ok(Some(*kind)),
            None => Err(self.no_route(rank, Rank(peer))),
        };
        (0..self.infos.len()).map(route).collect()
    }

    fn no_route(&self, from: Rank, to: Rank) -> Error {
        let reason = |kind: &&TransportKind| {
            let apart = !within_reach(kind, &self.infos[from.0], &self.infos[to.0]);
            let reason = match self.blocked(kind, from.0) {
                _ if apart => "they are on different hosts".to_string(),
                Some((rank, why)) => format!("on {rank}, {why}"),
                None => return None,
            };
            Some((kind.name.to_string(), reason))
        };
        let reasons = TRANSPORTS.iter().filter(|kind| kind.is_for_jobs()).filter_map(reason).collect();
        Error::NoTransport { from, to, reasons }
    }

    /// Groups the ranks that share memory: the ranks of one node, none of which has an obstacle.
    fn topology(&self) -> Topology {
        let shares = |rank: usize| {
            let near = |kind: &&&TransportKind| kind.reach < Distance::Network;
            TRANSPORTS.iter().filter(near).any(|kind| self.blocked(kind, rank).is_none())
        };
        let apart = |rank: usize| (!shares(rank)).then_some(rank);
        let names: Vec<_> = (0..self.infos.len()).map(|rank| (&self.infos[rank].node, apart(rank))).collect();
        Topology::of_names(&names)
    }

    /// Kind of memory of the group's buffers, the same on all ranks: any two may read each other's.
    fn backing(&self, topology: &Topology) -> Backing {
        let shares = |kind: &&&TransportKind, node: &[Rank]| {
            kind.backing == Backing::Shared && node.len() > 1 && self.blocked(kind, node[0].0).is_none()
        };
        let shared = |kind: &&TransportKind| topology.nodes().iter().any(|node| shares(&kind, node));
        if TRANSPORTS.iter().any(shared) { Backing::Shared } else { Backing::Heap }
    }
}

fn agree_on_encryption(infos: &[PeerInfo]) -> Result<(), Error> {
    let Some(other) = infos.iter().position(|info| info.encrypt != infos[0].encrypt) else { return Ok(()) };
    let (with, without) = if infos[0].encrypt { (0, other) } else { (other, 0) };
    let problem = format!("is 1 on rank {with}, but not on rank {without}; give all workers the same");
    Err(Error::environment(env::ENCRYPT, problem))
}

fn agree_on_streams(infos: &[PeerInfo]) -> Result<(), Error> {
    let of = |info: &PeerInfo| (info.streams, info.opened_streams);
    let Some(other) = infos.iter().position(|info| of(info) != of(&infos[0])) else { return Ok(()) };
    let (are, first, second) = match infos[0].streams == infos[other].streams {
        true => ("and --tune open", infos[0].opened_streams, infos[other].opened_streams),
        false => ("is", infos[0].streams, infos[other].streams),
    };
    let problem = format!("{are} {first} on rank 0, but {second} on rank {other}; give all workers the same");
    Err(Error::environment(env::STREAMS, problem))
}

/// Part of a node's name that identifies the host.
fn host_of(node: &str) -> &str {
    node.split(' ').next().unwrap_or_default()
}

/// Decodes a text from another rank as `show` and the transports do.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn decode_for_fuzzing(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = serde_json::from_str::<PeerInfo>(&text);
    let _ = serde_json::from_str::<Obstacles>(&text);
    crate::transport::decode_address_for_fuzzing(&text);
}

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn seed_for_fuzzing() -> String {
    let address = |name: &str, text: &str| (name.to_string(), text.to_string());
    let addresses = [address("shm", r#"{"pid":4711,"file":5}"#), address("tcp", "127.0.0.1:29500")].into();
    let node = "boot pid:[1] net:[2] uid 0".into();
    let info = PeerInfo { node, encrypt: false, streams: 1, opened_streams: 1, addresses };
    serde_json::to_string(&info).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};
    use std::time::Duration;

    use kolo_rendezvous::{AdvertisedAddress, Liveness};

    use super::*;
    use crate::transport::{SHM, TCP};

    #[test]
    fn ranks_that_open_other_numbers_of_connections_are_named() {
        let mut infos = peers(&[("a", &[&TCP]), ("b", &[&TCP])]).infos;
        agree_on_streams(&infos).unwrap();
        infos[1].opened_streams = 4;
        let error = agree_on_streams(&infos).unwrap_err().to_string();
        assert!(error.contains("KOLO_STREAMS and --tune open 1 on rank 0, but 4 on rank 1;"), "{error}");
        infos[1].streams = 4;
        let error = agree_on_streams(&infos).unwrap_err().to_string();
        assert!(error.contains("KOLO_STREAMS is 1 on rank 0, but 4 on rank 1;"), "{error}");
    }

    /// Ranks on nodes with these names, each with the transports that it can use.
    fn peers(ranks: &[(&str, &[&TransportKind])]) -> Peers {
        let info = |(node, kinds): &(&str, &[&TransportKind])| PeerInfo {
            node: node.to_string(),
            encrypt: false,
            streams: 1,
            opened_streams: 1,
            addresses: kinds.iter().map(|kind| (kind.name.to_string(), String::new())).collect(),
        };
        Peers { infos: ranks.iter().map(info).collect(), obstacles: vec![Obstacles::new(); ranks.len()] }
    }

    fn names(peers: &Peers, rank: usize) -> Vec<&'static str> {
        let routes = peers.routes(Rank(rank)).unwrap();
        routes.into_iter().map(|kind| kind.map_or("-", |kind| kind.name)).collect()
    }

    #[test]
    fn every_pair_takes_the_nearest_transport() {
        let both: &[&TransportKind] = &[&SHM, &TCP];
        let mut peers = peers(&[("a", both), ("a", both), ("b", both), ("b", both)]);
        assert_eq!(names(&peers, 0), ["-", "shm", "tcp", "tcp"]);
        assert_eq!(names(&peers, 3), ["tcp", "tcp", "shm", "-"]);
        assert_eq!((peers.topology().nodes().len(), peers.backing(&peers.topology())), (2, Backing::Shared));
        // One rank's obstacle separates the ranks of its node, and of no other node.
        peers.obstacles[1].insert("shm".into(), "no memory".into());
        assert_eq!(names(&peers, 0), ["-", "tcp", "tcp", "tcp"]);
        assert_eq!(names(&peers, 2), ["tcp", "tcp", "-", "shm"]);
        assert_eq!(peers.topology().nodes().len(), 3);
        // One rank tells the user of it.
        peers.obstacles[2].insert("shm".into(), "no files".into());
        let reported =
            |rank| peers.obstacles_to_report(Rank(rank)).map(|(name, cause)| format!("{name}: {cause}"));
        let reported: Vec<String> = (0..4).flat_map(reported).collect();
        assert_eq!(reported, ["shm: no memory"]);
    }

    /// It gave up on this rank, which stood still; another transport would not lead to it either. (In an
    /// elastic job this rank takes part in the next group; without another transport it used to end.)
    #[test]
    fn a_rank_that_has_given_up_is_no_obstacle() {
        let here = IpAddr::from(Ipv4Addr::LOCALHOST);
        let advertised = AdvertisedAddress::choose(None, here, &SocketAddr::from((here, 1)).into());
        let context = GroupContext {
            transport: Some(&SHM),
            advertised: Some(advertised),
            ..GroupContext::of_threads(Duration::from_secs(10))
        };
        let liveness = Liveness::new(2);
        let group = Connecting { rank: Rank(0), world: 2, context: &context, liveness: &liveness };
        let pid = format!(r#""pid\":{}"#, std::process::id());
        let mut exchange = |topic: &str, own: String| {
            assert_eq!(topic, "peer");
            let other = own.replace(&pid, &format!(r#""pid\":{}"#, u32::MAX));
            assert_ne!(own, other);
            Ok(vec![own, other])
        };
        let error = connect(&group, &mut exchange).unwrap_err();
        assert!(error.is_lost_peer() && error.culprit() == Some(Rank(1)), "{error}");
    }

    #[test]
    fn an_unreachable_rank_is_an_error_with_the_reasons() {
        let peers = peers(&[("a", &[&SHM]), ("a", &[&SHM]), ("b", &[&SHM, &TCP])]);
        let message = peers.routes(Rank(0)).unwrap_err().to_string();
        assert!(message.contains("rank 0 cannot reach rank 2"), "{message}");
        assert!(
            message.contains("shm: they are on different hosts") && message.contains("tcp: on rank 0"),
            "{message}"
        );
    }
}
