//! What the copies of an elastic job hold of islands (`replica/backup`). They are made between two rounds,
//! when the weights of all islands are the job's; their optimizers' states are not the same.

use kolo_comm::{Group, Rank};
use serde::{Deserialize, Serialize};

use super::division::divide;
use super::islands_mode::Islands;
use crate::error::Error;
use crate::replica::backup::copies::ShardNotes;
use crate::replica::core::Core;
use crate::sync::mode::Copied;

/// What the rank that speaks for an island tells all.
#[derive(Serialize, Deserialize)]
struct Announced {
    notes: ShardNotes,
    /// Values of its optimizer's state.
    len: usize,
}

impl Islands {
    /// Copies what this rank has of the islands. A collective.
    ///
    /// # Errors
    ///
    /// A collective failed (naming the rank).
    pub(super) fn copy_islands(&mut self, group: &Group) -> Result<Copied, Error> {
        let (together, keeps) = (self.together, !self.together && !self.restarts());
        let state = |core: &mut Core| {
            core.apply_outstanding()?;
            let states = core.weights.optimizer.state().into_iter().map(|(_, state)| state.to_vec());
            Ok::<_, Error>(states.collect::<Vec<_>>())
        };
        let mut copied = Copied::default();
        let mut announced = Vec::new();
        for island in &mut self.own {
            if together {
                copied.common = state(&mut island.core)?;
            }
            if !island.speaks {
                continue;
            }
            let own = if keeps { state(&mut island.core)?.concat() } else { Vec::new() };
            let core = &island.core;
            let (uses, loss_scale) = (core.step.expected_uses().to_vec(), core.scaler.now());
            announced.push(Announced { notes: ShardNotes { uses, loss_scale }, len: own.len() });
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
    pub(super) fn ranks_of(&self, island: usize) -> Vec<Rank> {
        let islands = divide(&self.shares, self.count);
        islands.get(island).map_or(Vec::new(), |island| island.ranks.clone().map(Rank).collect())
    }

    /// The islands, which have just been formed, go on with what a copy says of all of them, so many of whose
    /// steps have been skipped.
    pub(super) fn put_back_islands(
        &mut self,
        notes: &[ShardNotes],
        together: &[Vec<f32>],
        skipped_steps: u64,
    ) {
        self.skipped = skipped_steps;
        for island in &mut self.own {
            if let Some(ShardNotes { uses, loss_scale }) = notes.get(island.number) {
                island.core.step.expect_uses(uses.clone());
                island.core.scaler.take_over(*loss_scale);
            }
            let states = island.core.weights.optimizer.state().into_iter().zip(together);
            states.for_each(|((_, own), copied)| own.copy_from_slice(copied));
        }
    }

    /// An island of this rank goes on with the state of its optimizer that a copy has.
    pub(super) fn put_back_state(&mut self, island: usize, state: &[f32]) {
        let own = self.own.iter_mut().find(|own| own.number == island && !state.is_empty());
        let Some(own) = own else { return };
        let mut rest = state;
        for (_, state) in own.core.weights.optimizer.state() {
            let (first, after) = rest.split_at(state.len().min(rest.len()));
            state[..first.len()].copy_from_slice(first);
            rest = after;
        }
    }
}
