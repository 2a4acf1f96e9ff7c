//! Hosts with a cable between any two of them, as network namespaces, for what loopback cannot do: a host
//! that vanishes without a word, and a cable that is cut.

use std::fs::File;
use std::net::Ipv4Addr;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Namespaces and the cables between them; removed when it is dropped.
pub struct Hosts {
    names: Vec<String>,
}

/// [`Hosts`], of which there are two.
pub struct TwoHosts(Hosts);

impl Hosts {
    /// Makes so many hosts, at most 200.
    ///
    /// # Errors
    ///
    /// Why they cannot be had here: it takes iproute2, and root.
    pub fn new(count: usize) -> Result<Self, String> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |host: usize| format!("kolo-test-{}-{number}-{host}", std::process::id());
        // From here on what has been made is removed.
        let hosts = Hosts { names: (0..count).map(name).collect() };
        for (host, name) in hosts.names.iter().enumerate() {
            ip(&["netns", "add", name])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            // An address of the host and not of a cable, so that it has one for all others.
            let address = format!("{}/32", hosts.address(host));
            ip(&["-n", name, "address", "add", &address, "dev", "lo"])?;
        }
        for one in 0..count {
            for other in one + 1..count {
                hosts.connect(one, other)?;
            }
        }
        Ok(hosts)
    }

    fn connect(&self, one: usize, other: usize) -> Result<(), String> {
        let (first, second) = (&self.names[one], &self.names[other]);
        let (end, far_end) = (cable_to(other), cable_to(one));
        ip(&["-n", first, "link", "add", &end, "type", "veth", "peer", &far_end, "netns", second])?;
        for (host, to) in [(one, other), (other, one)] {
            let (name, end) = (&self.names[host], cable_to(to));
            ip(&["-n", name, "link", "set", &end, "up"])?;
            let (to, from) = (self.address(to).to_string(), self.address(host).to_string());
            ip(&["-n", name, "route", "add", &to, "dev", &end, "scope", "link", "src", &from])?;
        }
        Ok(())
    }

    /// The address of a host, from 0.
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

    /// Does something on a host, in a thread of its own. Processes that it starts stay there.
    ///
    /// # Panics
    ///
    /// If it does, or if that is not allowed.
    pub fn on<R: Send>(&self, host: usize, work: impl FnOnce() -> R + Send) -> R {
        std::thread::scope(|scope| {
            let working = scope.spawn(|| {
                self.enter(host);
                work()
            });
            working.join().expect("the work on a host succeeds")
        })
    }

    /// From now on a host sends to another one so many bits a second, as `20mbit`.
    ///
    /// # Errors
    ///
    /// Why that cannot be done here: it takes `tc`, and a kernel with a token bucket filter.
    pub fn throttle(&self, host: usize, to: usize, rate: &str) -> Result<(), String> {
        let words = ["netns", "exec", &self.names[host], "tc", "qdisc", "add", "dev", &cable_to(to), "root"];
        ip(&[&words[..], &["tbf", "rate", rate, "burst", "16kb", "latency", "50ms"]].concat())
    }

    /// From now on packets between two hosts are lost, and nobody is told.
    ///
    /// # Panics
    ///
    /// If that cannot be done.
    pub fn cut_between(&self, one: usize, other: usize) {
        for (host, to) in [(one, other), (other, one)] {
            // Sent to a card that neither of them has.
            let (name, to, end, nobody) =
                (&self.names[host], self.address(to).to_string(), cable_to(to), "02:00:00:00:00:00");
            let words = ["neighbour", "replace", &to, "lladdr", nobody, "dev", &end, "nud", "permanent"];
            ip(&[&["-n", name], &words[..]].concat()).expect("to cut the cable");
        }
    }
}

impl TwoHosts {
    /// Makes the hosts, 0 and 1.
    ///
    /// # Errors
    ///
    /// As [`Hosts::new`].
    pub fn new() -> Result<Self, String> {
        Hosts::new(2).map(TwoHosts)
    }

    /// From now on packets between the hosts are lost, and nobody is told.
    ///
    /// # Panics
    ///
    /// If that cannot be done.
    pub fn cut(&self) {
        self.cut_between(0, 1);
    }
}

impl Deref for TwoHosts {
    type Target = Hosts;

    fn deref(&self) -> &Hosts {
        &self.0
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            // One that was never made cannot be removed.
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

/// The name of a host's end of the cable to another one.
fn cable_to(host: usize) -> String {
    format!("cable{host}")
}

fn ip(words: &[&str]) -> Result<(), String> {
    let told = || format!("ip {}", words.join(" "));
    let ended = Command::new("ip").args(words).output().map_err(|cause| format!("{}: {cause}", told()))?;
    match ended.status.success() {
        true => Ok(()),
        false => Err(format!("{}: {}", told(), String::from_utf8_lossy(&ended.stderr).trim())),
    }
}
