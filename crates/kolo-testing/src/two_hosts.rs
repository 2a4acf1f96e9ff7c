//! Two hosts with a cable between them, as network namespaces, for what loopback cannot do: a host that
//! vanishes without a word.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Two namespaces and the cable; removed when it is dropped.
pub struct TwoHosts {
    names: [String; 2],
}

/// The end of the cable at either host.
const END: &str = "cable";

impl TwoHosts {
    /// Makes the hosts.
    ///
    /// # Errors
    ///
    /// Why they cannot be had here: it takes iproute2, and root.
    pub fn new() -> Result<Self, String> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |host: usize| format!("kolo-test-{}-{number}-{host}", std::process::id());
        // From here on what has been made is removed.
        let hosts = TwoHosts { names: [0, 1].map(name) };
        let [first, second] = &hosts.names;
        ip(&["netns", "add", first])?;
        ip(&["netns", "add", second])?;
        ip(&["-n", first, "link", "add", END, "type", "veth", "peer", END, "netns", second])?;
        for (host, name) in hosts.names.iter().enumerate() {
            let address = format!("{}/24", hosts.address(host));
            ip(&["-n", name, "address", "add", &address, "dev", END])?;
            ip(&["-n", name, "link", "set", END, "up"])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        Ok(hosts)
    }

    /// The address of host 0 or 1.
    pub fn address(&self, host: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 79, 0, 1 + host as u8)
    }

    /// Moves the calling thread to a host, and with it whatever threads it starts from now on.
    ///
    /// # Panics
    ///
    /// If that is not allowed.
    pub fn enter(&self, host: usize) {
        let namespace = File::open(format!("/run/netns/{}", self.names[host])).expect("a namespace");
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).expect("to enter it");
    }

    /// From now on packets between the hosts are lost, and nobody is told.
    ///
    /// # Panics
    ///
    /// If that cannot be done.
    pub fn cut(&self) {
        for (host, name) in self.names.iter().enumerate() {
            // Sent to a card that neither of them has.
            let (other, nobody) = (self.address(1 - host).to_string(), "02:00:00:00:00:00");
            ip(&[
                "-n",
                name,
                "neighbour",
                "replace",
                &other,
                "lladdr",
                nobody,
                "dev",
                END,
                "nud",
                "permanent",
            ])
            .expect("to cut the cable");
        }
    }
}

impl Drop for TwoHosts {
    fn drop(&mut self) {
        for name in &self.names {
            // One that was never made cannot be removed.
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

fn ip(words: &[&str]) -> Result<(), String> {
    let told = || format!("ip {}", words.join(" "));
    let ended = Command::new("ip").args(words).output().map_err(|cause| format!("{}: {cause}", told()))?;
    match ended.status.success() {
        true => Ok(()),
        false => Err(format!("{}: {}", told(), String::from_utf8_lossy(&ended.stderr).trim())),
    }
}
