//! The rules by which generations follow one another, tried in every order of events that a few workers and
//! launchers can have.
//!
//! Stateright explores them (stateright.rs). The code under test is the code that runs: [`History`],
//! [`Lineage`] and the arbiters' decisions are the crate's own. Around them any event may happen at any
//! time. Any launcher with members believes that it leads. Members go from one leader to another while the
//! first still counts on them; they enter a generation or not, see it formed or not, make steps, leave and
//! die. Launchers die with all they know, and learn of the generations and dead members of others, or not.
//! Such orders cover loss, delay and reordering of messages, network cuts of any shape, stopped processes
//! and crashes.

mod actions;
mod checks;
mod state;

use state::Actor;

/// The rule by which generations are granted: an arbiter's rule, or that rule without one of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Majority,
    /// Generations that members have entered and not seen formed are ignored.
    MajorityOfFormed,
    /// Any half of the members is enough.
    Half,
    /// Members of an unreachable launcher count as dead.
    MajorityOfReachable,
    /// The first leader to ask that has a member which has been in the last granted generation.
    Recorded,
    /// The first leader to ask that believes that a member of the last generation waits.
    RecordedOfWaiting,
    /// The first leader to ask for what it takes for the next number, as in elections without an arbiter.
    OwnNumber,
    /// No arbiter, as in earlier versions: every launcher that believes to lead does.
    NoArbiter,
}

#[derive(Clone, Copy, Debug)]
struct Job {
    rule: Rule,
    /// The launcher of each worker.
    nodes: &'static [Actor],
    launchers: usize,
    /// Maximum number of granted generations.
    generations: usize,
    steps: u8,
    /// Maximum number of deaths of workers and launchers.
    deaths: u8,
}
