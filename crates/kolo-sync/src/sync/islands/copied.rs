//! Copies of islands in an elastic job (`replica/backup`). They are made between two rounds, when the
//! weights of all islands are the job's; the states of their optimizers differ.

use kolo_comm::{Group, Rank};
use serde::{Deserialize, Serialize};

use super::division::divide;
use super::islands_mode::Islands;
use crate::replica::backup::copies::ShardNotes;
use crate::replica::core::Core;
use crate::sync::mode::Copied;
use kolo_reduction::Error;

/// Message to all ranks from the rank that represents an island.
#[derive(Serialize, Deserialize)]
struct Announced {
    notes: ShardNotes,
    /// Number of values in its optimizer's state.
    len: usize,
}

impl Islands {
    /// Copies this rank's state of the islands. A collective.
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
        // In the order of islands, which is that of the ranks that represent them.
        let told: Vec<Vec<Announced>> = group.all_gather_value(&announced)?;
        for Announced { notes, len } in told.into_iter().flatten() {
            copied.len = len;
            copied.notes.push(notes);
        }
        Ok(copied)
    }

    /// Returns the ranks that hold shards of an island of the job; each of them has an optimizer for it.
    pub(super) fn ranks_of(&self, island: usize) -> Vec<Rank> {
        let islands = divide(&self.shares, self.count);
        islands.get(island).map_or(Vec::new(), |island| island.ranks.clone().map(Rank).collect())
    }

    /// Restores the part of a copy that concerns all islands, which have just been formed.
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

    /// Restores the optimizer state of an island of this rank from a copy.
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
