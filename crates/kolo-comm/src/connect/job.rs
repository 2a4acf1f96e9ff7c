//! Connects the ranks of a job over its store.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::open_files::raise_limit;
use crate::options::Options;
use kolo_rendezvous::env::WorkerEnv;
use kolo_rendezvous::secure::Access;
use kolo_rendezvous::store::{FailureDetector, Gathered, Server, Store};
use kolo_rendezvous::{AdvertisedAddress, Error, Liveness, WaitNotice, establish_store};
use kolo_schedule::Rank;
use kolo_transport::{Backing, Connecting, GroupContext, Pool};
use kolo_transport::{Connected, connect};

/// A rank's tie to its job: watches the other ranks and may serve the store. Dropping it signs the rank off.
pub(crate) struct StoreSession {
    // The order matters: this rank first announces that it leaves, then the store that it may serve ends.
    pub(crate) watch: FailureDetector,
    server: Option<Server>,
}

impl StoreSession {
    /// Serves the store until the other ranks have left, too, or `limit` has passed.
    pub(crate) fn leave(self, limit: Duration) {
        let StoreSession { watch, server } = self;
        drop(watch);
        if let Some(server) = server {
            server.linger(limit);
        }
    }
}

pub(crate) struct Formed {
    pub(crate) session: StoreSession,
    pub(crate) connected: Connected,
    pub(crate) liveness: Arc<Liveness>,
}

/// The process that serves the store of a job's group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum StoreHost {
    Rank0,
    /// A process that runs before the ranks start.
    Elsewhere,
}

/// Longest time for an answer of a store served before the ranks started: longer than any busy host's delay.
const SERVED: Duration = Duration::from_secs(20);

/// Shortest time that a store has for an answer, however short the timeout is: its host may be busy.
const BUSY: Duration = Duration::from_secs(5);

/// Longest turn of a rank's wait for the other ranks' messages.
const TURN: Duration = Duration::from_millis(500);

/// Meets the other ranks of the job and connects to them. Gives up if `is_over` while ranks are missing.
pub(crate) fn form(
    place: &WorkerEnv,
    options: &Options,
    host: StoreHost,
    is_over: &dyn Fn() -> bool,
) -> Result<Formed, Error> {
    raise_limit();
    let (rank, world, timeout) = (place.rank, place.world_size, options.arrival());
    let access = Access::new(options.token.clone(), options.encrypt)?;
    let (server, address) = match host {
        StoreHost::Rank0 => establish_store(place, &access, timeout)?,
        StoreHost::Elsewhere => (None, place.endpoint.addresses()[0]),
    };
    let liveness = Arc::new(Liveness::new(world));
    let answering = if host == StoreHost::Elsewhere { timeout.min(SERVED) } else { timeout };
    let mut store = match host {
        StoreHost::Rank0 => Store::connect(address, &access, answering)?,
        // The process that serves the store may have died since it assigned this rank.
        StoreHost::Elsewhere => Store::connect_served(address, &access, answering)?,
    };
    // A stopped process keeps its connections, so without a limit the wait for it would never end.
    let answering = answering.max(BUSY);
    store.set_timeout(answering + TURN)?;
    let advertised =
        AdvertisedAddress::choose(options.interface.as_ref(), store.local_ip()?, &place.endpoint);
    let watch = FailureDetector::start(address, rank, liveness.clone(), &access, answering)?;
    let streams = options.streams.unwrap_or(1);
    let context = GroupContext {
        node: options.node.as_ref().map_or_else(node, |name| format!("{} {name}", node())),
        transport: options.transport,
        advertised: Some(advertised),
        access,
        timeout,
        delay: options.delay,
        congestion: options.congestion.clone(),
        streams,
        opened_streams: options.spare_streams.unwrap_or(streams).max(streams),
        on_host: 1,
        copies: Pool::new(Backing::Shared),
    };
    let group = Connecting { rank, world, context: &context, liveness: &liveness };
    let refused = || server.as_ref().map_or_else(Vec::new, Server::token_refusals);
    let connected = connect(&group, &mut |topic, own| {
        over_store(&mut store, address, &group, is_over, topic, own)
            .map_err(|error| name_refused(error, refused()))
    });
    let connected = connected.inspect_err(|error| {
        // Without this report the other ranks would wait until their deadline and not learn the reason.
        if error.is_of_this_process() {
            watch.report(Error::Abandoned { rank, reason: error.to_string() }, &liveness);
        }
    })?;
    Ok(Formed { session: StoreSession { watch, server }, connected, liveness })
}

/// Publishes this rank's text in the store and collects the texts of all ranks. Costs two requests, and
/// one more for each megabyte of texts.
fn over_store(
    store: &mut Store,
    address: SocketAddr,
    group: &Connecting<'_>,
    is_over: &dyn Fn() -> bool,
    topic: &str,
    own: String,
) -> Result<Vec<String>, Error> {
    let Connecting { rank, world, context, liveness } = *group;
    store.set(&format!("{topic}/{}", rank.0), own).map_err(|error| liveness.failure_or(error))?;
    let (until, mut notice) = (Instant::now() + context.timeout, WaitNotice::new());
    loop {
        let rest = until.saturating_duration_since(Instant::now());
        // Short turns, because a rank may die while others wait for it.
        let answer = store.gather(topic, world, rest.min(TURN));
        if let Some(error) = liveness.failure() {
            return Err(error);
        }
        let missing = match answer.map_err(|error| liveness.failure_or(error))? {
            Gathered::All(texts) => return Ok(texts),
            Gathered::Missing(missing) => missing.into_iter().map(Rank).collect::<Vec<_>>(),
        };
        if is_over() {
            let reason = format!("its group is over; {} never joined it", missing.first().unwrap_or(&rank));
            return Err(Error::Abandoned { rank, reason });
        }
        if rest.is_zero() {
            let (waited, refused) = (context.timeout, Vec::new());
            return Err(Error::Missing { missing, address, waited, refused });
        }
        // Only the first rank that is present logs the warning.
        let is_first = || (0..world).map(Rank).find(|other| !missing.contains(other)) == Some(rank);
        if let Some(waited) = notice.due().filter(|_| is_first()) {
            log::warn!(
                "{} of {world} ranks {} not arrived after {waited:?}, {} first; this rank waits for {:?}",
                missing.len(),
                if missing.len() == 1 { "has" } else { "have" },
                missing.first().copied().unwrap_or(rank),
                context.timeout
            );
        }
    }
}

/// Adds the hosts that the store has refused to an error about missing ranks.
fn name_refused(error: Error, hosts: Vec<IpAddr>) -> Error {
    match error {
        Error::Missing { missing, address, waited, .. } => {
            Error::Missing { missing, address, waited, refused: hosts }
        }
        other => other,
    }
}

/// Everything that two processes must share to map each other's memory by process number. It includes the
/// network namespace because separate networks on one host simulate distant hosts.
fn node() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let space = |name: &str| {
        let link = std::fs::read_link(format!("/proc/self/ns/{name}"));
        link.map(|link| link.display().to_string()).unwrap_or_default()
    };
    format!("{} {} {} uid {}", boot.trim(), space("pid"), space("net"), rustix::process::getuid().as_raw())
}
