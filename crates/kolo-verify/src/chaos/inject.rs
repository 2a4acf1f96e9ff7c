//! Injects faults into a run.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

use kolo_run_folder::unix_seconds;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use super::aimed::aim_at;
use super::disk::SmallDisk;
use super::fault::{Fault, Injection, Victim};
use super::hosts::Hosts;
use super::launchers::Launchers;
use super::record::Recovery;
use super::strike::strike;
use super::workers::living_workers;

/// Time that an injection waits for a replacement of a lost worker, or for the job's recovery. The launcher
/// does not notice a stopped worker at once.
pub(super) const REPLACED: Duration = Duration::from_secs(30);

/// A planned injection, and its outcome.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Injected {
    #[serde(flatten)]
    pub(super) hit: Injection,
    pub(super) pid: Option<i32>,
    /// Time of the injection, in seconds since 1970.
    pub(super) unix: f64,
    /// Reason that the fault was not injected.
    pub(super) missed: Option<String>,
    /// End of a fault that ended a generation, if it is known.
    pub(super) recovery: Option<Recovery>,
}

/// The run into which faults are injected.
pub(super) struct Target<'a> {
    pub(super) launchers: &'a mut Launchers,
    /// The workers at the beginning of the run.
    pub(super) originals: &'a [i32],
    pub(super) folder: &'a Path,
    /// File of the job's program.
    pub(super) program: &'a Path,
    /// Folder with the moments at which workers die.
    pub(super) aims: &'a Path,
    pub(super) disk: Option<&'a mut SmallDisk>,
    pub(super) hosts: Option<&'a mut Hosts>,
    /// Longest absence of the run folder: it returns before the run ends, which would rightly lose it.
    pub(super) longest_away: Duration,
}

impl Target<'_> {
    /// Injects a fault; the run's time limit ends at `until`.
    pub(super) fn inject(&mut self, hit: &Injection, until: Instant) -> Injected {
        let pid = self.victim(hit.victim, until);
        let unix = unix_seconds(SystemTime::now());
        let result = match (hit.fault, pid) {
            (Fault::Link { how, ms }, _) if let Victim::Host(node) = hit.victim => match &mut self.hosts {
                Some(hosts) => hosts.cut(node, how, ms.map(Duration::from_millis)).map_err(|e| e.to_string()),
                None => Err("there is none".into()),
            },
            (fault, _) if let Victim::Launcher(node) = hit.victim => {
                self.launchers.strike(fault, node).map_err(|e| e.to_string())
            }
            (Fault::StopAll(ms), _) => self.stop_all(Duration::from_millis(ms)).map_err(|e| e.to_string()),
            (Fault::Output, _) => {
                self.launchers.close_output();
                Ok(())
            }
            (Fault::Program, _) => replace(self.program).map_err(|e| e.to_string()),
            (Fault::Etcd(ms), _) => match &mut self.launchers.etcd {
                Some(etcd) => etcd.restart(Duration::from_millis(ms)).map_err(|e| e.to_string()),
                None => Err("there is none".into()),
            },
            (Fault::Folder(ms), _) => {
                let time = Duration::from_millis(ms).min(self.longest_away);
                away(self.folder, time).map_err(|e| e.to_string())
            }
            (Fault::DiskFull(ms), _) => match &mut self.disk {
                Some(disk) => disk.fill(Duration::from_millis(ms)).map_err(|e| e.to_string()),
                None => Err("there is none".into()),
            },
            (_, None) => Err("nobody was there".into()),
            (Fault::KillInUpdate(aim, second), Some(pid)) => {
                let other = self.workers().into_iter().find(|other| *other != pid);
                aim_at(self.aims, (pid, aim), other.zip(second), until).map_err(|e| e.to_string())
            }
            (fault, Some(pid)) => strike(fault, pid).map_err(|e| e.to_string()),
        };
        Injected { hit: hit.clone(), pid, unix, missed: result.err(), recovery: None }
    }

    /// Stops all workers, and continues them after `time`.
    fn stop_all(&self, time: Duration) -> io::Result<()> {
        let workers: Vec<Pid> = self.workers().into_iter().filter_map(Pid::from_raw).collect();
        // Another fault may have ended a worker meanwhile.
        let stopped: Vec<Pid> =
            workers.into_iter().filter(|worker| kill_process(*worker, Signal::STOP).is_ok()).collect();
        if stopped.is_empty() {
            return Err(io::Error::other("nobody was there"));
        }
        sleep(time);
        for worker in stopped {
            let _ = kill_process(worker, Signal::CONT);
        }
        Ok(())
    }

    fn workers(&self) -> Vec<i32> {
        self.launchers.pids().into_iter().flat_map(living_workers).collect()
    }

    fn victim(&mut self, victim: Victim, until: Instant) -> Option<i32> {
        let pids = self.launchers.pids();
        let workers = || pids.iter().flat_map(|launcher| living_workers(*launcher)).collect::<Vec<i32>>();
        match victim {
            Victim::All | Victim::Launcher(_) | Victim::Host(_) => None,
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

/// Replaces the file of a running program, as a build does.
fn replace(program: &Path) -> io::Result<()> {
    let other = program.with_extension("other");
    fs::write(&other, "#!/bin/sh\nexit 9\n")?;
    fs::set_permissions(&other, fs::Permissions::from_mode(0o755))?;
    fs::rename(other, program)
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
    use super::*;

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
