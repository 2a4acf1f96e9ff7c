//! The rules by which generations follow one another, tried in every order of events that a few workers and
//! launchers can have.
//!
//! Stateright explores it (stateright.rs). What is checked is what runs: [`History`], [`Lineage`] and the
//! arbiters' decisions are the crate's own. Around them everything may happen at any time: any launcher that
//! has members believes that it leads, members go from one leader to another while the first still counts on
//! them, are told of a generation or not, see it formed or not, make steps, leave and die; launchers die with
//! all they know, and hear of others' generations and dead, or not. Loss, delay and reordering of messages,
//! cuts of the network in any shape, stopped processes and crashes all are such orders.

mod actions;
mod checks;
mod state;

use state::Actor;

/// By what generations are granted: an arbiter's rule, or that rule with a part of it left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Majority,
    /// What members have entered and not seen formed is not asked for.
    MajorityOfFormed,
    /// Half is enough, whoever it is.
    Half,
    /// Members of a launcher that is out of reach count as dead.
    MajorityOfReachable,
    /// Who has a member that has been in the last generation that was granted, and asks first.
    Recorded,
    /// Who believes that a member of the last generation waits, and asks first.
    RecordedOfWaiting,
    /// Whoever asks first for a number that it takes for the next, as elections without an arbiter do.
    OwnNumber,
    /// The old way: whoever believes to lead does.
    Anybody,
}

/// What is explored.
#[derive(Clone, Copy, Debug)]
struct Job {
    rule: Rule,
    /// The launcher of each worker.
    nodes: &'static [Actor],
    launchers: usize,
    /// At most so many generations are granted.
    generations: usize,
    /// At most so many steps are made.
    steps: u8,
    /// At most so many workers and launchers die.
    deaths: u8,
}
