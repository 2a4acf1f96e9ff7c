//! The search of launchers for each other: every launcher probes the places that all of them know, and one
//! may begin the job there.
//!
//! A place is a host of `--master` and a port derived from the given one, because rank 0 of a program that
//! is not elastic listens at the given port itself. A job begins at the first place only; at the other
//! places, launchers can find those that have joined.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kolo_rendezvous::env::Endpoint;
use kolo_rendezvous::secure::Access;
use kolo_rendezvous::store::Server;
use kolo_rendezvous::{AdvertisedAddress, Error, Interface, WaitNotice};

use super::launcher_store;
use super::leader_connection::LeaderConnection;
use super::setback::{Setback, Setbacks};
use crate::launcher_protocol::Hello;
use crate::launcher_view::{LauncherInfo, LauncherView};
use crate::node_config::NodeConfig;
use crate::timeouts::{PROBE, launcher_silence, takeover};

/// Time between two rounds through all places.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(100);
/// Time after which a refused launcher asks again.
const AFTER_SETBACK: Duration = Duration::from_millis(500);

/// Settings of a launcher's search for the others, at its start or again before the job has begun.
pub(crate) struct Discovery {
    pub(crate) nodes: NodeConfig,
    pub(crate) id: u64,
    pub(crate) access: Access,
    pub(crate) interface: Option<Interface>,
    /// Set when the coordinator ends.
    pub(crate) closing: Arc<AtomicBool>,
    /// Time before which the job must begin.
    pub(crate) begins_by: Instant,
}

/// A launcher's place in its job.
pub(crate) struct Discovered {
    /// This launcher's store, where others find it.
    pub(crate) store: Server,
    /// Address of this host for other hosts.
    pub(crate) ip: IpAddr,
    pub(crate) node_rank: usize,
    pub(crate) view: LauncherView,
    /// The connection to the leader; `None` if this launcher has begun the job and leads.
    pub(crate) connection: Option<LeaderConnection>,
}

impl Discovery {
    /// Searches until there is a job, at most as long as a job may take to begin. Calls `warn` with
    /// problems, at once or every few seconds.
    pub(super) fn search(&self, warn: &dyn Fn(String)) -> Result<Discovered, Error> {
        let rest = self.begins_by.saturating_duration_since(Instant::now());
        let limit = Duration::from_secs(rest.as_secs_f64().round() as u64);
        let mut setbacks = Setbacks::new(self.nodes.masters_text(), !self.may_begin(), takeover(), limit);
        while !self.closing.load(Ordering::Acquire) && Instant::now() < self.begins_by {
            let (message, pause) = match self.try_all_places(warn) {
                Ok(Some(discovered)) => return Ok(discovered),
                Ok(None) => (setbacks.no_answer(), BETWEEN_ROUNDS),
                Err(setback) => (setbacks.record(setback, Instant::now())?, AFTER_SETBACK),
            };
            message.into_iter().for_each(warn);
            std::thread::sleep(pause);
        }
        Err(setbacks.last())
    }

    /// Returns true if the job may begin with this launcher.
    fn may_begin(&self) -> bool {
        self.nodes.node_rank.is_none_or(|rank| rank == 0)
    }

    /// Joins the job that answers at some place, or begins it if that is this launcher's task. Returns
    /// `None` if neither is possible for now.
    fn try_all_places(&self, warn: &dyn Fn(String)) -> Result<Option<Discovered>, Setback> {
        let masters: Vec<Endpoint> = self.nodes.masters.iter().filter_map(derived_place).collect();
        let job_name = self.job_name();
        let mut refused = None;
        for place in masters.iter().flat_map(|master| master.addresses()) {
            let view = match launcher_store::probe_view(*place, &self.access, PROBE) {
                Ok(Some(view)) => view,
                Ok(None) => continue,
                Err(error) => {
                    refused = Some(error);
                    continue;
                }
            };
            if view.job_name != job_name || view.work_done {
                continue;
            }
            if let Some(leader) = view.leader().map(|leader| leader.address) {
                return self.join(leader, view, &masters).map(Some);
            }
        }
        // A refusal does not pass with time, and a second job beside the refusing one would split the nodes.
        if let Some(error) = refused {
            return Err(error.into());
        }
        match masters.first() {
            Some(first) if self.may_begin() => self.begin(first, &job_name, warn),
            Some(_) => Ok(None),
            None => Err(Error::system("no host of --master resolves", "check the names").into()),
        }
    }

    /// Name by which launchers recognize the same job.
    fn job_name(&self) -> String {
        self.nodes.masters.first().map_or_else(String::new, job_name)
    }

    /// Begins the job, if this host is the first master and no other launcher listens there.
    fn begin(
        &self,
        master: &Endpoint,
        job_name: &str,
        warn: &dyn Fn(String),
    ) -> Result<Option<Discovered>, Setback> {
        let mut refused = None;
        for place in master.addresses() {
            match self.listen(master, *place) {
                Ok((store, address)) => {
                    let node_rank = self.nodes.node_rank.unwrap_or(0);
                    let arbiter = self.nodes.arbiter.to_string();
                    let first = LauncherInfo { id: self.id, node_rank, address };
                    let view = LauncherView::new(job_name, arbiter, first);
                    self.begin_at_arbiter(view.job_id, warn)?;
                    let ip = AdvertisedAddress::choose(self.interface.as_ref(), address.ip(), master).ip();
                    return Ok(Some(Discovered { store, ip, node_rank, view, connection: None }));
                }
                Err(error) => refused = Some(error),
            }
        }
        refused.map_or(Ok(None), |error| Err(error.into()))
    }

    /// Serves this launcher's store at a place of this host. Returns the address at which others reach it.
    fn listen(&self, master: &Endpoint, place: SocketAddr) -> Result<(Server, SocketAddr), Error> {
        // Without a token nothing listens beyond loopback: a name that leads there serves this host only.
        let at = if self.access.token.is_some() { master.listen_address(place) } else { place };
        let store = Server::start(at, self.nodes.max_nodes, &self.access)?;
        let bound = store.address().map_err(|cause| Error::system("cannot read an address", cause))?;
        let ip = if at == place {
            place.ip()
        } else {
            AdvertisedAddress::choose(self.interface.as_ref(), place.ip(), master).ip()
        };
        Ok((store, (ip, bound.port()).into()))
    }

    /// Registers a new job with the arbiter, and waits for the arbiter if it cannot be reached.
    fn begin_at_arbiter(&self, job: u64, warn: &dyn Fn(String)) -> Result<(), Setback> {
        let patience = takeover();
        let until = self.begins_by.min(Instant::now() + patience);
        let (mut warned, mut notice) = (false, WaitNotice::new());
        loop {
            let Err(why) = self.nodes.arbiter.begin(job) else { return Ok(()) };
            let reason = format!("cannot begin, because its arbiter cannot be used: {why}");
            if self.closing.load(Ordering::Acquire) || Instant::now() >= until {
                return Err(Setback::Final(Error::LauncherRefused { reason }));
            }
            if notice.due().is_some() || !std::mem::replace(&mut warned, true) {
                warn(format!("the job {reason}; trying again for up to {patience:?}"));
            }
            std::thread::sleep(BETWEEN_ROUNDS);
        }
    }

    /// Checks that this launcher uses the job's arbiter.
    fn check_arbiter(&self, view: &LauncherView) -> Result<(), Setback> {
        let refused = |reason| Error::LauncherRefused { reason };
        let (own, theirs) = (self.nodes.arbiter.to_string(), &view.arbiter);
        if own != *theirs {
            let reason = format!("has `--arbiter {theirs}`, and this node `{own}`; give all nodes the same");
            return Err(Setback::Final(refused(reason)));
        }
        match self.nodes.arbiter.knows(view.job_id) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(why)) => Err(Setback::Final(refused(format!("has another arbiter: {why}")))),
            Err(why) => {
                let reason = format!("cannot be joined, because its arbiter cannot be used: {why}");
                Err(Setback::Refused(refused(reason)))
            }
        }
    }

    /// Joins the job that is led at an address, and listens at a place of `masters` if this host has one.
    fn join(
        &self,
        leader: SocketAddr,
        view: LauncherView,
        masters: &[Endpoint],
    ) -> Result<Discovered, Setback> {
        self.check_arbiter(&view)?;
        let connection = LeaderConnection::open(leader, self.id, &self.access, launcher_silence())?;
        let to_leader = Endpoint::from(leader);
        let ip = AdvertisedAddress::choose(self.interface.as_ref(), connection.local_ip, &to_leader).ip();
        let mut others = masters
            .iter()
            .skip(1)
            .flat_map(|master| master.addresses().iter().map(move |place| (master, *place)));
        let (store, address) = match others.find_map(|(master, place)| self.listen(master, place).ok()) {
            Some(listening) => listening,
            None => self.listen(&to_leader, (ip, 0).into())?,
        };
        let (node_rank, deferred_workers) = (self.nodes.node_rank, self.nodes.deferred_workers());
        let hello = Hello { address, node_rank, deferred_workers, rejoins: None, left: BTreeSet::new() };
        let node_rank = connection.introduce(hello, launcher_silence()).map_err(|error| match error {
            // A lost launcher keeps its place until the leader notices.
            Error::LauncherRefused { .. } => Setback::Refused(error),
            other => other.into(),
        })?;
        // Until the leader has sent its view, this copy directs probing launchers to the leader.
        launcher_store::publish_view(&store, &view);
        Ok(Discovered { store, ip, node_rank, view, connection: Some(connection) })
    }
}

/// Place at which launchers with this host and port meet; `None` if the host's name does not resolve now.
fn derived_place(master: &(String, u16)) -> Option<Endpoint> {
    let resolved = Endpoint::derived(&master.0, &job_name(master), master.1);
    resolved.inspect_err(|problem| log::debug!("a master is {problem}")).ok()
}

fn job_name((host, port): &(String, u16)) -> String {
    format!("kolo launch at {host}:{port}")
}
