//! The state of the model at one moment.

use std::collections::{BTreeMap, BTreeSet};

use crate::arbiter::Record;
use crate::generation::{Formed, GenerationId, History};
use crate::protocol::Lineage;

/// A worker or a launcher, by its number.
pub(super) type Actor = usize;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) workers: Vec<Worker>,
    /// `None` for a dead launcher.
    pub(super) launchers: Vec<Option<Launcher>>,
    pub(super) generations: Vec<Generation>,
    /// The generation that made each step.
    pub(super) steps: Vec<GenerationId>,
    /// True if a generation repeated a step without the state of the generation that made it first.
    pub(super) again: bool,
    /// True if two generations could make a step at the same time.
    pub(super) at_once: bool,
    /// The last record of an arbiter with a memory.
    pub(super) record: Option<Record>,
    pub(super) deaths: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Worker {
    pub(super) place: Place,
    pub(super) history: History,
    pub(super) steps: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    /// The worker waits for an assignment, and its launcher has reported it to this leader.
    Waits(Actor),
    /// The worker has entered a generation.
    In(GenerationId),
    Dead,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Launcher {
    pub(super) lineage: Lineage,
    /// The workers that have arrived at it, with their histories; some may follow another leader by now.
    pub(super) candidates: BTreeMap<Actor, History>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Generation {
    pub(super) formed: Formed,
    pub(super) members: BTreeSet<Actor>,
    pub(super) entered: BTreeSet<Actor>,
    /// Members that have formed its group.
    pub(super) ready: BTreeSet<Actor>,
}

impl State {
    pub(super) fn generation(&self, id: GenerationId) -> Option<&Generation> {
        self.generations.iter().find(|generation| generation.formed.id() == id)
    }

    pub(super) fn generation_mut(&mut self, id: GenerationId) -> Option<&mut Generation> {
        self.generations.iter_mut().find(|generation| generation.formed.id() == id)
    }
}

pub(super) fn name(worker: Actor) -> String {
    worker.to_string()
}
