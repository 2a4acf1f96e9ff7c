//! Injects faults into a run.

use std::fs;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, kill_process, pidfd_getfd, pidfd_open};
use serde::Serialize;

use super::launchers::Launchers;
use super::plan::{Fault, Injection, Victim};
use super::workers::living_workers;
use kolo_train::unix_seconds;

/// How long an injection waits for a replacement of a lost worker, or until a worker is connected. A stopped
/// worker is not counted as lost at once.
const REPLACED: Duration = Duration::from_secs(30);

/// An injection that was due, and whether it was made.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Injected {
    #[serde(flatten)]
    pub(super) hit: Injection,
    pub(super) pid: Option<i32>,
    /// When the fault was injected, in seconds since 1970.
    pub(super) unix: f64,
    /// Why the fault was not injected.
    pub(super) missed: Option<String>,
    /// Seconds from the fault until the next step was done.
    pub(super) recovery_seconds: Option<f64>,
}

/// The run into which faults are injected.
pub(super) struct Target<'a> {
    pub(super) launchers: &'a mut Launchers,
    /// The workers that were there at the beginning.
    pub(super) originals: &'a [i32],
    pub(super) folder: &'a Path,
    /// A folder that is away when the run ends is lost, as it should be: it comes back before.
    pub(super) longest_away: Duration,
}

impl Target<'_> {
    /// Injects a fault; the run has the time until then.
    pub(super) fn inject(&mut self, hit: &Injection, until: Instant) -> Injected {
        let pid = self.victim(hit.victim, until);
        let unix = unix_seconds(SystemTime::now());
        let result = match (hit.fault, pid) {
            (fault, _) if let Victim::Launcher(node) = hit.victim => {
                self.launchers.strike(fault, node).map_err(|e| e.to_string())
            }
            (Fault::Etcd(ms), _) => match &mut self.launchers.etcd {
                Some(etcd) => etcd.restart(Duration::from_millis(ms)).map_err(|e| e.to_string()),
                None => Err("there is none".into()),
            },
            (Fault::Folder(ms), _) => {
                let time = Duration::from_millis(ms).min(self.longest_away);
                away(self.folder, time).map_err(|e| e.to_string())
            }
            (_, None) => Err("nobody was there".into()),
            (fault, Some(pid)) => strike(fault, pid).map_err(|e| e.to_string()),
        };
        Injected { hit: hit.clone(), pid, unix, missed: result.err(), recovery_seconds: None }
    }

    fn victim(&mut self, victim: Victim, until: Instant) -> Option<i32> {
        let pids = self.launchers.pids();
        let workers = || pids.iter().flat_map(|launcher| living_workers(*launcher)).collect::<Vec<i32>>();
        match victim {
            Victim::All | Victim::Launcher(_) => None,
            Victim::First => workers().first().copied(),
            Victim::Other(number) => {
                let others = workers();
                let others = others.get(1..).filter(|others| !others.is_empty())?;
                Some(others[number % others.len()])
            }
            Victim::Replacement => {
                let until = until.min(Instant::now() + REPLACED);
                while Instant::now() < until
                    && self.launchers.wait(Duration::ZERO).is_ok_and(|it| it.is_none())
                {
                    if let Some(pid) = workers().into_iter().rfind(|pid| !self.originals.contains(pid)) {
                        return Some(pid);
                    }
                    sleep(Duration::from_millis(2));
                }
                None
            }
        }
    }
}

pub(super) fn strike(fault: Fault, pid: i32) -> io::Result<()> {
    // A launcher does not reap its workers before the job is over, so the number is nobody else's.
    let process = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
    match fault {
        Fault::Kill => kill_process(process, Signal::KILL)?,
        Fault::Stop => kill_process(process, Signal::STOP)?,
        Fault::Leave => kill_process(process, Signal::TERM)?,
        Fault::Pause(ms) => {
            kill_process(process, Signal::STOP)?;
            sleep(Duration::from_millis(ms));
            kill_process(process, Signal::CONT)?;
        }
        Fault::Cut(bits) => {
            let until = Instant::now() + REPLACED;
            while !cut(process, bits)? {
                if Instant::now() >= until {
                    return Err(io::Error::other("it had no connection"));
                }
                sleep(Duration::from_millis(2));
            }
        }
        Fault::Folder(_) | Fault::Etcd(_) => {}
    }
    Ok(())
}

/// Shuts connections of another process, through copies of its file descriptors, which the kernel gives to
/// processes that may trace it. Returns false if the process has no connection.
fn cut(process: Pid, bits: u8) -> io::Result<bool> {
    let pidfd = pidfd_open(process, PidfdFlags::empty())?;
    let mut connections = Vec::new();
    for entry in fs::read_dir(format!("/proc/{}/fd", process.as_raw_nonzero()))? {
        let entry = entry?;
        let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if !fs::read_link(entry.path()).is_ok_and(|link| link.to_string_lossy().starts_with("socket:")) {
            continue;
        }
        let stream = match pidfd_getfd(&pidfd, number, PidfdGetfdFlags::empty()) {
            Ok(copy) => TcpStream::from(copy),
            // The process has closed this descriptor meanwhile.
            Err(rustix::io::Errno::BADF) => continue,
            Err(error) => return Err(error.into()),
        };
        if stream.peer_addr().is_ok() {
            connections.push(stream);
        }
    }
    let chosen = |number: usize| bits >> (number % 8) & 1 == 1;
    let none = !(0..connections.len()).any(chosen);
    for (number, stream) in connections.iter().enumerate() {
        if chosen(number) || none && number == 0 {
            // The other side may have been quicker.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
    Ok(!connections.is_empty())
}

/// Moves the run folder away for `time`, as if its disk were not mounted.
fn away(folder: &Path, time: Duration) -> io::Result<()> {
    let elsewhere = folder.with_extension("away");
    fs::rename(folder, &elsewhere)?;
    sleep(time);
    fs::rename(&elsewhere, folder)
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;
    use std::os::fd::OwnedFd;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_workers_connection_is_cut() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let theirs = OwnedFd::from(listener.accept().unwrap().0);
        let mut child = Command::new("sleep").arg("60").stdin(theirs).spawn().unwrap();
        let result = cut(Pid::from_child(&child), 0);
        // Some containers forbid copying descriptors; then `cut` must return an error.
        if result.is_ok_and(|found| found) {
            assert_eq!(ours.read(&mut [0]).unwrap(), 0);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(cut(Pid::from_child(&child), 0).is_err(), "nobody is there any more");
    }

    #[test]
    fn a_folder_comes_back() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("run");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("a"), "b").unwrap();
        away(&folder, Duration::ZERO).unwrap();
        assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), "b");
        assert!(away(&place.path().join("none"), Duration::ZERO).is_err());
    }
}
