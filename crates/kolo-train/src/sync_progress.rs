//! What a worker that comes in the middle of an epoch is told of it: it may be rank 0 by its end, and the
//! epoch's figures are sums over all of its steps, in their order.

use kolo_comm::{Error, Group, Rank};

use crate::meter::{Meter, StepRow};
use crate::progress::Progress;

/// Numbers of a row.
const ROW: usize = 10;
/// Numbers before the rows.
const HEAD: usize = 3;

impl Progress {
    /// Gives all ranks what one of them knows of the epoch, if some know less; and what all have recorded. A
    /// collective, of ranks that are equally far.
    pub(crate) fn synchronise(&mut self, group: &Group) -> Result<(), Error> {
        let recorded = self.recorded();
        let mut all = vec![0; 2 * group.world_size()];
        group.all_gather(&[self.covered_from as i64, recorded as i64], &mut all)?;
        let (covers, recorded): (Vec<u64>, Vec<u64>) =
            all.chunks(2).map(|words| (words[0] as u64, words[1] as u64)).unzip();
        let Some(donor) = (0..covers.len()).min_by_key(|rank| covers[*rank]) else { return Ok(()) };
        let first = self.first_of_epoch().max(covers[donor]);
        if covers.iter().any(|covers| *covers > first) {
            let mut words = if group.rank() == Rank(donor) { self.encode_epoch() } else { Vec::new() };
            let mut len = [words.len() as i64];
            group.broadcast(&mut len, Rank(donor))?;
            words.resize(len[0] as usize, 0);
            group.broadcast(&mut words, Rank(donor))?;
            if self.covered_from > first {
                self.adopt_epoch(&words, first);
            }
        }
        self.record_again(recorded.into_iter().min().unwrap_or(0));
        Ok(())
    }

    /// What this worker knows of the epoch, as integers that carry the bits of its numbers.
    fn encode_epoch(&self) -> Vec<i64> {
        let first = self.first_of_epoch();
        let rows = self.steps().iter().filter(|row| row.step >= first).flat_map(encode);
        let head = match self.known_from > first {
            true => [self.known_from as i64, bits(self.earlier.loss_sum), bits(self.earlier.images)],
            false => [first as i64, bits(0.0), bits(0.0)],
        };
        head.into_iter().chain(rows).collect()
    }

    fn adopt_epoch(&mut self, words: &[i64], covers: u64) {
        let (head, rows) = words.split_at(HEAD);
        (self.known_from, self.covered_from) = (head[0] as u64, covers);
        self.earlier = Meter::of(float(head[1]), float(head[2]));
        self.steps = rows.chunks_exact(ROW).map(decode).collect();
        self.sum_epoch();
    }
}

fn bits(value: f64) -> i64 {
    value.to_bits() as i64
}

fn float(bits: i64) -> f64 {
    f64::from_bits(bits as u64)
}

fn encode(row: &StepRow) -> [i64; ROW] {
    [
        row.step as i64,
        row.epoch as i64,
        bits(row.loss),
        row.images as i64,
        bits(row.learning_rate),
        bits(row.seconds),
        bits(row.comm_seconds),
        bits(row.exposed_comm_seconds),
        i64::from(row.gradient_norm.is_some()),
        bits(row.gradient_norm.unwrap_or(0.0)),
    ]
}

fn decode(words: &[i64]) -> StepRow {
    StepRow {
        step: words[0] as u64,
        epoch: words[1] as usize,
        loss: float(words[2]),
        images: words[3] as u64,
        learning_rate: float(words[4]),
        seconds: float(words[5]),
        comm_seconds: float(words[6]),
        exposed_comm_seconds: float(words[7]),
        gradient_norm: (words[8] == 1).then(|| float(words[9])),
    }
}

#[cfg(test)]
mod tests {
    use kolo_comm::threads;
    use kolo_ddp::checkpoint::Position;
    use serde_json::json;

    use super::*;

    /// Steps of an epoch, and of the run.
    const STEPS: usize = 10;
    const TOTAL: u64 = 100;

    fn row(step: u64) -> StepRow {
        StepRow {
            step,
            epoch: step as usize / STEPS,
            loss: 1.0 / (step + 3) as f64,
            images: 7,
            learning_rate: 0.1,
            seconds: 0.3,
            comm_seconds: 0.1,
            exposed_comm_seconds: 0.05,
            gradient_norm: (step % 2 == 1).then_some(0.7),
        }
    }

    /// Progress that begins so and has seen all steps up to `step`.
    fn on(mut progress: Progress, step: u64) -> Progress {
        (progress.position.step..step).for_each(|step| progress.add_step(row(step)));
        progress
    }

    /// What the ranks hold after one has told the others: the bits of the epoch's loss and images, and their
    /// rows.
    fn shared(progress_of: impl Fn(usize) -> Progress + Sync) -> Vec<(u64, f64, Vec<u64>, u64)> {
        threads::spawn(3, |group| {
            let mut progress = progress_of(group.rank().0);
            progress.synchronise(&group).unwrap();
            let meter = progress.epoch_meter();
            let rows = progress.steps().iter().map(|row| row.step).collect();
            (meter.loss_sum.to_bits(), meter.images, rows, progress.recorded())
        })
        .unwrap()
    }

    #[test]
    fn whoever_comes_late_knows_the_epoch() {
        let veteran = on(Progress::at(0, STEPS, TOTAL), 27);
        let expected = veteran.epoch_meter().loss_sum.to_bits();
        let ranks = shared(|rank| match rank {
            0 => Progress::at(27, STEPS, TOTAL),
            1 => on(Progress::at(0, STEPS, TOTAL), 27),
            _ => on(Progress::at(23, STEPS, TOTAL), 27),
        });
        let known = |from: u64| (from..27).collect::<Vec<u64>>();
        for (rank, from) in [(0, 20), (1, 0), (2, 20)] {
            assert_eq!(ranks[rank], (expected, 49.0, known(from), 0), "rank {rank}");
        }
    }

    #[test]
    fn sums_from_before_a_checkpoint_are_handed_on() {
        let whole = on(Progress::at(0, STEPS, TOTAL), 27);
        let at_checkpoint = on(Progress::at(0, STEPS, TOTAL), 24);
        let notes = json!({
            "loss_sum": at_checkpoint.epoch_meter().loss_sum.to_string(),
            "images": at_checkpoint.epoch_meter().images.to_string(),
        });
        let position = Position { step: 24, epoch: 2, step_in_epoch: 4, notes };
        let ranks = shared(|rank| match rank {
            1 => on(Progress::resumed(&position, STEPS, TOTAL), 27),
            _ => Progress::at(27, STEPS, TOTAL),
        });
        for rank in ranks {
            assert_eq!(rank, (whole.epoch_meter().loss_sum.to_bits(), 49.0, vec![24, 25, 26], 20));
        }
    }

    #[test]
    fn an_epoch_that_some_have_not_recorded_is_recorded_by_all() {
        let ranks = shared(|rank| {
            let mut progress = on(Progress::at(0, STEPS, TOTAL), 20);
            if rank == 1 {
                progress.record_again(20);
            }
            progress
        });
        assert!(ranks.iter().all(|rank| rank.3 == 0), "{ranks:?}");
    }
}
