//! A rank keeps its newest copies, and they tell when another one is due.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::newest::Held;
use crate::last_step::LastStep;
use crate::loss_scaling::LossScale;
use crate::noise_scale::NoiseScale;
use crate::transform::States;

/// How many copies are kept: while a new one is made the one before it is the last that is good.
const KEPT: usize = 2;

/// All that a rank has after a step.
pub(super) struct Backup {
    pub(super) steps: u64,
    pub(super) common: Common,
    /// What is the same on all ranks, each in the order of flat memory: the values, the optimizer's state,
    /// what the reduction keeps on all ranks, and while all shards synchronise every step before the first
    /// round the islands' optimizer.
    pub(super) arrays: Vec<Vec<f32>>,
    /// By shard, where there are islands by island: this rank's, and those of the ranks before it. Where
    /// nothing is kept for any of them all are here, each without values.
    pub(super) shards: BTreeMap<usize, Vec<f32>>,
}

/// What is the same on all ranks of a copy besides its arrays.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Common {
    /// What the steps have come to that became known with the last one.
    pub(super) known: Vec<LastStep>,
    pub(super) uses: Vec<u32>,
    /// What else is kept for each shard, and how many steps of the job have been skipped.
    pub(super) shards: Vec<ShardNotes>,
    pub(super) skipped_steps: u64,
    pub(super) noise_scale: NoiseScale,
    pub(super) loss_scale: LossScale,
    pub(super) transforms: States,
    /// How many arrays there are, and how many values are kept for each shard.
    pub(super) arrays: usize,
    pub(super) shard_len: usize,
}

/// What a mode keeps for a shard that is small enough for all ranks to have it.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct ShardNotes {
    /// Number of times that the shard's model expects to use each tensor.
    pub(crate) uses: Vec<u32>,
    pub(crate) loss_scale: LossScale,
}

/// The newest copies, oldest first.
#[derive(Default)]
pub(crate) struct Backups(VecDeque<Backup>);

impl Backups {
    /// What this rank holds of each copy.
    pub(super) fn held(&self) -> Vec<Held> {
        let held = |backup: &Backup| {
            let shards = backup.shards.keys().copied().collect();
            Held { steps: backup.steps, shards }
        };
        self.0.iter().map(held).collect()
    }

    /// The copy made after so many steps.
    pub(super) fn at(&self, steps: u64) -> Option<&Backup> {
        self.0.iter().find(|backup| backup.steps == steps)
    }

    /// Keeps a copy, in place of an older one of the same step.
    pub(super) fn add(&mut self, backup: Backup) {
        self.0.retain(|other| other.steps != backup.steps);
        self.0.push_back(backup);
        while self.0.len() > KEPT {
            self.0.pop_front();
        }
    }

    /// Whether a multiple of `every` steps has been done since the newest copy.
    pub(super) fn is_due(&self, every: u64, steps: u64) -> bool {
        let copied = self.0.back().map_or(0, |backup| backup.steps);
        every > 0 && steps / every > copied / every
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_due_after_a_multiple_of_steps_however_many_a_round_has() {
        let mut backups = Backups::default();
        let mut copied = Vec::new();
        for steps in [0, 3, 6, 9, 12, 13, 16, 19, 20, 21] {
            if backups.is_due(5, steps) {
                let loss_scale = LossScale { scale: 1.0, clean_steps: 0, skipped_steps: 0 };
                let noise_scale = NoiseScale::default();
                let (known, uses, shards, skipped_steps) = (Vec::new(), Vec::new(), Vec::new(), 0);
                let (arrays, shard_len) = (0, 0);
                let common = Common {
                    known,
                    uses,
                    shards,
                    skipped_steps,
                    noise_scale,
                    loss_scale,
                    transforms: States::new(),
                    arrays,
                    shard_len,
                };
                backups.add(Backup { steps, common, arrays: Vec::new(), shards: BTreeMap::new() });
                copied.push(steps);
            }
        }
        assert_eq!(copied, [6, 12, 16, 20]);
        assert!(!backups.is_due(0, 100));
    }
}
