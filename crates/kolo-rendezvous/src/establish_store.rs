//! Starts the store on rank 0 at one of the endpoint's addresses, and finds it from the other ranks.
//!
//! Rank 0 listens at the first address that it can bind and keeps the job's name in the store. The other
//! ranks query each address until a store of that name answers; they skip the stores of other jobs or of
//! PyTorch, and other programs. If the user chose the only address, the ranks skip the query: any problem
//! there is an error.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::env::{Endpoint, MASTER_ADDR, WorkerEnv};
use crate::error::{Error, is_out_of_files};
use crate::secure::{Access, HandshakeError, is_loopback_down};
use crate::store::{Server, Store, get_once};
use crate::wait_notice::WaitNotice;
use kolo_schedule::Rank;

/// Key under which a store keeps its job's name.
const JOB: &str = "job";
/// Maximum time for one address to answer, before the next one is tried.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two rounds through all addresses.
const PAUSE: Duration = Duration::from_millis(20);

/// Returns the store's address, and on rank 0 the store itself, which rank 0 starts. The other ranks look
/// for it for `timeout`.
///
/// # Errors
///
/// - [`Error::Listen`], or [`Error::Environment`] that names `MASTER_ADDR`: rank 0 can listen at none of the
///   endpoint's addresses.
/// - [`Error::Missing`]: no store of the job was found.
/// - [`Error::TokenDiffers`]: the only store that was found has another token.
pub fn establish_store(
    worker: &WorkerEnv,
    access: &Access,
    timeout: Duration,
) -> Result<(Option<Server>, SocketAddr), Error> {
    match worker.rank {
        Rank(0) => serve(&worker.endpoint, worker.world_size, access)
            .map(|(server, address)| (Some(server), address)),
        _ => find(&worker.endpoint, access, timeout).map(|address| (None, address)),
    }
}

fn serve(endpoint: &Endpoint, world_size: usize, access: &Access) -> Result<(Server, SocketAddr), Error> {
    let mut first = None;
    for address in endpoint.addresses() {
        // Without a token nothing listens beyond loopback, so an alias of loopback serves this host only.
        let listen_at = if access.token.is_some() { endpoint.listen_address(*address) } else { *address };
        match Server::start(listen_at, world_size, access) {
            Ok(server) => {
                let address = announce(endpoint, *address, &server, access)?;
                return Ok((server, address));
            }
            Err(error) => {
                log::debug!("rank 0 does not serve at {address}: {error}");
                first.get_or_insert(explain(endpoint, *address, error));
            }
        }
    }
    Err(first.unwrap_or_else(|| Error::environment(MASTER_ADDR, "has no address")))
}

/// Keeps the job's name in the store, for ranks that query it. Returns the address with the actual port.
fn announce(
    endpoint: &Endpoint,
    mut address: SocketAddr,
    server: &Server,
    access: &Access,
) -> Result<SocketAddr, Error> {
    let listens =
        server.address().map_err(|cause| Error::system("cannot read the store's address", cause))?;
    address.set_port(listens.port());
    let mut store = Store::connect(address, access, ANSWER_TIMEOUT)?;
    store.set(JOB, endpoint.job().unwrap_or_default().into())?;
    log::info!("rank 0 serves the store at {address}, listening at {listens}");
    Ok(address)
}

/// Explains why rank 0 cannot listen at an address. Only a bind shows if the address belongs to this host.
fn explain(endpoint: &Endpoint, address: SocketAddr, error: Error) -> Error {
    match error {
        Error::OtherHost { .. } => {
            let (host, ip) = (endpoint.host(), address.ip());
            let leads = if host == ip.to_string() { String::new() } else { format!(" (it leads to {ip})") };
            let problem = format!(
                "must be rank 0's host, but `{host}`{leads} is no address of this host, where rank 0 runs"
            );
            Error::environment(MASTER_ADDR, problem)
        }
        _ => error,
    }
}

fn find(endpoint: &Endpoint, access: &Access, timeout: Duration) -> Result<SocketAddr, Error> {
    let first = endpoint.addresses()[0];
    if endpoint.addresses().len() == 1 && endpoint.job().is_none() {
        return Ok(first);
    }
    let until = Instant::now() + timeout;
    let (mut token_differs, mut notice) = (None, WaitNotice::new());
    loop {
        for address in endpoint.addresses() {
            match get_once(*address, access, JOB, ANSWER_TIMEOUT) {
                Ok(Some(name)) if name == endpoint.job().unwrap_or_default() => {
                    log::debug!("found the store at {address}");
                    return Ok(*address);
                }
                // Nothing listens there yet, or another program or job does.
                Ok(_) => {}
                Err(HandshakeError::Broken(cause)) if is_out_of_files(&cause) => {
                    return Err(Error::io(format!("cannot ask for the store at {address}"), cause));
                }
                Err(HandshakeError::Broken(cause)) if is_loopback_down(address.ip(), &cause) => {
                    return Err(Error::LoopbackDown { address: address.ip() });
                }
                // The listener may also belong to another job.
                Err(error) => {
                    let reason = error.token_rejection();
                    let differs = reason.map(|reason| Error::TokenDiffers { address: *address, reason });
                    token_differs = differs.or(token_differs);
                }
            }
        }
        if Instant::now() >= until {
            let (missing, refused) = (vec![Rank(0)], Vec::new());
            let missing = Error::Missing { missing, address: first, waited: timeout, refused };
            return Err(token_differs.unwrap_or(missing));
        }
        if let Some(waited) = notice.due() {
            log::warn!(
                "rank 0 has not served the job's store at {endpoint} for {waited:?}; this worker waits for {timeout:?}"
            );
        }
        std::thread::sleep(PAUSE);
    }
}
