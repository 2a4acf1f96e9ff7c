//! `--tensorboard`: event files that TensorBoard reads during the run.
//!
//! The format is TensorFlow's; [`record`] and [`event`] name the files of its sources that define it. It is
//! small and has not changed for years; the crates that write it are unmaintained, or bring far more than
//! scalars. Each value is at the number of its step; those of an epoch at the epoch's last step, under tags
//! of their own.
//!
//! A rank 0 that succeeds another one, or a resumed run, drops the events of steps that will be repeated and
//! continues in a file of its own, so each step appears once.

mod event;
mod files;
mod record;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use event::Event;
use files::{EventFiles, FOLDER};

use super::sink::{MetricSink, Record, SinkEntry};
use crate::meter::{EpochRow, StepRow};
use crate::progress::Progress;
use kolo_recipe::Error;

pub(super) const ENTRY: SinkEntry = SinkEntry {
    name: FOLDER,
    about: "with --tensorboard, the metrics as TensorBoard's event files",
    open: |run| {
        run.live.tensorboard.then_some(())?;
        let files = EventFiles::new(run.folder?);
        Some(Box::new(TensorBoard { files, unit: run.unit.into(), last_step: 0, flushed: Instant::now() }))
    },
};

/// Groups of tags. An event has tags of only one of them.
const STEP: &str = "step/";
const EPOCH: &str = "epoch/";

/// Time of steps that may be lost with the process.
const EVERY: Duration = Duration::from_secs(3);

struct TensorBoard {
    files: EventFiles,
    /// Unit that the loss counts.
    unit: String,
    last_step: u64,
    /// Time of the last try to write the waiting events.
    flushed: Instant,
}

impl MetricSink for TensorBoard {
    fn record(&mut self, record: &Record<'_>) -> Result<(), Error> {
        match record {
            Record::Step { row, .. } => {
                self.last_step = row.step;
                self.files.add(&self.step(row));
                if self.flushed.elapsed() < EVERY { Ok(()) } else { self.flush() }
            }
            Record::Epoch(row) => {
                self.files.add(&self.epoch(row, self.last_step));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn align(&mut self, progress: &Progress) -> Result<(), Error> {
        let keep = |event: &Event| {
            let done = if is_of_epoch(event) { progress.recorded() } else { progress.step() };
            event.values().is_empty() || (event.step as u64) < done
        };
        let kept = self.files.rewind(progress.step(), keep)?;
        let last = |of_epoch: bool| {
            let of_kind =
                kept.iter().filter(|event| !event.values().is_empty() && is_of_epoch(event) == of_epoch);
            of_kind.map(|event| event.step as u64).max()
        };
        let (last_step, last_epoch) = (last(false), last(true));
        for row in progress.steps().iter().filter(|row| last_step.is_none_or(|last| row.step > last)) {
            self.files.add(&self.step(row));
        }
        for row in progress.epochs() {
            let step = row.steps.saturating_sub(1);
            if last_epoch.is_none_or(|last| step > last) {
                self.files.add(&self.epoch(row, step));
            }
        }
        self.last_step = progress.step().saturating_sub(1);
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.flushed = Instant::now();
        self.files.flush()
    }
}

impl TensorBoard {
    fn step(&self, row: &StepRow) -> Event {
        let seconds = row.seconds.max(1e-9);
        let speed = format!("{}_per_second", self.unit);
        let always = [
            ("loss", row.loss),
            ("learning_rate", row.learning_rate),
            (&speed, row.count as f64 / seconds),
            ("seconds", row.seconds),
            ("exposed_comm_fraction", row.exposed_comm_seconds / seconds),
        ];
        let sometimes = [
            ("gradient_norm", row.gradient_norm),
            ("noise_scale", row.noise_scale.and_then(|noise| noise.samples())),
            ("loss_scale", row.loss_scale.map(f64::from)),
        ];
        let sometimes = sometimes.into_iter().filter_map(|(name, value)| Some((name, value?)));
        Event::scalars(row.step, tagged(STEP, always.into_iter().chain(sometimes)))
    }

    fn epoch(&self, row: &EpochRow, last_step: u64) -> Event {
        let speed = format!("{}_per_second", self.unit);
        let values = [
            ("train_loss", row.train_loss),
            (&speed, row.samples_per_second),
            ("seconds_per_step", row.seconds_per_step),
            ("comm_fraction", row.comm_fraction),
            ("exposed_comm_fraction", row.exposed_comm_fraction),
        ];
        let mut values = tagged(EPOCH, values);
        let tests = row.scores.0.iter();
        values.extend(tests.map(|score| (format!("{EPOCH}{}", score.metric.column()), score.value)));
        Event::scalars(last_step, values)
    }
}

fn tagged<'a>(group: &str, values: impl IntoIterator<Item = (&'a str, f64)>) -> Vec<(String, f64)> {
    values.into_iter().map(|(name, value)| (format!("{group}{name}"), value)).collect()
}

fn is_of_epoch(event: &Event) -> bool {
    event.values().iter().any(|value| value.tag.starts_with(EPOCH))
}
