//! What the copies of an elastic job hold of islands (`replica/backup`). They are made between two rounds,
//! when the weights of all islands are the job's; their optimizers' states are not the same.

use kolo_comm::{Group, Rank};
use serde::{Deserialize, Serialize};

use super::super::Replica;
use super::Islands;
use crate::error::Error;
use crate::loss_scaling::LossScale;
use crate::sync::divide;

/// What one rank copies of the islands.
pub(in crate::replica) struct Copied {
    /// For each island that this rank speaks for the state of its optimizer; nothing where all ranks have it,
    /// or it begins each round without.
    pub(in crate::replica) own: Vec<Vec<f32>>,
    /// How many values that is.
    pub(in crate::replica) len: usize,
    /// What else each island goes on with.
    pub(in crate::replica) notes: Vec<IslandNotes>,
    /// Before the first round the state of the optimizer that all shards have together.
    pub(in crate::replica) together: Vec<Vec<f32>>,
}

/// What an island goes on with that is small enough for all ranks to have it.
#[derive(Clone, Serialize, Deserialize)]
pub(in crate::replica) struct IslandNotes {
    /// How often it expects to use each tensor.
    uses: Vec<u32>,
    loss_scale: LossScale,
}

/// What the rank that speaks for an island tells all.
#[derive(Serialize, Deserialize)]
struct Announced {
    notes: IslandNotes,
    /// Values of its optimizer's state.
    len: usize,
}

impl Islands {
    /// Copies what this rank has of the islands. A collective.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    pub(in crate::replica) fn copy(&mut self, group: &Group) -> Result<Copied, Error> {
        let (together, keeps) = (self.together, !self.together && !self.restarts());
        let state = |replica: &mut Replica| {
            replica.apply_outstanding()?;
            let states = replica.optimizer.state().into_iter().map(|(_, state)| state.to_vec());
            Ok::<_, Error>(states.collect::<Vec<_>>())
        };
        let mut copied = Copied { own: Vec::new(), len: 0, notes: Vec::new(), together: Vec::new() };
        let mut announced = Vec::new();
        for island in &mut self.own {
            if together {
                copied.together = state(&mut island.replica)?;
            }
            if !island.speaks {
                continue;
            }
            let own = if keeps { state(&mut island.replica)?.concat() } else { Vec::new() };
            let replica = &island.replica;
            let (uses, loss_scale) = (replica.step.expected_uses().to_vec(), replica.scaler.now());
            announced.push(Announced { notes: IslandNotes { uses, loss_scale }, len: own.len() });
            copied.own.push(own);
        }
        // In the order of islands, which is that of the ranks that speak for them.
        let told: Vec<Vec<Announced>> = group.all_gather_value(&announced)?;
        for Announced { notes, len } in told.into_iter().flatten() {
            copied.len = len;
            copied.notes.push(notes);
        }
        Ok(copied)
    }

    /// The ranks that have shards of an island of the job, on all of which it has an optimizer.
    pub(in crate::replica) fn ranks_of(&self, island: usize) -> Vec<Rank> {
        let islands = divide(&self.shares, self.count);
        islands.get(island).map_or(Vec::new(), |island| island.ranks.clone().map(Rank).collect())
    }

    /// The islands, which have just been formed, go on with what a copy says of all of them, so many of whose
    /// steps have been skipped.
    pub(in crate::replica) fn put_back(
        &mut self,
        notes: &[IslandNotes],
        together: &[Vec<f32>],
        skipped_steps: u64,
    ) {
        self.skipped = skipped_steps;
        for island in &mut self.own {
            if let Some(IslandNotes { uses, loss_scale }) = notes.get(island.number) {
                island.replica.step.expect_uses(uses.clone());
                island.replica.scaler.take_over(*loss_scale);
            }
            let states = island.replica.optimizer.state().into_iter().zip(together);
            states.for_each(|((_, own), copied)| own.copy_from_slice(copied));
        }
    }

    /// An island of this rank goes on with the state of its optimizer that a copy has.
    pub(in crate::replica) fn put_back_state(&mut self, island: usize, state: &[f32]) {
        let own = self.own.iter_mut().find(|own| own.number == island && !state.is_empty());
        let Some(own) = own else { return };
        let mut rest = state;
        for (_, state) in own.replica.optimizer.state() {
            let (first, after) = rest.split_at(state.len().min(rest.len()));
            state[..first.len()].copy_from_slice(first);
            rest = after;
        }
    }
}
