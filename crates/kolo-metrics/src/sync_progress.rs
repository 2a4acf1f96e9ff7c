//! The epoch's history for a worker that joins in the middle of it: the worker may be rank 0 at the end, and
//! the epoch's figures are sums over all of its steps, in their order.

use std::cmp::Reverse;

use kolo_comm::{Error, Group, Rank};
use serde::{Deserialize, Serialize};

use crate::meter::{Meter, StepRow};
use crate::progress::Progress;

#[derive(Serialize, Deserialize)]
struct EpochSoFar {
    /// First step with a row, and the sums over those before.
    known_from: u64,
    loss_sum: f64,
    count: f64,
    rows: Vec<StepRow>,
}

impl Progress {
    /// Sends one rank's knowledge of the epoch to all ranks, if some know less, and reduces the records to
    /// those that all have. A collective, of ranks at the same step. Fails if a collective fails (naming the
    /// rank).
    pub fn synchronize(&mut self, group: &Group) -> Result<(), Error> {
        let own = (self.covered_from, self.recorded(), self.evaluations.count(), self.stopped());
        let all: Vec<(u64, u64, usize, Option<u64>)> = group.all_gather_value(&own)?;
        let covers: Vec<u64> = all.iter().map(|rank| rank.0).collect();
        self.synchronize_evaluations(group, &all.iter().map(|rank| rank.2).collect::<Vec<_>>())?;
        if all.iter().any(|rank| rank.3 == Some(self.step())) {
            self.stop_here();
        }
        let Some(donor) = (0..covers.len()).min_by_key(|rank| covers[*rank]) else { return Ok(()) };
        let first = self.first_of_epoch().max(covers[donor]);
        if covers.iter().any(|covers| *covers > first) {
            let epoch = group.broadcast_value(self.epoch_so_far(), Rank(donor))?;
            if self.covered_from > first {
                self.adopt_epoch(epoch, first);
            }
        }
        self.record_again(all.iter().map(|rank| rank.1).min().unwrap_or(0));
        Ok(())
    }

    /// Sends all evaluations from the rank that knows most of them; `known` has the number of each rank.
    fn synchronize_evaluations(&mut self, group: &Group, known: &[usize]) -> Result<(), Error> {
        let Some(donor) = (0..known.len()).max_by_key(|rank| (known[*rank], Reverse(*rank))) else {
            return Ok(());
        };
        if known.iter().any(|known_here| *known_here < known[donor]) {
            self.evaluations = group.broadcast_value(self.evaluations.clone(), Rank(donor))?;
        }
        Ok(())
    }

    fn epoch_so_far(&self) -> EpochSoFar {
        let first = self.first_of_epoch();
        let rows = self.steps().iter().filter(|row| row.step >= first).cloned().collect();
        match self.known_from > first {
            true => {
                let Meter { loss_sum, count, .. } = self.earlier;
                EpochSoFar { known_from: self.known_from, loss_sum, count, rows }
            }
            false => EpochSoFar { known_from: first, loss_sum: 0.0, count: 0.0, rows },
        }
    }

    fn adopt_epoch(&mut self, epoch: EpochSoFar, covers: u64) {
        (self.known_from, self.covered_from) = (epoch.known_from, covers);
        (self.earlier, self.before) = (Meter::of(epoch.loss_sum, epoch.count), Meter::default());
        self.steps = epoch.rows;
        self.sum_epoch();
    }
}

#[cfg(test)]
mod tests {
    use kolo_comm::threads;
    use kolo_ddp::NoiseScale;
    use kolo_ddp::checkpoint::Position;
    use serde_json::json;

    use super::*;
    use crate::calendar::Calendar;
    use crate::evaluations::Best;
    use crate::metric::{Metric, Score, Scores};

    const STEPS: usize = 10;

    fn calendar() -> Calendar {
        Calendar::for_tests(STEPS as u64, 100)
    }

    fn row(step: u64) -> StepRow {
        StepRow {
            step,
            epoch: step as usize / STEPS,
            loss: 1.0 / (step + 3) as f64,
            count: 7,
            learning_rate: 0.1,
            seconds: 0.3,
            comm_seconds: 0.1,
            exposed_comm_seconds: 0.05,
            backward_seconds: 0.1,
            optimizer_seconds: 0.02,
            gradient_norm: (step % 2 == 1).then_some(0.7),
            noise_scale: step.is_multiple_of(2).then(NoiseScale::default),
            skipped: step % 3 == 1,
            loss_scale: (step % 2 == 1).then_some(8.0),
        }
    }

    /// Adds all steps up to `step` to the progress.
    fn on(mut progress: Progress, step: u64) -> Progress {
        (progress.position.step..step).for_each(|step| progress.add_step(row(step)));
        progress
    }

    /// Returns the state of the ranks after the exchange: the bits of the epoch's loss and samples, and their
    /// rows.
    fn shared(progress_of: impl Fn(usize) -> Progress + Sync) -> Vec<(u64, f64, Vec<u64>, u64)> {
        threads::spawn(3, |group| {
            let mut progress = progress_of(group.rank().0);
            progress.synchronize(&group).unwrap();
            let meter = progress.epoch_meter();
            let rows = progress.steps().iter().map(|row| row.step).collect();
            (meter.loss_sum.to_bits(), meter.count, rows, progress.recorded())
        })
        .unwrap()
    }

    #[test]
    fn whoever_comes_late_knows_the_epoch() {
        let veteran = on(Progress::at(0, calendar()), 27);
        let expected = veteran.epoch_meter().loss_sum.to_bits();
        let ranks = shared(|rank| match rank {
            0 => Progress::at(27, calendar()),
            1 => on(Progress::at(0, calendar()), 27),
            _ => on(Progress::at(23, calendar()), 27),
        });
        let known = |from: u64| (from..27).collect::<Vec<u64>>();
        for (rank, from) in [(0, 20), (1, 0), (2, 20)] {
            assert_eq!(ranks[rank], (expected, 49.0, known(from), 0), "rank {rank}");
        }
    }

    #[test]
    fn sums_from_before_a_checkpoint_are_handed_on() {
        let whole = on(Progress::at(0, calendar()), 27);
        let at_checkpoint = on(Progress::at(0, calendar()), 24);
        let notes = json!({
            "loss_sum": at_checkpoint.epoch_meter().loss_sum.to_string(),
            "count": at_checkpoint.epoch_meter().count.to_string(),
        });
        let position = Position { step: 24, epoch: 2, step_in_epoch: 4, notes };
        let ranks = shared(|rank| match rank {
            1 => on(Progress::resumed(&position, calendar()), 27),
            _ => Progress::at(27, calendar()),
        });
        for rank in ranks {
            assert_eq!(rank, (whole.epoch_meter().loss_sum.to_bits(), 49.0, vec![24, 25, 26], 20));
        }
    }

    #[test]
    fn whoever_comes_late_knows_all_evaluations() {
        let score = |value| Scores(vec![Score { metric: Metric::LOSS, value }]);
        let best = threads::spawn(3, |group| {
            let mut progress = Progress::at(30, calendar());
            // Two ranks have seen all evaluations, one of which was repeated.
            if group.rank().0 > 0 {
                [(10, 0.5), (20, 0.3), (30, 0.4), (30, 0.4)]
                    .into_iter()
                    .for_each(|(step, value)| progress.evaluations.add(step, &score(value)));
            }
            progress.record_again(30);
            progress.synchronize(&group).unwrap();
            progress.evaluations.best(Metric::LOSS, 0)
        });
        assert_eq!(best.unwrap(), vec![Some(Best { step: 20, since: 1 }); 3]);
    }

    #[test]
    fn an_epoch_that_some_have_not_recorded_is_recorded_by_all() {
        let ranks = shared(|rank| {
            let mut progress = on(Progress::at(0, calendar()), 20);
            if rank == 1 {
                progress.record_again(20);
            }
            progress
        });
        assert!(ranks.iter().all(|rank| rank.3 == 0), "{ranks:?}");
    }
}
