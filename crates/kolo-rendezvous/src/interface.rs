//! The network interface and address that a worker advertises to its peers.
//!
//! By default it is the interface that routes to rank 0's store, since that connection works.

use std::fmt;
use std::net::{IpAddr, TcpListener};

use if_addrs::{IfAddr, get_if_addrs};

use crate::env::{Endpoint, IFACE};
use crate::error::Error;
use kolo_schedule::Rank;

/// A network interface of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    name: String,
    /// In the operating system's order; at least one.
    addresses: Vec<IpAddr>,
    /// True if the interface has a carrier; a bridge without members has none.
    up: bool,
}

impl Interface {
    /// Returns the interface of that name, `eth0` for example.
    ///
    /// # Errors
    ///
    /// [`Error::Environment`] for `KOLO_IFACE`, if there is none of that name; it lists the existing ones.
    pub fn named(name: &str) -> Result<Interface, Error> {
        let all = all().map_err(|cause| Error::system("cannot list the network interfaces", cause))?;
        let names = || all.iter().map(|interface| interface.name.as_str()).collect::<Vec<_>>().join(", ");
        let unknown =
            || Error::environment(IFACE, format!("is `{name}`; interfaces with an address are {}", names()));
        all.iter().find(|interface| interface.name == name).cloned().ok_or_else(unknown)
    }

    /// Returns its first address of `like`'s family, which peers are known to support, else its first.
    fn address(&self, like: IpAddr) -> IpAddr {
        let same = self.addresses.iter().find(|address| address.is_ipv4() == like.is_ipv4());
        same.or(self.addresses.first()).copied().unwrap_or(like)
    }
}

/// Returns the interfaces that have an address at which peers can reach them, each once.
fn all() -> std::io::Result<Vec<Interface>> {
    let mut found: Vec<Interface> = Vec::new();
    for interface in get_if_addrs()? {
        let ip = interface.ip();
        // A link-local address has another meaning on every host.
        if matches!(&interface.addr, IfAddr::V6(v6) if v6.ip.is_unicast_link_local()) {
            continue;
        }
        match found.iter_mut().find(|known| known.name == interface.name) {
            Some(known) => known.addresses.push(ip),
            None => {
                let up = interface.is_oper_up();
                found.push(Interface { name: interface.name, addresses: vec![ip], up });
            }
        }
    }
    Ok(found)
}

/// The address that a rank advertises to its peers, and the name of its interface.
#[derive(Clone, Debug)]
pub struct AdvertisedAddress {
    name: String,
    address: IpAddr,
}

impl fmt::Display for AdvertisedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {} ({})", self.address, self.name)
    }
}

impl AdvertisedAddress {
    /// Chooses an address of the interface that the user named, else `local`, this end of the connection to
    /// the store.
    ///
    /// If the store's host name is an alias of loopback, other hosts cannot reach `local`. The choice is
    /// then the first interface that leads out of this host.
    pub fn choose(named: Option<&Interface>, local: IpAddr, endpoint: &Endpoint) -> AdvertisedAddress {
        if let Some(interface) = named {
            return AdvertisedAddress { name: interface.name.clone(), address: interface.address(local) };
        }
        // Only errors and the log need the names, so a failure to list them is not an error.
        let known = all().unwrap_or_default();
        let outside = |interface: &&Interface| interface.addresses.iter().all(|ip| !ip.is_loopback());
        let outward = known.iter().filter(outside).find(|interface| interface.up);
        match outward {
            Some(interface) if endpoint.is_loopback_alias(local) => {
                AdvertisedAddress { name: interface.name.clone(), address: interface.address(local) }
            }
            _ => {
                let of_local = known.iter().find(|interface| interface.addresses.contains(&local));
                let name = of_local.map_or("unknown interface", |interface| &interface.name);
                AdvertisedAddress { name: name.into(), address: local }
            }
        }
    }

    /// Returns the IP address.
    pub fn ip(&self) -> IpAddr {
        self.address
    }

    /// Listens for the peers of `rank` at a free port.
    ///
    /// # Errors
    ///
    /// [`Error::System`] or [`Error::TooManyFiles`]: the operating system refuses.
    pub fn listen(&self, rank: Rank) -> Result<TcpListener, Error> {
        let listener = TcpListener::bind((self.address, 0))
            .map_err(|cause| Error::io(format!("{rank} cannot listen for its peers {self}"), cause))?;
        log::info!("{rank} is reached {self}");
        Ok(listener)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn endpoint() -> Endpoint {
        std::net::SocketAddr::from((LOCAL, 1)).into()
    }

    #[test]
    fn loopback_is_found_by_name_and_by_address() {
        let advertised = AdvertisedAddress::choose(None, LOCAL, &endpoint());
        assert_eq!(advertised.to_string(), format!("at 127.0.0.1 ({})", advertised.name));
        let named = Interface::named(&advertised.name).unwrap();
        assert_eq!(AdvertisedAddress::choose(Some(&named), LOCAL, &endpoint()).address, LOCAL);
        advertised.listen(Rank(0)).unwrap();
    }

    #[test]
    fn an_unknown_interface_is_reported_with_the_existing_ones() {
        let loopback = AdvertisedAddress::choose(None, LOCAL, &endpoint()).name;
        let error = Interface::named("nonesuch0").unwrap_err().to_string();
        assert!(["KOLO_IFACE", "nonesuch0", &loopback].iter().all(|part| error.contains(part)), "{error}");
    }

    #[test]
    fn the_family_that_peers_speak_is_preferred() {
        let (four, six): (IpAddr, IpAddr) = (LOCAL, "::1".parse().unwrap());
        let both = Interface { name: "lo".into(), addresses: vec![six, four], up: true };
        assert_eq!((both.address(four), both.address(six)), (four, six));
        let one = Interface { name: "lo".into(), addresses: vec![six], up: true };
        assert_eq!(one.address(four), six);
    }
}
