//! The launchers of a run, one for each node, and the etcd that decides which of them continue.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kolo_program::Failure;

use super::etcd::Etcd;
use super::fault::Fault;
use super::log_pipe::LogPipe;
use super::strike::strike;
use crate::running::{LOOK, Running, last_error};

/// The launchers of a run, killed with their workers on drop.
pub(super) struct Launchers {
    nodes: Vec<Node>,
    pub(super) etcd: Option<Etcd>,
    /// True after the user interrupted the command.
    interrupted: Arc<AtomicBool>,
}

struct Node {
    launcher: Running,
    output: LogPipe,
    /// True after a fault ended the launcher, or stopped it for good.
    gone: bool,
}

/// Message of a launcher that the arbiter stopped.
const PARTED: &str = "others of the job continue or may";

/// Exit statuses of the launchers that were not gone, each with the number of its node.
pub(super) struct Ended(Vec<(usize, ExitStatus)>);

impl Ended {
    /// True if the only launcher has ended with this code.
    pub(super) fn is(&self, code: i32) -> bool {
        matches!(self.0[..], [(_, status)] if status.code() == Some(code))
    }

    /// Returns the error of the last launcher that failed, from its log. If a cut network `is_parted`, a
    /// launcher may fail with [`PARTED`] if another one succeeds.
    pub(super) fn failure(&self, log: impl Fn(usize) -> PathBuf, is_parted: bool) -> Option<String> {
        let has_won = self.0.iter().any(|(_, status)| status.success());
        let said = |node| std::fs::read(log(node)).unwrap_or_default();
        let is_meant = |node| is_parted && has_won && String::from_utf8_lossy(&said(node)).contains(PARTED);
        let failed = |(node, status): &&(usize, ExitStatus)| !status.success() && !is_meant(*node);
        let (node, status) = self.0.iter().rfind(failed)?;
        Some(format!("{status}{}", last_error(&log(*node))))
    }
}

impl Launchers {
    /// Collects the started launchers, one for each node.
    pub(super) fn new(
        launchers: Vec<(Running, LogPipe)>,
        etcd: Option<Etcd>,
        interrupted: Arc<AtomicBool>,
    ) -> Launchers {
        let node = |(launcher, output)| Node { launcher, output, gone: false };
        Launchers { nodes: launchers.into_iter().map(node).collect(), etcd, interrupted }
    }

    /// Returns the process ids of the launchers that are not gone.
    pub(super) fn pids(&self) -> Vec<u32> {
        let there = self.nodes.iter().filter(|node| !node.gone);
        there.map(|node| node.launcher.0.id()).collect()
    }

    /// Waits at most `limit` for the end of all launchers that are not gone.
    pub(super) fn wait(&mut self, limit: Duration) -> Result<Option<Ended>, Failure> {
        let until = Instant::now() + limit;
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(Failure::terminated("interrupted; nothing of the run that went on is kept"));
            }
            match self.ended()? {
                None if Instant::now() < until => std::thread::sleep(LOOK),
                ended => return Ok(ended),
            }
        }
    }

    fn ended(&mut self) -> Result<Option<Ended>, Failure> {
        let mut ended = Vec::new();
        for (number, node) in self.nodes.iter_mut().enumerate().filter(|(_, node)| !node.gone) {
            match node.launcher.wait(Duration::ZERO)? {
                None => return Ok(None),
                Some(status) => {
                    node.output.finish();
                    ended.push((number, status));
                }
            }
        }
        Ok(Some(Ended(ended)))
    }

    /// Stops reading the output of the launchers and their workers.
    pub(super) fn close_output(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.output.close());
    }

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
