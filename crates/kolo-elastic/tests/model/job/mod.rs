//! Launchers and workers of a job, with their production code, on hosts that fail.
//!
//! Connections deliver their messages in order, at any speed, or break and lose messages on their way. Links
//! between hosts are cut and repaired. Launchers stop and continue, crash with their hosts, join late, or
//! start no more workers. Workers cannot begin, hang or die, possibly with an arrival on its way, and are
//! started again. Answers to probes and of the arbiter are lost. Time passes. The number of faults is
//! limited, so that they end.

mod actions;
mod checks;
mod connections;
mod launchers;
mod settle;
mod state;
mod workers;

use std::time::Duration;

use crate::protocol::MembershipPolicy;

/// A launcher or a worker, by its number.
type Actor = usize;

/// The rule by which generations are granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Majority,
    /// An arbiter with a memory: a folder, or etcd.
    Recorded,
    /// No arbiter, as in earlier versions: every launcher that believes to lead does.
    NoArbiter,
}

/// A part of the protocol that a test disables, to show that it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Workers do not report the generations that they have been in.
    Histories,
    /// Launchers do not report to each other that some worker holds the state.
    HeldState,
    /// Workers are not asked to leave their generation.
    Regroup,
    /// A launcher does not reconnect to a leader that lives.
    ComingBack,
    /// A launcher forgets that a worker has ended.
    Ends,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    rule: Rule,
    /// The launcher of each worker.
    nodes: &'static [Actor],
    /// Number of launchers present from the beginning; the others may join later.
    first: usize,
    /// True if the workers have made a step before any fault, so that they hold the state. Otherwise they may
    /// also find that they cannot begin.
    has_begun: bool,
    /// Minimum number of workers with which the job goes on.
    min_members: usize,
    faults: u8,
    /// True if the only faults are breaking connections: they must cost no worker.
    breaks_only: bool,
    /// True if workers may hang and launchers may close as well. Nothing reveals workers that all hang while
    /// others wait to join them, so this is for a single fault, or a chosen sequence of faults.
    hangs: bool,
    /// The part of the protocol that is disabled.
    without: Option<Part>,
    steps: u8,
    /// Maximum number of times that time passes before faults end.
    ticks: u8,
}

const PASSES: Duration = Duration::from_secs(4);

const POLICY: MembershipPolicy = MembershipPolicy {
    min_members: 1,
    start_timeout: Duration::from_secs(60),
    rejoin_timeout: Duration::from_secs(20),
    too_few_timeout: Duration::from_secs(60),
};
