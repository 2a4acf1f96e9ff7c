//! The endpoint at which rank 0 serves the store and the other ranks look for it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::launchers::Launcher;
use super::names::{MASTER_ADDR, MASTER_PORT};
use super::ports;
use super::variables::Variables;
use crate::error::Error;

/// Addresses at which rank 0 may serve the store: `MASTER_ADDR` and `MASTER_PORT`, or their substitutes.
///
/// There may be several addresses: a name can resolve to several, and some of the derived ports may be
/// taken. Rank 0 serves at the first address at which it can listen; the other ranks try one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    host: String,
    addresses: Vec<SocketAddr>,
    job: Option<String>,
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Endpoint {
        Endpoint { host: address.ip().to_string(), addresses: vec![address], job: None }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addresses: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        f.write_str(&addresses.join(", "))
    }
}

impl Endpoint {
    /// Returns the addresses of `host`, a name or an address, at these ports. `job` distinguishes the job
    /// from others that might use the same addresses.
    /// The error is the rest of a sentence, after the source of the name.
    fn resolve(host: &str, ports: &[u16], job: Option<String>) -> Result<Endpoint, String> {
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let unknown = |cause: &str| format!("`{host}`, which does not resolve ({cause})");
        let found = (bare, 0).to_socket_addrs().map_err(|cause| unknown(&cause.to_string()))?;
        let found: Vec<SocketAddr> = found.collect();
        if found.is_empty() {
            return Err(unknown("no address"));
        }
        let mut addresses = Vec::with_capacity(ports.len() * found.len());
        for port in ports {
            for mut address in found.iter().copied() {
                address.set_port(*port);
                // A host table may list a name twice.
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
        }
        Ok(Endpoint { host: bare.into(), addresses, job })
    }

    /// Returns the addresses of `host` at a port that is derived from the job's name, other than `except`.
    ///
    /// # Errors
    ///
    /// The name has no address. The message is the rest of a sentence, after the source of the name.
    pub fn derived(host: &str, job: &str, except: u16) -> Result<Endpoint, String> {
        let port = ports::of_job(job).into_iter().find(|port| *port != except).unwrap_or(except);
        Self::resolve(host, &[port], None)
    }

    /// Returns the addresses in the order in which all ranks try them; at least one.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the job's name, which distinguishes its store from another job's store at the same address.
    /// `None` if the user chose the port.
    pub(crate) fn job(&self) -> Option<&str> {
        self.job.as_deref()
    }

    /// Returns true if the host table maps the machine's own name to its loopback, as Debian's does
    /// (127.0.1.1). Other machines cannot reach it there.
    pub(crate) fn is_loopback_alias(&self, ip: IpAddr) -> bool {
        ip.is_loopback() && self.host.parse::<IpAddr>().is_err() && !self.host.contains("localhost")
    }

    /// Returns the address at which rank 0 listens for `address`: all interfaces for a loopback alias.
    pub fn listen_address(&self, address: SocketAddr) -> SocketAddr {
        match address.ip() {
            IpAddr::V4(ip) if self.is_loopback_alias(ip.into()) => {
                (Ipv4Addr::UNSPECIFIED, address.port()).into()
            }
            IpAddr::V6(ip) if self.is_loopback_alias(ip.into()) => {
                (Ipv6Addr::UNSPECIFIED, address.port()).into()
            }
            _ => address,
        }
    }

    /// Returns the host as the user or the launcher named it.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }
}

/// Reads the endpoint from the user's variables, then from the launcher's.
pub(super) fn read(
    variables: &Variables,
    launcher: &dyn Launcher,
    world_size: usize,
    one_host: bool,
) -> Result<Endpoint, Error> {
    if world_size == 1 {
        return Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into());
    }
    let given = variables.get(MASTER_ADDR);
    let host = given.clone().map_or_else(|| host(variables, launcher, one_host), Ok)?;
    let port = port(variables, MASTER_PORT)?.filter(|_| !launcher.occupies_master_port(variables));
    let (ports, job) = match (port, launcher.job_name(variables, one_host)) {
        (Some(port), _) => (vec![port], None),
        (None, Some(job)) => (ports::of_job(&job), Some(job)),
        (None, None) => return Err(missing(MASTER_PORT, "is not set", launcher)),
    };
    let resolve = || Endpoint::resolve(&host, &ports, job.clone());
    let resolved = if launcher.one_worker_per_host() { repeat(resolve, NAMED_WITHIN) } else { resolve() };
    resolved.map_err(|problem| match given {
        Some(_) => Error::environment(MASTER_ADDR, format!("is {problem}; set it to rank 0's host")),
        None => {
            missing(MASTER_ADDR, &format!("is not set, and {} gives {problem}", launcher.name()), launcher)
        }
    })
}

/// Time in which rank 0's name has to resolve, where it does so only from the start of rank 0's container on.
const NAMED_WITHIN: Duration = Duration::from_secs(60);

/// Calls until there is a result, or for so long.
fn repeat<T, E>(call: impl Fn() -> Result<T, E>, at_most: Duration) -> Result<T, E> {
    let until = Instant::now() + at_most;
    loop {
        match call() {
            Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(200)),
            result => return result,
        }
    }
}

/// Reads the port in the variable `name`, if it is set.
pub(super) fn port(variables: &Variables, name: &str) -> Result<Option<u16>, Error> {
    let Some(text) = variables.get(name) else { return Ok(None) };
    match text.parse() {
        Ok(port) if port > 0 => Ok(Some(port)),
        _ => {
            let problem = format!("is `{text}`; it must be a port number from 1 to 65535");
            Err(Error::environment(name, problem))
        }
    }
}

fn host(variables: &Variables, launcher: &dyn Launcher, one_host: bool) -> Result<String, Error> {
    match launcher.rank_0_host(variables)? {
        Some(host) => Ok(host),
        None if one_host => Ok(Ipv4Addr::LOCALHOST.to_string()),
        None => Err(missing(MASTER_ADDR, "is not set, and the workers are on several hosts", launcher)),
    }
}

fn missing(name: &str, problem: &str, launcher: &dyn Launcher) -> Error {
    Error::environment(name, format!("{problem}; {}", launcher.remedy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(host: &str, ports: &[u16]) -> Vec<String> {
        Endpoint::resolve(host, ports, None).unwrap().addresses.iter().map(SocketAddr::to_string).collect()
    }

    #[test]
    fn addresses_of_both_families_with_and_without_brackets() {
        assert_eq!(resolve("127.0.0.2", &[5]), ["127.0.0.2:5"]);
        assert_eq!(resolve("::1", &[5, 6]), ["[::1]:5", "[::1]:6"]);
        assert_eq!(resolve("[::1]", &[5]), ["[::1]:5"]);
        assert!(resolve("localhost", &[5]).contains(&"127.0.0.1:5".into()));
    }

    #[test]
    fn a_name_may_come_later() {
        let calls = std::cell::Cell::new(0);
        let third = || {
            calls.set(calls.get() + 1);
            if calls.get() < 3 { Err("unknown") } else { Ok(7) }
        };
        assert_eq!(repeat(third, NAMED_WITHIN), Ok(7));
        assert_eq!(repeat(|| Err::<u8, _>("unknown"), Duration::ZERO), Err("unknown"));
    }

    #[test]
    fn a_name_without_address_is_named() {
        let error = Endpoint::resolve("no such host", &[5], None).unwrap_err();
        assert!(error.contains("no such host"), "{error}");
    }

    #[test]
    fn only_a_name_that_resolves_to_loopback_is_an_alias() {
        let endpoint = |host: &str| Endpoint { host: host.into(), addresses: vec![], job: None };
        let place = "127.0.1.1:5".parse().unwrap();
        assert_eq!(endpoint("head").listen_address(place), "0.0.0.0:5".parse().unwrap());
        assert_eq!(endpoint("127.0.1.1").listen_address(place), place);
        assert_eq!(endpoint("localhost").listen_address(place), place);
        let elsewhere = "192.0.2.1:5".parse().unwrap();
        assert_eq!(endpoint("head").listen_address(elsewhere), elsewhere);
        assert_eq!(endpoint("head").listen_address("[::1]:5".parse().unwrap()), "[::]:5".parse().unwrap());
    }
}
