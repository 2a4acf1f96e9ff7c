//! The etcd that decides which launchers of a run continue.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kolo_launch::die_with_parent;
use kolo_program::Failure;

use super::hosts::Host;
use super::port::free_port;

/// An etcd of one member, killed on drop.
pub(super) struct Etcd {
    process: Child,
    folder: PathBuf,
    /// Host of the etcd, if it is not this machine.
    host: Option<Host>,
    ports: [u16; 2],
}

impl Etcd {
    /// Starts an etcd with its data in this folder, on a host or on loopback.
    pub(super) fn start(folder: &Path, host: Option<Host>) -> Result<Etcd, Failure> {
        let ports = [free_port()?, free_port()?];
        let process = Self::spawn(folder, host.as_ref(), ports).map_err(|cause| {
            let install = "install it (Debian: apt-get install etcd-server), or give --arbiter folder";
            Failure::work(format!("cannot start `etcd`: {cause}; {install}"))
        })?;
        Ok(Etcd { process, folder: folder.into(), host, ports })
    }

    fn spawn(folder: &Path, host: Option<&Host>, ports: [u16; 2]) -> std::io::Result<Child> {
        let [clients, peers] = ports.map(|port| format!("http://{}:{port}", address(host)));
        let log = File::create(folder.with_extension("log"))?;
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(folder);
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("default={peers}")]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        die_with_parent(&mut command);
        match host {
            Some(host) => host.spawn(&mut command),
            None => command.spawn(),
        }
    }

    /// Returns the arbiter in the syntax of `--arbiter`.
    pub(super) fn arbiter(&self) -> String {
        format!("etcd://{}:{}", address(self.host.as_ref()), self.ports[0])
    }

    /// Kills the etcd, and starts it again after `time`.
    pub(super) fn restart(&mut self, time: Duration) -> std::io::Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        std::thread::sleep(time);
        self.process = Self::spawn(&self.folder, self.host.as_ref(), self.ports)?;
        Ok(())
    }
}

fn address(host: Option<&Host>) -> Ipv4Addr {
    host.map_or(Ipv4Addr::LOCALHOST, |host| host.address)
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // Both calls fail if the etcd has ended already. Its data have no further use.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
