//! State of the run, and its changes. Pure.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use kolo_run_folder::{RanksRow, StepRow, median};

use crate::series::Series;

/// Number of last steps whose median shows where the time goes.
const RECENT: usize = 20;

const MESSAGES: usize = 100;

/// State of a run as reported so far.
#[derive(Clone, Debug)]
pub struct RunState {
    /// Model, data set and run folder.
    pub title: String,
    /// Unit of the samples, for example `images`.
    pub unit: String,
    /// Epochs of the whole run.
    pub epochs: usize,
    /// Steps of the whole run.
    pub total_steps: u64,
    /// Number of workers, if known.
    pub world_size: Option<usize>,
    /// Generation of an elastic job, otherwise 0.
    pub generation: u64,
    /// Last comparison of the ranks' times.
    pub ranks: Option<RanksRow>,
    /// Buckets of the last step.
    pub buckets: Vec<Bucket>,
    started: Instant,
    first_step: u64,
    pub(crate) done: u64,
    pub(crate) loss: Series,
    pub(crate) throughput: Series,
    recent: VecDeque<StepRow>,
    messages: VecDeque<String>,
}

/// Last reduction of a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bucket {
    /// Bytes of the gradient.
    pub bytes: usize,
    /// Seconds from the first message until the result was complete.
    pub seconds: f64,
    /// Seconds for which the training thread waited for it.
    pub exposed: f64,
}

/// Medians of the times within the last steps, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Parts {
    pub(crate) forward: f64,
    pub(crate) backward: f64,
    pub(crate) optimizer: f64,
    pub(crate) waiting: f64,
}

impl RunState {
    /// Creates the state of a run that continues from `first_step` until `total_steps`.
    pub fn new(title: String, unit: String, epochs: usize, first_step: u64, total_steps: u64) -> Self {
        RunState {
            title,
            unit,
            epochs,
            total_steps,
            world_size: None,
            generation: 0,
            ranks: None,
            buckets: Vec::new(),
            started: Instant::now(),
            first_step,
            done: first_step,
            loss: Series::default(),
            throughput: Series::default(),
            recent: VecDeque::new(),
            messages: VecDeque::new(),
        }
    }

    /// Adds a completed step.
    pub fn step(&mut self, row: StepRow) {
        self.done = row.step + 1;
        if let Some(loss) = row.loss {
            self.loss.push(row.step, loss);
        }
        self.throughput.push(row.step, row.samples / row.seconds);
        self.recent.push_back(row);
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }

    /// Returns to an earlier step, for example after a worker's death; later steps are repeated.
    pub fn go_on_from(&mut self, step: u64) {
        self.done = step;
        self.loss.rewind(step);
        self.throughput.rewind(step);
        self.recent.retain(|row| row.step < step);
    }

    /// Adds a message for the user.
    pub fn say(&mut self, message: impl Into<String>) {
        self.messages.push_back(message.into());
        if self.messages.len() > MESSAGES {
            self.messages.pop_front();
        }
    }

    /// Begins another generation, in which ranks have other numbers.
    pub fn begin_generation(&mut self, number: u64, world_size: usize) {
        (self.generation, self.world_size, self.ranks) = (number, Some(world_size), None);
    }

    /// Returns the messages, the last one first.
    pub(crate) fn messages(&self) -> impl Iterator<Item = &str> {
        self.messages.iter().rev().map(String::as_str)
    }

    pub(crate) fn last(&self) -> Option<&StepRow> {
        self.recent.back()
    }

    pub(crate) fn step_seconds(&self) -> Option<f64> {
        median(self.recent.iter().map(|row| row.seconds))
    }

    pub(crate) fn samples_per_second(&self) -> Option<f64> {
        let of = |value: fn(&StepRow) -> f64| self.recent.iter().map(value).sum::<f64>();
        let seconds = of(|row| row.seconds);
        (seconds > 0.0).then(|| of(|row| row.samples) / seconds)
    }

    pub(crate) fn parts(&self) -> Option<Parts> {
        let of = |value: fn(&StepRow) -> f64| median(self.recent.iter().map(value));
        let (backward, optimizer) = (of(|row| row.backward_seconds)?, of(|row| row.optimizer_seconds)?);
        let forward = (of(StepRow::compute_seconds)? - backward - optimizer).max(0.0);
        Some(Parts { forward, backward, optimizer, waiting: of(|row| row.exposed_seconds)? })
    }

    pub(crate) fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    /// Returns the remaining time at the average pace so far.
    pub(crate) fn left(&self, now: Instant) -> Option<Duration> {
        let done = self.done.saturating_sub(self.first_step);
        let left = self.total_steps.saturating_sub(self.done) as f64;
        let seconds = self.elapsed(now).as_secs_f64() / done as f64 * left;
        (done > 0).then(|| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use kolo_run_folder::RankTimes;

    /// A step of 50 ms with 10 ms of waiting.
    pub(crate) fn step(number: u64) -> StepRow {
        StepRow {
            step: number,
            loss: Some(2.0 / (1.0 + number as f64 / 30.0)),
            samples: 64.0,
            learning_rate: 0.1,
            seconds: 0.05,
            comm_seconds: 0.02,
            exposed_seconds: 0.01,
            backward_seconds: 0.024,
            optimizer_seconds: 0.004,
            ..StepRow::default()
        }
    }

    /// A half-completed run of four ranks, three of which wait for rank 2.
    pub(crate) fn run() -> RunState {
        let mut run =
            RunState::new("small on fashion-mnist-small · runs/0001".into(), "images".into(), 3, 0, 400);
        (0..200).for_each(|number| run.step(step(number)));
        run.begin_generation(2, 4);
        let rank = |rank| RankTimes {
            shards: 1,
            compute_seconds: if rank == 2 { 0.06 } else { 0.04 },
            data_seconds: 0.002,
            exposed_seconds: if rank == 2 { 0.001 } else { 0.021 },
            waited_for: (rank != 2).then_some(2),
            waited_seconds: 0.02,
            ..RankTimes::default()
        };
        run.ranks = Some(RanksRow { step: 199, generation: 2, ranks: (0..4).map(rank).collect() });
        run.buckets = (1..6)
            .map(|n| Bucket { bytes: n << 20, seconds: n as f64 * 1e-3, exposed: (n - 1) as f64 * 5e-4 })
            .collect();
        run.say("epoch 1/3: train loss 0.9000, test accuracy 71.20 %");
        run.say("rank 2 takes 1.5 times as long as the others for a shard");
        run
    }

    #[test]
    fn figures_are_of_the_last_steps() {
        let mut run = run();
        let now = Instant::now();
        assert_eq!(run.samples_per_second().map(f64::round), Some(1280.0));
        let parts = run.parts().unwrap();
        assert!((parts.forward - 0.012).abs() < 1e-9 && parts.waiting == 0.01, "{parts:?}");
        let [elapsed, left] = [run.elapsed(now), run.left(now).unwrap()].map(|time| time.as_secs_f64());
        assert!((left - elapsed).abs() <= 1e-6 * elapsed.max(1.0), "half is done: {left} {elapsed}");
        run.go_on_from(150);
        assert_eq!((run.done, run.last(), run.loss.points().last().unwrap().0), (150, None, 149.0));
        run.begin_generation(3, 3);
        assert_eq!((run.ranks.is_none(), run.world_size), (true, Some(3)));
        (0..2 * MESSAGES).for_each(|number| run.say(number.to_string()));
        assert_eq!((run.messages().count(), run.messages().next()), (MESSAGES, Some("199")));
    }

    #[test]
    fn a_run_that_begins_has_no_figures() {
        let run = RunState::new(String::new(), "images".into(), 1, 5, 5);
        assert!(run.parts().is_none() && run.samples_per_second().is_none() && run.step_seconds().is_none());
        assert_eq!(run.left(Instant::now()), None);
    }
}
