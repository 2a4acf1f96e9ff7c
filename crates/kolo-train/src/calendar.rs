//! What is due after which step. It follows from the step's number and the recipe alone, so whoever comes in
//! the middle of a run takes part in the same collectives as the others, by construction.

use kolo_ddp::Sampler;

use crate::config::Recipe;

/// The steps of a run between which something is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Calendar {
    /// Steps of an epoch.
    pub(crate) epoch: u64,
    /// Steps of the whole run.
    pub(crate) total: u64,
    checkpoint_epochs: u64,
    checkpoint_steps: Option<u64>,
}

/// What is due between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// An epoch is over, or the run: the model is evaluated, by all workers.
    pub(crate) evaluation: bool,
    /// Rank 0 writes a checkpoint.
    pub(crate) checkpoint: bool,
    /// A checkpoint may be written, if not by this calendar then because the evaluation has been the best:
    /// all bring what rank 0 does not have.
    pub(crate) gathering: bool,
}

impl Calendar {
    pub(crate) fn new(config: &Recipe, sampler: &Sampler) -> Self {
        Calendar {
            epoch: sampler.steps() as u64,
            total: config.total_steps(sampler),
            checkpoint_epochs: config.checkpoint_epochs as u64,
            checkpoint_steps: config.checkpoint_steps,
        }
    }

    /// Epochs of so many steps, no checkpoints but the last.
    #[cfg(test)]
    pub(crate) const fn for_tests(epoch: u64, total: u64) -> Self {
        Calendar { epoch, total, checkpoint_epochs: 1, checkpoint_steps: None }
    }

    /// What is due when so many steps are done.
    pub(crate) fn after(&self, steps: u64) -> Due {
        let ends_epoch = steps.is_multiple_of(self.epoch);
        let is_over = steps >= self.total;
        let by_steps = self.checkpoint_steps.is_some_and(|every| steps.is_multiple_of(every));
        let by_epochs = ends_epoch && (steps / self.epoch).is_multiple_of(self.checkpoint_epochs);
        let evaluation = ends_epoch || is_over;
        let checkpoint = by_steps || by_epochs || is_over;
        Due { evaluation, checkpoint, gathering: evaluation || checkpoint }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_steps_and_the_end() {
        let calendar = Calendar { epoch: 4, total: 10, checkpoint_epochs: 2, checkpoint_steps: Some(3) };
        let due = |steps| {
            let Due { evaluation, checkpoint, gathering } = calendar.after(steps);
            (evaluation, checkpoint, gathering)
        };
        let nothing = (false, false, false);
        assert_eq!([1, 2, 5, 7].map(due), [nothing; 4]);
        assert_eq!([3, 6, 9].map(due), [(false, true, true); 3]);
        assert_eq!([4, 8, 10].map(due), [(true, false, true), (true, true, true), (true, true, true)]);
    }
}
