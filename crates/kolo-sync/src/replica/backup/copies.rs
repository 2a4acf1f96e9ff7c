//! The newest copies of a rank.

use std::collections::VecDeque;

use crate::replica::notes::JobState;
use kolo_reduction::state::Held;
use kolo_step::LastStep;

/// Number of copies that a rank keeps. While it makes a new one, the one before it is the last valid one.
const KEPT: usize = 2;

/// Everything that a rank holds after a step, and the state of shards of the workers before it.
#[derive(Debug)]
pub struct Backup {
    /// Number of steps done.
    pub steps: u64,
    /// Results of the steps that became known with the last one.
    pub known: Vec<LastStep>,
    /// State.
    pub job: JobState,
    /// Shards, or islands where there are islands, whose state it has; all if no state is kept for them.
    pub shards: Vec<usize>,
}

/// Newest copies, oldest first.
#[derive(Debug, Default)]
pub struct Backups(VecDeque<Backup>);

impl Backups {
    /// Returns this rank's holdings of each copy.
    pub fn held(&self) -> Vec<Held> {
        let held = |backup: &Backup| Held {
            steps: backup.steps,
            shards: backup.shards.clone(),
            arrays: backup.job.arrays.holdings(),
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
    use crate::replica::notes::{JobNotes, Notes};
    use kolo_reduction::state::StateCopy;
    use kolo_reduction::transform::States;
    use kolo_step::{LossScaler, NoiseScale};

    #[test]
    fn a_copy_is_due_after_a_multiple_of_steps_however_many_a_round_has() {
        let mut backups = Backups::default();
        let mut copied = Vec::new();
        for steps in [0, 3, 6, 9, 12, 13, 16, 19, 20, 21] {
            if backups.is_due(5, steps) {
                let notes = Notes {
                    uses: Vec::new(),
                    noise_scale: NoiseScale::default(),
                    loss_scale: LossScaler::new(None).now(),
                    transforms: States::new(),
                };
                let notes = JobNotes::of_core(notes);
                let job = JobState { notes, arrays: StateCopy::new(0) };
                backups.add(Backup { steps, known: Vec::new(), job, shards: Vec::new() });
                copied.push(steps);
            }
        }
        assert_eq!(copied, [6, 12, 16, 20]);
        assert!(!backups.is_due(0, 100));
    }
}
