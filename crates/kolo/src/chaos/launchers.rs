//! The launchers of a run: one, or one for each node, and the etcd that they ask who goes on.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::running::{Running, last_error};
use kolo::Failure;

use super::etcd::Etcd;
use super::log_pipe::LogPipe;
use super::plan::Fault;
use super::strike::strike;

/// Time between two looks at whether a run has ended.
const LOOK: Duration = Duration::from_millis(10);

/// The launchers of a run, killed with their workers when this is dropped.
pub(super) struct Launchers {
    nodes: Vec<Node>,
    pub(super) etcd: Option<Etcd>,
    /// Set when the user wants no more.
    interrupted: Arc<AtomicBool>,
}

struct Node {
    launcher: Running,
    output: LogPipe,
    /// A fault has ended it, or stopped it for good.
    gone: bool,
}

/// What a launcher says that the arbiter has let go on no further.
const PARTED: &str = "others of the job go on or may";

/// How the launchers have ended that were not gone, each with the number of its node.
pub(super) struct Ended(Vec<(usize, ExitStatus)>);

impl Ended {
    /// Whether the only launcher has ended with this code.
    pub(super) fn is(&self, code: i32) -> bool {
        matches!(self.0[..], [(_, status)] if status.code() == Some(code))
    }

    /// What has gone wrong, in words of a launcher's log. Where a cut network `is_parted` a part may end that
    /// says why, if another one ends well.
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
    /// The launchers that have been started, one for each node.
    pub(super) fn new(
        launchers: Vec<(Running, LogPipe)>,
        etcd: Option<Etcd>,
        interrupted: Arc<AtomicBool>,
    ) -> Launchers {
        let node = |(launcher, output)| Node { launcher, output, gone: false };
        Launchers { nodes: launchers.into_iter().map(node).collect(), etcd, interrupted }
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

    /// From now on nobody reads what the launchers and their workers print.
    pub(super) fn close_output(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.output.close());
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
