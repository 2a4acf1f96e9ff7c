//! A host for each node, as network namespaces around a switch. A link between a host and the switch can be
//! cut: packets are lost without an error.

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::{Child, Command};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use kolo_program::Failure;
use kolo_program::output::warn;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::Serialize;

use super::mounts::command;

/// Folder in which iproute2 keeps the names of namespaces.
const NAMES: &str = "/run/netns";
/// Name of the host that has the switch.
const HUB: &str = "hub";
const SWITCH: &str = "switch";

/// Ways to cut a link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LinkCut {
    /// The switch drops all packets; the host does not notice.
    PacketsLost,
    /// The cable is out: the host's interface has no carrier.
    Down,
}

impl LinkCut {
    pub(super) fn name(self) -> &'static str {
        match self {
            LinkCut::PacketsLost => "packets lost",
            LinkCut::Down => "link down",
        }
    }

    /// Cuts or restores a link, with `bridge` or `ip`.
    fn set(self, link: &str, is_cut: bool) -> Result<(), String> {
        match (self, is_cut) {
            // Numbers of port states in `man 8 bridge`: 0 is disabled, 3 is forwarding.
            (LinkCut::PacketsLost, true) => bridge(&["link", "set", "dev", link, "state", "0"]),
            (LinkCut::PacketsLost, false) => bridge(&["link", "set", "dev", link, "state", "3"]),
            (LinkCut::Down, true) => ip(HUB, &["link", "set", link, "down"]),
            (LinkCut::Down, false) => ip(HUB, &["link", "set", link, "up"]),
        }
    }
}

/// Hosts, removed on drop.
pub(super) struct Hosts {
    count: usize,
    /// Threads that restore links; they end early when their channels close.
    mending: Vec<(Sender<()>, JoinHandle<()>)>,
}

/// The host of a node, or the one with the switch, which all others reach.
#[derive(Clone, Debug)]
pub(super) struct Host {
    namespace: String,
    pub(super) address: Ipv4Addr,
}

/// Makes the names of namespaces private, in [private mounts](super::mounts::own_mounts). Errors: mounting is
/// not permitted.
pub(super) fn own_names() -> Result<(), Failure> {
    let made = fs::create_dir_all(NAMES).map_err(|e| format!("{NAMES}: {e}"));
    let mounted = made.and_then(|()| command("mount", &["-t", "tmpfs", "kolo-chaos", NAMES]));
    mounted.map_err(|cause| Failure::work(format!("cannot make hosts for nodes: {cause}")))
}

impl Hosts {
    /// Makes `count` hosts and the switch. Errors: the process is not root, or iproute2 is missing.
    pub(super) fn new(count: usize) -> Result<Hosts, Failure> {
        // From here on, dropping `hosts` removes all that was made.
        let hosts = Hosts { count, mending: Vec::new() };
        hosts.make().map_err(|cause| {
            Failure::work(format!("cannot make hosts for nodes, which takes root and iproute2: {cause}"))
        })?;
        Ok(hosts)
    }

    fn make(&self) -> Result<(), String> {
        command("ip", &["netns", "add", HUB])?;
        ip(HUB, &["link", "add", SWITCH, "type", "bridge"])?;
        ip(HUB, &["link", "set", SWITCH, "up"])?;
        add_address(&self.hub(), SWITCH)?;
        for node in 0..self.count {
            let (host, link) = (self.host(node), link(node));
            command("ip", &["netns", "add", &host.namespace])?;
            let peer = ["type", "veth", "peer", "name", "eth0", "netns", &host.namespace];
            ip(HUB, &[&["link", "add", &link], &peer[..]].concat())?;
            ip(HUB, &["link", "set", &link, "master", SWITCH, "up"])?;
            add_address(&host, "eth0")?;
        }
        Ok(())
    }

    /// Returns the host of a node.
    pub(super) fn host(&self, node: usize) -> Host {
        Host { namespace: format!("node{node}"), address: Ipv4Addr::new(10, 79, 0, 1 + node as u8) }
    }

    /// Returns the host with the switch.
    pub(super) fn hub(&self) -> Host {
        Host { namespace: HUB.into(), address: Ipv4Addr::new(10, 79, 0, 254) }
    }

    /// Cuts a node's link, and restores it after `time` if given, without waiting for that.
    pub(super) fn cut(&mut self, node: usize, how: LinkCut, time: Option<Duration>) -> io::Result<()> {
        let link = link(node);
        how.set(&link, true).map_err(io::Error::other)?;
        let Some(time) = time else { return Ok(()) };
        let (end, ended) = channel();
        let mend = move || {
            if ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout)
                && let Err(cause) = how.set(&link, false)
            {
                warn(&format!("a link stays cut: {cause}"));
            }
        };
        self.mending.push((end, std::thread::Builder::new().name("kolo-chaos-link".into()).spawn(mend)?));
        Ok(())
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for (end, thread) in self.mending.drain(..) {
            drop(end);
            // A panic has been reported.
            let _ = thread.join();
        }
        let names = (0..self.count).map(|node| self.host(node).namespace);
        for name in names.chain([HUB.to_owned()]) {
            // Fails for namespaces that were never made.
            let _ = command("ip", &["netns", "delete", &name]);
        }
    }
}

impl Host {
    /// Starts a program on the host from the calling thread, so that it can [die with its
    /// parent](kolo_launch::die_with_parent).
    pub(super) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let own = File::open("/proc/thread-self/ns/net")?;
        let there = File::open(format!("{NAMES}/{}", self.namespace))?;
        let enter = |host: &File| move_into_link_name_space(host.as_fd(), Some(LinkNameSpaceType::Network));
        enter(&there)?;
        let child = command.spawn();
        enter(&own)?;
        child
    }
}

/// Returns the name of the switch's end of a node's link.
fn link(node: usize) -> String {
    format!("link{node}")
}

fn add_address(host: &Host, interface: &str) -> Result<(), String> {
    let address = format!("{}/24", host.address);
    ip(&host.namespace, &["address", "add", &address, "dev", interface])?;
    ip(&host.namespace, &["link", "set", interface, "up"])?;
    ip(&host.namespace, &["link", "set", "lo", "up"])
}

fn ip(namespace: &str, words: &[&str]) -> Result<(), String> {
    command("ip", &[&["-n", namespace], words].concat())
}

fn bridge(words: &[&str]) -> Result<(), String> {
    command("bridge", &[&["-n", HUB], words].concat())
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;
    use crate::chaos::mounts::own_mounts;

    /// Sends a packet from one host to another one's port. Returns true if it arrives within a second.
    fn reaches(from: &Host, to: &Host) -> bool {
        let receive = format!(
            "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('{}', 7000)); \
             print(flush=True); s.settimeout(1); s.recv(9)",
            to.address
        );
        let send = format!(
            "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.sendto(b'x', ('{}', 7000))",
            to.address
        );
        let python = |code: &str| {
            let mut command = Command::new("python3");
            command.args(["-c", code]).stdout(Stdio::piped()).stderr(Stdio::null());
            command
        };
        let mut receiver = to.spawn(&mut python(&receive)).unwrap();
        let mut bound = [0];
        std::io::Read::read_exact(receiver.stdout.as_mut().unwrap(), &mut bound).unwrap();
        assert!(from.spawn(&mut python(&send)).unwrap().wait().unwrap().success());
        receiver.wait().unwrap().success()
    }

    /// Runs in a thread of its own, so that the other tests keep their mounts.
    #[test]
    fn what_is_sent_over_a_cut_link_is_lost() {
        let seen = std::thread::spawn(|| {
            own_mounts("--cut-links").and_then(|()| own_names()).map_err(|refused| refused.to_string())?;
            let mut hosts = Hosts::new(2).unwrap();
            let (first, second) = (hosts.host(0), hosts.host(1));
            let mut seen = vec![reaches(&first, &second)];
            for how in [LinkCut::PacketsLost, LinkCut::Down] {
                hosts.cut(1, how, Some(Duration::from_secs(3600))).unwrap();
                seen.push(reaches(&first, &second));
                how.set(&link(1), false).unwrap();
                seen.push((0..20).any(|_| reaches(&first, &second)));
            }
            seen.push(reaches(&hosts.hub(), &first));
            drop(hosts);
            seen.push(fs::read_dir(NAMES).unwrap().count() > 0);
            Ok::<_, String>(seen)
        });
        match seen.join().unwrap() {
            Ok(seen) => assert_eq!(seen, [true, false, true, false, true, true, false]),
            Err(refused) => assert!(refused.contains("root"), "{refused}"),
        }
    }
}
