//! Finding rank 0's store among the places where it may be.
//!
//! Rank 0 listens at the first place that it can have and keeps the job's name there. The others knock at each place
//! until one is answered by a store of that name: another job's, PyTorch's or a stranger's is passed over. Where there is
//! one place only, chosen by the user, nobody knocks: whoever is wrong there is reported, not passed over.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use crate::env::{MASTER_ADDR, Master, Place};
use crate::error::Error;
use crate::secure::Access;
use crate::store::{Server, Store, probe};
use kolo_schedule::Rank;

/// The key under which a store keeps its job's name.
const JOB: &str = "job";
/// How long one place may take to answer, before the next one is tried.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two rounds through all places.
const PAUSE: Duration = Duration::from_millis(20);

/// Where the store is, and on rank 0 the store itself.
pub fn meet(
    place: &Place,
    access: &Access,
    timeout: Duration,
) -> Result<(Option<Server>, SocketAddr), Error> {
    match place.rank {
        Rank(0) => serve(place, access).map(|(server, address)| (Some(server), address)),
        _ => find(&place.master, access, timeout).map(|address| (None, address)),
    }
}

fn serve(own: &Place, access: &Access) -> Result<(Server, SocketAddr), Error> {
    let master = &own.master;
    let mut first = None;
    for place in master.places() {
        // Without a token nothing listens beyond loopback: then a name that leads there serves this host only.
        let listen_at = if access.token.is_some() { master.listen_at(*place) } else { *place };
        match Server::start(listen_at, own.world_size, access) {
            Ok(server) => {
                let address = announce(master, *place, &server, access)?;
                return Ok((server, address));
            }
            Err(error) => {
                log::debug!("rank 0 does not serve at {place}: {error}");
                first.get_or_insert(explain(master, *place, error));
            }
        }
    }
    Err(first.unwrap_or_else(|| Error::Invalid("the job has no place to meet".into())))
}

/// Keeps the job's name for those who knock: others may know more places than this rank does.
fn announce(
    master: &Master,
    place: SocketAddr,
    server: &Server,
    access: &Access,
) -> Result<SocketAddr, Error> {
    let listens =
        server.address().map_err(|cause| Error::system("cannot read the store's address", cause))?;
    let mut address = place;
    address.set_port(listens.port());
    Store::connect(address, access, PATIENCE)?.set(JOB, master.job().unwrap_or_default().into())?;
    log::info!("rank 0 serves the store at {address}, listening at {listens}");
    Ok(address)
}

/// Why rank 0 cannot listen at a place. Only a bind tells whether an address is this host's.
fn explain(master: &Master, place: SocketAddr, error: Error) -> Error {
    if !matches!(error, Error::Listen { .. }) {
        return error;
    }
    match TcpListener::bind((place.ip(), 0)) {
        Err(cause) if cause.kind() == ErrorKind::AddrNotAvailable => {
            let (host, ip) = (master.host(), place.ip());
            let leads = if host == ip.to_string() { String::new() } else { format!(" (it leads to {ip})") };
            let problem = format!(
                "must be rank 0's host, but `{host}`{leads} is no address of this host, where rank 0 runs"
            );
            Error::environment(MASTER_ADDR, problem)
        }
        _ => error,
    }
}

fn find(master: &Master, access: &Access, timeout: Duration) -> Result<SocketAddr, Error> {
    let first = master.places()[0];
    if master.places().len() == 1 && master.job().is_none() {
        return Ok(first);
    }
    let until = Instant::now() + timeout;
    loop {
        for place in master.places() {
            match probe(*place, access, JOB, PATIENCE) {
                Ok(Some(name)) if name == master.job().unwrap_or_default() => {
                    log::debug!("found the store at {place}");
                    return Ok(*place);
                }
                // Nobody is there yet, a stranger, or another job.
                Ok(_) | Err(_) => {}
            }
        }
        if Instant::now() >= until {
            return Err(Error::Missing { missing: vec![Rank(0)], address: first, waited: timeout });
        }
        std::thread::sleep(PAUSE);
    }
}
