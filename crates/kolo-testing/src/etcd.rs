//! A real etcd, for tests of its clients.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::world::free_port;

/// An etcd of one member, killed on drop.
#[derive(Debug)]
pub struct Etcd {
    program: PathBuf,
    process: Child,
    folder: TempDir,
    address: Ipv4Addr,
    ports: [u16; 2],
}

impl Etcd {
    /// Starts the program `etcd` on loopback.
    pub fn start(program: &Path) -> Etcd {
        Self::start_at(program, Ipv4Addr::LOCALHOST, [(); 2].map(|()| free_port().port()))
    }

    /// Starts the program `etcd` at an address of the thread's host; ports for clients and for peers.
    pub fn start_at(program: &Path, address: Ipv4Addr, ports: [u16; 2]) -> Etcd {
        let folder = tempfile::tempdir().expect("a folder for etcd");
        let process = spawn(program, folder.path(), address, ports);
        Etcd { program: program.into(), process, folder, address, ports }
    }

    /// Returns the address for clients: `HOST:PORT`.
    pub fn endpoint(&self) -> String {
        format!("{}:{}", self.address, self.ports[0])
    }

    /// Kills etcd at once.
    pub fn kill(&mut self) {
        self.process.kill().expect("etcd runs");
        self.process.wait().expect("etcd has been killed");
    }

    /// Starts etcd again, with its old data.
    pub fn start_again(&mut self) {
        self.process = spawn(&self.program, self.folder.path(), self.address, self.ports);
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // The process may have been killed already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(program: &Path, folder: &Path, address: Ipv4Addr, ports: [u16; 2]) -> Child {
    let [clients, peers] = ports.map(|port| format!("http://{address}:{port}"));
    let mut command = Command::new(program);
    command.arg("--data-dir").arg(folder);
    command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
    command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
    command.args(["--initial-cluster", &format!("default={peers}")]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("etcd can be started")
}
