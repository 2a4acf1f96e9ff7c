//! Launchers and workers of a job, with the code that they run, on hosts that fail.
//!
//! What may happen: connections deliver their messages in order, at any speed, or break with what is on its
//! way; links between hosts are cut and mended; launchers are stopped and continued, crash with their hosts,
//! and new ones come, or start no more workers; workers hang or die, also with an arrival on its way, and are
//! started again; answers to probes and of the arbiter are lost; time passes. Faults are counted, so that
//! there is an end to them.

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

/// By what generations are granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Majority,
    /// An arbiter that remembers: a folder, or etcd.
    Recorded,
    /// Nobody is asked: a launcher that believes to lead does. As before there were arbiters.
    Anybody,
}

/// A part of the protocol, by what is lost of it: nothing of it may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Workers do not tell which generations they have been in.
    Histories,
    /// Launchers do not tell each other that some worker holds the state.
    HeldState,
    /// Workers are not asked to leave their generation.
    Regroup,
    /// A launcher does not come back to a leader that lives.
    ComingBack,
    /// A worker that has ended is not known to have.
    Ends,
}

/// What is explored.
#[derive(Clone, Copy, Debug)]
struct Job {
    rule: Rule,
    /// The launcher of each worker.
    nodes: &'static [Actor],
    /// Launchers that are there from the beginning; the others may come later.
    first: usize,
    /// Workers with which the job goes on at least.
    min_members: usize,
    /// At most so many faults.
    faults: u8,
    /// The only faults are connections that break: they must cost no worker.
    breaks_only: bool,
    /// Workers hang and launchers are closed as well. Of workers that all hang while others wait to join them
    /// nobody knows, so this is for a single fault, or a chosen row of them.
    hangs: bool,
    /// What of the protocol does not work.
    without: Option<Part>,
    /// At most so many steps are made.
    steps: u8,
    /// Time passes at most so often before faults end.
    ticks: u8,
}

/// Each time it passes, so much.
const PASSES: Duration = Duration::from_secs(4);

const POLICY: MembershipPolicy = MembershipPolicy {
    min_members: 1,
    start_timeout: Duration::from_secs(60),
    rejoin_timeout: Duration::from_secs(20),
    too_few_timeout: Duration::from_secs(60),
};
