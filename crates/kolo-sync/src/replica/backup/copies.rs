//! The newest copies of a rank.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::newest::Held;
use kolo_reduction::transform::States;
use kolo_step::{LastStep, LossScale, NoiseScale};

/// Number of copies that a rank keeps. While it makes a new one, the one before it is the last valid one.
const KEPT: usize = 2;

/// Everything that a rank holds after a step.
pub struct Backup {
    /// Number of steps done.
    pub steps: u64,
    /// Part that is the same on all ranks.
    pub common: Common,
    /// Arrays that are the same on all ranks, each in the order of flat memory: the values, the optimizer's
    /// state and the reduction's common state; before the first round of islands, while all shards
    /// synchronize every step, also the state of the islands' optimizer.
    pub arrays: Vec<Vec<f32>>,
    /// State by shard, or by island where there are islands: of this rank and of the ranks before it. If no
    /// state is kept for shards, the map has all of them, each without values.
    pub shards: BTreeMap<usize, Vec<f32>>,
}

/// Part of a copy that is the same on all ranks, besides its arrays.
#[derive(Clone, Serialize, Deserialize)]
pub struct Common {
    /// Results of the steps that became known with the last one.
    pub known: Vec<LastStep>,
    /// Number of times that the next step is expected to use each tensor.
    pub uses: Vec<u32>,
    /// Notes for each shard.
    pub shards: Vec<ShardNotes>,
    /// Number of the job's skipped steps.
    pub skipped_steps: u64,
    /// Noise scale after the steps.
    pub noise_scale: NoiseScale,
    /// State of loss scaling.
    pub loss_scale: LossScale,
    /// States of the gradient transforms.
    pub transforms: States,
    /// Number of arrays.
    pub arrays: usize,
    /// Number of values kept for each shard.
    pub shard_len: usize,
}

/// State that a mode keeps for a shard and that is small enough for all ranks to hold.
#[derive(Clone, Serialize, Deserialize)]
pub struct ShardNotes {
    /// Number of times that the shard's model expects to use each tensor.
    pub(crate) uses: Vec<u32>,
    /// State of loss scaling in its model.
    pub(crate) loss_scale: LossScale,
}

/// Newest copies, oldest first.
#[derive(Default)]
pub struct Backups(VecDeque<Backup>);

impl Backups {
    /// Returns this rank's holdings of each copy.
    pub fn held(&self) -> Vec<Held> {
        let held = |backup: &Backup| {
            let shards = backup.shards.keys().copied().collect();
            Held { steps: backup.steps, shards }
        };
        self.0.iter().map(held).collect()
    }

    /// Returns the copy made after that number of steps.
    pub fn at(&self, steps: u64) -> Option<&Backup> {
        self.0.iter().find(|backup| backup.steps == steps)
    }

    /// Keeps a copy; it replaces an older one of the same step.
    pub fn add(&mut self, backup: Backup) {
        self.0.retain(|other| other.steps != backup.steps);
        self.0.push_back(backup);
        while self.0.len() > KEPT {
            self.0.pop_front();
        }
    }

    /// Returns true if a multiple of `every` steps has been passed since the newest copy.
    pub fn is_due(&self, every: u64, steps: u64) -> bool {
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
