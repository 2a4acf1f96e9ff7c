//! Where the workers of a job meet.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

use super::variables::Variables;
use super::{Launcher, MASTER_ADDR, MASTER_PORT, ports};
use crate::error::Error;

/// Where rank 0 serves the store.
///
/// There may be several places: a name can have several addresses, and of derived ports some may be taken. Rank 0 serves
/// at the first that it can have; the others look for it at one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Master {
    host: String,
    places: Vec<SocketAddr>,
    job: Option<String>,
}

impl From<SocketAddr> for Master {
    /// One place.
    fn from(address: SocketAddr) -> Master {
        Master { host: address.ip().to_string(), places: vec![address], job: None }
    }
}

impl fmt::Display for Master {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places: Vec<String> = self.places.iter().map(SocketAddr::to_string).collect();
        f.write_str(&places.join(", "))
    }
}

impl Master {
    /// The places of `host`, a name or an address, at these ports; `job` tells the job from others that might meet there.
    ///
    /// # Errors
    ///
    /// The name has no address; the rest of a sentence that begins with who has given the name.
    fn resolve(host: &str, ports: &[u16], job: Option<String>) -> Result<Master, String> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        // Its words are the caller's: who has named the host is at fault.
        let unknown = |cause: &str| format!("`{host}`, which does not resolve ({cause})");
        let found = (bare, 0).to_socket_addrs().map_err(|cause| unknown(&cause.to_string()))?;
        let found: Vec<SocketAddr> = found.collect();
        if found.is_empty() {
            return Err(unknown("no address"));
        }
        let mut places = Vec::with_capacity(ports.len() * found.len());
        for port in ports {
            for mut address in found.iter().copied() {
                address.set_port(*port);
                // A host table may have a name twice.
                if !places.contains(&address) {
                    places.push(address);
                }
            }
        }
        Ok(Master { host: bare.into(), places, job })
    }

    /// The places of `host` at a port that is derived from the job's name, and another one than `but`.
    ///
    /// # Errors
    ///
    /// As [`Master::resolve`].
    pub fn derived(host: &str, job: &str, but: u16) -> Result<Master, String> {
        let port = ports::of_job(job).into_iter().find(|port| *port != but).unwrap_or(but);
        Self::resolve(host, &[port], None)
    }

    /// In the order in which all ranks try them; at least one.
    pub fn places(&self) -> &[SocketAddr] {
        &self.places
    }

    /// What tells the job's store from that of another job at the same place; `None` where a user chose the place.
    pub fn job(&self) -> Option<&str> {
        self.job.as_deref()
    }

    /// Whether the host table leads a machine's own name to its loopback, as Debian's does (127.0.1.1): no other machine
    /// can reach it there.
    pub fn is_detour(&self, place: IpAddr) -> bool {
        place.is_loopback() && self.host.parse::<IpAddr>().is_err() && !self.host.contains("localhost")
    }

    /// Where rank 0 listens to be found at a place.
    pub fn listen_at(&self, place: SocketAddr) -> SocketAddr {
        match place.ip() {
            IpAddr::V4(ip) if self.is_detour(ip.into()) => (Ipv4Addr::UNSPECIFIED, place.port()).into(),
            IpAddr::V6(ip) if self.is_detour(ip.into()) => (Ipv6Addr::UNSPECIFIED, place.port()).into(),
            _ => place,
        }
    }

    /// As the user or the launcher has named it.
    pub fn host(&self) -> &str {
        &self.host
    }
}

/// From what the user says, then from what the launcher says.
pub(super) fn read(
    variables: &Variables,
    launcher: &Launcher,
    world_size: usize,
    one_host: bool,
) -> Result<Master, Error> {
    if world_size == 1 {
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into());
    }
    let asked = variables.get(MASTER_ADDR);
    let host = asked.clone().map_or_else(|| host(variables, launcher, one_host), Ok)?;
    let port = port(variables)?.filter(|_| !(launcher.takes_port)(variables));
    let (ports, job) = match (port, (launcher.job)(variables, one_host)) {
        (Some(port), _) => (vec![port], None),
        (None, Some(job)) => (ports::of_job(&job), Some(job)),
        (None, None) => return Err(missing(MASTER_PORT, "is not set", launcher)),
    };
    Master::resolve(&host, &ports, job).map_err(|problem| match asked {
        Some(_) => Error::environment(MASTER_ADDR, format!("is {problem}; set it to rank 0's host")),
        None => missing(MASTER_ADDR, &format!("is not set, and {} gives {problem}", launcher.name), launcher),
    })
}

fn port(variables: &Variables) -> Result<Option<u16>, Error> {
    let Some(text) = variables.get(MASTER_PORT) else { return Ok(None) };
    match text.parse() {
        Ok(port) if port > 0 => Ok(Some(port)),
        _ => {
            let problem = format!("is `{text}`; it must be a port number from 1 to 65535");
            Err(Error::environment(MASTER_PORT, problem))
        }
    }
}

fn host(variables: &Variables, launcher: &Launcher, one_host: bool) -> Result<String, Error> {
    match (launcher.host)(variables)? {
        Some(host) => Ok(host),
        None if one_host => Ok(Ipv4Addr::LOCALHOST.to_string()),
        None => Err(missing(MASTER_ADDR, "is not set, and the workers are on several hosts", launcher)),
    }
}

fn missing(name: &str, problem: &str, launcher: &Launcher) -> Error {
    Error::environment(name, format!("{problem}; {}", launcher.remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(host: &str, ports: &[u16]) -> Vec<String> {
        Master::resolve(host, ports, None).unwrap().places.iter().map(SocketAddr::to_string).collect()
    }

    #[test]
    fn addresses_of_both_families_with_and_without_brackets() {
        assert_eq!(resolve("127.0.0.2", &[5]), ["127.0.0.2:5"]);
        assert_eq!(resolve("::1", &[5, 6]), ["[::1]:5", "[::1]:6"]);
        assert_eq!(resolve("[::1]", &[5]), ["[::1]:5"]);
        assert!(resolve("localhost", &[5]).contains(&"127.0.0.1:5".into()));
    }

    #[test]
    fn a_name_without_address_is_named() {
        let error = Master::resolve("no such host", &[5], None).unwrap_err();
        assert!(error.contains("no such host"), "{error}");
    }

    #[test]
    fn only_a_name_that_leads_to_loopback_is_a_detour() {
        let master = |host: &str| Master { host: host.into(), places: vec![], job: None };
        let place = "127.0.1.1:5".parse().unwrap();
        assert_eq!(master("head").listen_at(place), "0.0.0.0:5".parse().unwrap());
        assert_eq!(master("127.0.1.1").listen_at(place), place);
        assert_eq!(master("localhost").listen_at(place), place);
        let elsewhere = "192.0.2.1:5".parse().unwrap();
        assert_eq!(master("head").listen_at(elsewhere), elsewhere);
        assert_eq!(master("head").listen_at("[::1]:5".parse().unwrap()), "[::]:5".parse().unwrap());
    }
}
