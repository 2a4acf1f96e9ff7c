//! Hosts with a cable between any two of them, as network namespaces, for failures that loopback cannot
//! simulate: a host that vanishes silently, and a cable that is cut.

use std::fs::File;
use std::net::Ipv4Addr;
use std::ops::Deref;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Namespaces and the cables between them; removed on drop.
#[derive(Debug)]
pub struct Hosts {
    names: Vec<String>,
}

/// Two [`Hosts`].
#[derive(Debug)]
pub struct TwoHosts(Hosts);

impl Hosts {
    /// Makes so many hosts, at most 200.
    /// Fails where the hosts cannot be made, for the reason in the text: they need iproute2 and root.
    pub fn new(count: usize) -> Result<Self, String> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |host: usize| format!("kolo-test-{}-{number}-{host}", std::process::id());
        // From here on, drop removes everything made so far.
        let hosts = Hosts { names: (0..count).map(name).collect() };
        for (host, name) in hosts.names.iter().enumerate() {
            ip(&["netns", "add", name])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            // The address belongs to the host, not to a cable, so it is the same for all other hosts.
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

    /// Returns the address of a host; hosts count from 0.
    pub fn address(&self, host: usize) -> Ipv4Addr {
        Ipv4Addr::new(10, 79, 0, 1 + host as u8)
    }

    /// Moves the calling thread to a host, with all threads that it starts from now on.
    pub fn enter(&self, host: usize) {
        let namespace = File::open(format!("/run/netns/{}", self.names[host])).expect("a namespace");
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).expect("to enter it");
    }

    /// Runs `work` on a host, in a new thread. Processes that it starts stay there.
    pub fn on<R: Send>(&self, host: usize, work: impl FnOnce() -> R + Send) -> R {
        std::thread::scope(|scope| {
            let working = scope.spawn(|| {
                self.enter(host);
                work()
            });
            working.join().expect("the work on a host succeeds")
        })
    }

    /// Limits the rate at which a host sends to another one, in bits per second, such as `20mbit`.
    /// Fails where the limit cannot be set, for the reason in the text: it needs `tc`, and a kernel with a token
    /// bucket filter.
    pub fn throttle(&self, host: usize, to: usize, rate: &str) -> Result<(), String> {
        let arguments =
            ["netns", "exec", &self.names[host], "tc", "qdisc", "add", "dev", &cable_to(to), "root"];
        ip(&[&arguments[..], &["tbf", "rate", rate, "burst", "16kb", "latency", "50ms"]].concat())
    }

    /// Drops all packets between two hosts silently from now on.
    pub fn cut_between(&self, one: usize, other: usize) {
        for (host, to) in [(one, other), (other, one)] {
            // Packets go to a MAC address that neither host has.
            let (name, to, end, unused_mac) =
                (&self.names[host], self.address(to).to_string(), cable_to(to), "02:00:00:00:00:00");
            let arguments =
                ["neighbor", "replace", &to, "lladdr", unused_mac, "dev", &end, "nud", "permanent"];
            ip(&[&["-n", name], &arguments[..]].concat()).expect("to cut the cable");
        }
    }
}

impl TwoHosts {
    /// Makes the hosts, 0 and 1.
    /// Fails like [`Hosts::new`].
    pub fn new() -> Result<Self, String> {
        Hosts::new(2).map(TwoHosts)
    }

    /// Drops all packets between the hosts silently from now on.
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
            // A host that was never made cannot be removed.
            let _ = ip(&["netns", "delete", name]);
        }
    }
}

/// Returns the name of a host's end of the cable to another one.
fn cable_to(host: usize) -> String {
    format!("cable{host}")
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let command_line = || format!("ip {}", arguments.join(" "));
    let ended = Command::new("ip")
        .args(arguments)
        .output()
        .map_err(|cause| format!("{}: {cause}", command_line()))?;
    match ended.status.success() {
        true => Ok(()),
        false => Err(format!("{}: {}", command_line(), String::from_utf8_lossy(&ended.stderr).trim())),
    }
}
