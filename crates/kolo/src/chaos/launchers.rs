//! The launchers of a run: one, or one for each node, and the etcd that they ask who goes on.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::running::Running;
use kolo::Failure;

use super::plan::Fault;
use super::strike::strike;

/// Time between two looks at whether a run has ended.
const LOOK: Duration = Duration::from_millis(10);

/// The launchers of a run, killed with their workers when this is dropped.
pub(super) struct Launchers {
    nodes: Vec<Node>,
    pub(super) etcd: Option<Etcd>,
}

struct Node {
    launcher: Running,
    /// A fault has ended it, or stopped it for good.
    gone: bool,
}

/// How a run has ended.
pub(super) enum Ended {
    Well,
    /// The launcher of this node has failed.
    Failed(usize, ExitStatus),
}

impl Launchers {
    /// The launchers that have been started, one for each node.
    pub(super) fn new(launchers: Vec<Running>, etcd: Option<Etcd>) -> Launchers {
        let node = |launcher| Node { launcher, gone: false };
        Launchers { nodes: launchers.into_iter().map(node).collect(), etcd }
    }

    /// The process ids of those that are not gone.
    pub(super) fn pids(&self) -> Vec<u32> {
        let there = self.nodes.iter().filter(|node| !node.gone);
        there.map(|node| node.launcher.0.id()).collect()
    }

    /// Waits for the end of all that are not gone, at most for `limit`.
    pub(super) fn wait(&mut self, limit: Duration) -> Result<Option<Ended>, Failure> {
        let until = Instant::now() + limit;
        loop {
            match self.ended()? {
                None if Instant::now() < until => std::thread::sleep(LOOK),
                ended => return Ok(ended),
            }
        }
    }

    fn ended(&mut self) -> Result<Option<Ended>, Failure> {
        let mut ended = Ended::Well;
        for (number, node) in self.nodes.iter_mut().enumerate().filter(|(_, node)| !node.gone) {
            match node.launcher.wait(Duration::ZERO)? {
                None => return Ok(None),
                Some(status) if status.success() => {}
                Some(status) => ended = Ended::Failed(number, status),
            }
        }
        Ok(Some(ended))
    }

    /// Strikes the launcher of a node.
    pub(super) fn strike(&mut self, fault: Fault, node: usize) -> std::io::Result<()> {
        let node = &mut self.nodes[node];
        if node.gone {
            return Err(std::io::Error::other("it was gone"));
        }
        node.gone = matches!(fault, Fault::Kill | Fault::Stop);
        let pid = node.launcher.0.id() as i32;
        strike(fault, pid)
    }
}

/// An etcd of one member, killed when it is dropped.
pub(super) struct Etcd {
    process: Child,
    folder: PathBuf,
    ports: [u16; 2],
}

impl Etcd {
    /// Starts an etcd whose data are in this folder.
    pub(super) fn start(folder: &Path) -> Result<Etcd, Failure> {
        let ports = [free_port()?, free_port()?];
        let process = Self::spawn(folder, ports).map_err(|cause| {
            let install = "install it (Debian: apt-get install etcd-server), or give --arbiter folder";
            Failure::work(format!("cannot start `etcd`: {cause}; {install}"))
        })?;
        Ok(Etcd { process, folder: folder.into(), ports })
    }

    fn spawn(folder: &Path, ports: [u16; 2]) -> std::io::Result<Child> {
        let [clients, peers] = ports.map(|port| format!("http://127.0.0.1:{port}"));
        let log = File::create(folder.with_extension("log"))?;
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(folder);
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("default={peers}")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()
    }

    /// The arbiter, as it is written on the command line.
    pub(super) fn arbiter(&self) -> String {
        format!("etcd://127.0.0.1:{}", self.ports[0])
    }

    /// Kills it, and starts it again after `time`.
    pub(super) fn restart(&mut self, time: Duration) -> std::io::Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        std::thread::sleep(time);
        self.process = Self::spawn(&self.folder, self.ports)?;
        Ok(())
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // Both calls fail if it has ended already; its data are of no use any more.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A port of loopback that nobody listens at.
pub(super) fn free_port() -> Result<u16, Failure> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    free.map(|address| address.port()).map_err(|cause| Failure::work(format!("no port is free: {cause}")))
}
