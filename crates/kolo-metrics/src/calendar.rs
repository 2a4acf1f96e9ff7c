//! Events due after each step. They follow from the step's number and the recipe alone, so a worker that
//! joins in the middle of a run takes part in the same collectives as the others.

use kolo_ddp::Sampler;
use kolo_ddp::checkpoint::Position;

use kolo_recipe::Recipe;

/// Decides which events are due between the steps of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calendar {
    /// Has the steps of each epoch, which become fewer if the batch grows.
    sampler: Sampler,
    /// Steps of the whole run.
    pub total: u64,
    checkpoint_epochs: u64,
    checkpoint_steps: Option<u64>,
    evaluation_steps: Option<u64>,
}

/// Events due between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// All workers evaluate the model: an epoch or the run is over, or the recipe says so.
    pub evaluation: bool,
    /// Rank 0 writes a checkpoint.
    pub checkpoint: bool,
    /// Rank 0 gathers the state it lacks from the others, because a checkpoint may be written: by this
    /// calendar, or because the evaluation is the best.
    pub gathering: bool,
}

impl Calendar {
    /// Makes the calendar of a run by its recipe; `sampler` has the steps of each epoch.
    pub fn new(config: &Recipe, sampler: &Sampler) -> Self {
        Calendar {
            sampler: sampler.clone(),
            total: config.total_steps(sampler),
            checkpoint_epochs: config.checkpoint_epochs as u64,
            checkpoint_steps: config.checkpoint_steps,
            evaluation_steps: config.eval_steps,
        }
    }

    /// Epochs of so many steps, with no checkpoint but the last.
    #[cfg(test)]
    pub(crate) fn for_tests(epoch: u64, total: u64) -> Self {
        let sampler = Sampler::new(epoch as usize, 1, 1, 0).unwrap();
        Calendar { sampler, total, checkpoint_epochs: 1, checkpoint_steps: None, evaluation_steps: None }
    }

    /// Position of a run after so many steps, without notes.
    pub fn position(&self, steps: u64) -> Position {
        let (epoch, step_in_epoch) = self.sampler.position(steps);
        Position { step: steps, epoch, step_in_epoch, notes: serde_json::Value::Null }
    }

    /// Number of epochs begun after so many steps.
    pub(crate) fn epochs_begun(&self, steps: u64) -> usize {
        let Position { epoch, step_in_epoch, .. } = self.position(steps);
        epoch + usize::from(step_in_epoch > 0)
    }

    /// First step of the epoch that runs, or has just ended, after so many steps.
    pub(crate) fn first_of_epoch(&self, steps: u64) -> u64 {
        self.sampler.steps_before(self.epochs_begun(steps).saturating_sub(1))
    }

    /// Number of steps at the last evaluation after at most so many, apart from the run's end; at first 0.
    pub(crate) fn evaluated_by(&self, steps: u64) -> u64 {
        let start_of_epoch = steps - self.position(steps).step_in_epoch as u64;
        let within = self.evaluation_steps.map_or(0, |every| steps - steps % every);
        start_of_epoch.max(within)
    }

    /// Number of epochs done after so many steps, with the share of the one that runs: the epoch of figures
    /// that are taken there.
    pub(crate) fn epoch_of_figures(&self, steps: u64) -> f64 {
        let Position { epoch, step_in_epoch, .. } = self.position(steps);
        match step_in_epoch {
            0 => epoch as f64,
            done => epoch as f64 + done as f64 / self.sampler.steps_of(epoch) as f64,
        }
    }

    /// Returns the events due after so many steps.
    pub fn after(&self, steps: u64) -> Due {
        let Position { epoch, step_in_epoch, .. } = self.position(steps);
        let ends_epoch = step_in_epoch == 0;
        let is_over = steps >= self.total;
        let by_steps = self.checkpoint_steps.is_some_and(|every| steps.is_multiple_of(every));
        let by_epochs = ends_epoch && (epoch as u64).is_multiple_of(self.checkpoint_epochs);
        let within = self.evaluation_steps.is_some_and(|every| steps > 0 && steps.is_multiple_of(every));
        let evaluation = ends_epoch || is_over || within;
        let checkpoint = by_steps || by_epochs || is_over;
        Due { evaluation, checkpoint, gathering: evaluation || checkpoint }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_steps_and_the_end() {
        let calendar =
            Calendar { checkpoint_epochs: 2, checkpoint_steps: Some(3), ..Calendar::for_tests(4, 10) };
        let due = |steps| {
            let Due { evaluation, checkpoint, gathering } = calendar.after(steps);
            (evaluation, checkpoint, gathering)
        };
        let nothing = (false, false, false);
        assert_eq!([1, 2, 5, 7].map(due), [nothing; 4]);
        assert_eq!([3, 6, 9].map(due), [(false, true, true); 3]);
        assert_eq!([4, 8, 10].map(due), [(true, false, true), (true, true, true), (true, true, true)]);
    }

    #[test]
    fn a_point_within_an_epoch_has_one_number() {
        let plain = Calendar::for_tests(4, 10);
        let often = Calendar { evaluation_steps: Some(3), ..plain.clone() };
        let numbers = [(0, 0.0), (3, 0.75), (4, 1.0), (8, 2.0), (10, 2.5)];
        for (steps, epoch) in numbers {
            assert_eq!([&plain, &often].map(|calendar| calendar.epoch_of_figures(steps)), [epoch; 2]);
        }
    }

    #[test]
    fn epochs_become_shorter_where_the_batch_grows() {
        let growth = ["2:2".parse().unwrap()];
        let sampler = Sampler::growing(40, 5, &growth, 2, 0).unwrap();
        let calendar = Calendar { sampler, checkpoint_epochs: 3, ..Calendar::for_tests(1, 12) };
        let ends: Vec<u64> = (1..=12).filter(|steps| calendar.after(*steps).evaluation).collect();
        assert_eq!(ends, [4, 8, 10, 12]);
        let checkpoints: Vec<u64> = (1..=12).filter(|steps| calendar.after(*steps).checkpoint).collect();
        assert_eq!(checkpoints, [10, 12]);
        assert_eq!(
            [0, 1, 4, 5, 8, 9, 10, 11].map(|steps| calendar.epochs_begun(steps)),
            [0, 1, 1, 2, 2, 3, 3, 4]
        );
        assert_eq!(
            [0, 1, 4, 5, 8, 9, 10, 11].map(|steps| calendar.first_of_epoch(steps)),
            [0, 0, 0, 4, 4, 8, 8, 10]
        );
    }
}
