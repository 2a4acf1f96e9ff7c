//! Who am I? The environment variables by which a launcher tells a worker its place in the job.
//!
//! The names are torchrun's, so that `torchrun` can start Kolo's workers and `kolo launch` can start
//! PyTorch's. A process without `RANK` and `WORLD_SIZE` is a job of its own: world size 1.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};

use crate::error::Error;
use crate::rank::Rank;

/// This worker's rank in the job, `0 ≤ RANK < WORLD_SIZE`.
pub const RANK: &str = "RANK";
/// Number of workers in the job.
pub const WORLD_SIZE: &str = "WORLD_SIZE";
/// This worker's rank among those of its node.
pub const LOCAL_RANK: &str = "LOCAL_RANK";
/// Number of workers on this node.
pub const LOCAL_WORLD_SIZE: &str = "LOCAL_WORLD_SIZE";
/// Index of this node.
pub const GROUP_RANK: &str = "GROUP_RANK";
/// Host on which rank 0 serves the store.
pub const MASTER_ADDR: &str = "MASTER_ADDR";
/// Port on which rank 0 serves the store.
pub const MASTER_PORT: &str = "MASTER_PORT";
/// Name of the job, the same for all its workers.
pub const RUN_ID: &str = "TORCHELASTIC_RUN_ID";
/// File into which a failing worker writes its error, for the launcher to show.
pub const ERROR_FILE: &str = "TORCHELASTIC_ERROR_FILE";
/// `shm` or `tcp`: overrides the choice of transport.
pub const TRANSPORT: &str = "KOLO_TRANSPORT";
/// Name of an all-reduce algorithm: overrides the choice.
pub const ALGORITHM: &str = "KOLO_ALGORITHM";
/// Seconds after which a collective that waits for a peer gives up. Default 300.
pub const TIMEOUT: &str = "KOLO_TIMEOUT";

/// The job's token, which lets a worker in; at least 16 characters.
pub const TOKEN: &str = "KOLO_TOKEN";
/// A file that holds the job's token.
pub const TOKEN_FILE: &str = "KOLO_TOKEN_FILE";
/// `1` encrypts what travels between hosts; needs a token. Default 0.
pub const ENCRYPT: &str = "KOLO_ENCRYPT";

/// A worker's place in its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// This worker.
    pub rank: Rank,
    /// Number of workers.
    pub world_size: usize,
    /// This worker among those of its node.
    pub local_rank: usize,
    /// Where rank 0 serves the store.
    pub master: SocketAddr,
}

impl Place {
    /// Reads the variables; `None` when neither `RANK` nor `WORLD_SIZE` is set.
    ///
    /// # Errors
    ///
    /// [`Error::Environment`] names the variable that is missing, is no number or contradicts another.
    pub fn from_env() -> Result<Option<Place>, Error> {
        Self::from_lookup(|name| std::env::var(name).ok())
    }

    fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Place>, Error> {
        if lookup(RANK).is_none() && lookup(WORLD_SIZE).is_none() {
            return Ok(None);
        }
        let number = |name: &'static str| match lookup(name) {
            None => {
                Err(Error::environment(name, "is not set, though the other one of RANK and WORLD_SIZE is"))
            }
            Some(text) => text
                .parse::<usize>()
                .map_err(|_| Error::environment(name, format!("is `{text}`; it must be a whole number"))),
        };
        let (rank, world_size) = (number(RANK)?, number(WORLD_SIZE)?);
        if rank >= world_size {
            return Err(Error::environment(
                RANK,
                format!("is {rank}; it must be below WORLD_SIZE={world_size}"),
            ));
        }
        let local_rank = if lookup(LOCAL_RANK).is_some() { number(LOCAL_RANK)? } else { rank };
        let master = if world_size == 1 && lookup(MASTER_PORT).is_none() {
            SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0)
        } else {
            master(lookup(MASTER_ADDR), lookup(MASTER_PORT))?
        };
        Ok(Some(Place { rank: Rank(rank), world_size, local_rank, master }))
    }
}

fn master(host: Option<String>, port: Option<String>) -> Result<SocketAddr, Error> {
    let host = host.unwrap_or_else(|| "127.0.0.1".into());
    let port = port.ok_or_else(|| {
        Error::environment(MASTER_PORT, "is not set; start the worker with `kolo launch`, or set it by hand")
    })?;
    let port: u16 = port
        .parse()
        .map_err(|_| Error::environment(MASTER_PORT, format!("is `{port}`; it must be a port number")))?;
    (host.as_str(), port)
        .to_socket_addrs()
        .ok()
        .and_then(|mut addresses| addresses.next())
        .ok_or_else(|| Error::environment(MASTER_ADDR, format!("is `{host}`, which does not resolve")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vars: &[(&str, &str)]) -> Result<Option<Place>, Error> {
        let find = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| v.to_string());
        Place::from_lookup(find)
    }

    #[test]
    fn no_launcher_is_no_place() {
        assert_eq!(read(&[]).unwrap(), None);
    }

    #[test]
    fn torchrun_variables_are_read() {
        let vars = [(RANK, "3"), (WORLD_SIZE, "4"), (LOCAL_RANK, "1"), (MASTER_PORT, "29500")];
        let place = read(&vars).unwrap().unwrap();
        assert_eq!((place.rank, place.world_size, place.local_rank), (Rank(3), 4, 1));
        assert_eq!(place.master, "127.0.0.1:29500".parse().unwrap());
    }

    #[test]
    fn errors_name_the_variable() {
        for (vars, name) in [
            (&[(RANK, "1")][..], WORLD_SIZE),
            (&[(RANK, "x"), (WORLD_SIZE, "2")], RANK),
            (&[(RANK, "2"), (WORLD_SIZE, "2")], RANK),
            (&[(RANK, "0"), (WORLD_SIZE, "2")], MASTER_PORT),
            (&[(RANK, "0"), (WORLD_SIZE, "2"), (MASTER_PORT, "99999")], MASTER_PORT),
        ] {
            let message = read(vars).unwrap_err().to_string();
            assert!(message.contains(name), "{message}");
        }
    }
}
