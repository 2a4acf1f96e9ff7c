//! The user's output: one bar for the job on a terminal, plain lines elsewhere, and the result at the end.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kolo_ddp::sync::SyncMode;
use kolo_run_folder::in_line;
use kolo_run_folder::units::{clock, counted};

use super::console::Console;
use super::live::LogFormat;
use super::pace::Pace;
use super::sink::{MetricSink, Record, SinkEntry};
use crate::meter::{EpochRow, StepRow};
use crate::progress::Progress;
use crate::summary::Summary;
use kolo_recipe::Error;

pub(super) const ENTRY: SinkEntry = SinkEntry {
    name: "terminal",
    about: "progress on standard error, the result on standard output",
    open: |run| {
        if run.live.log_format == LogFormat::Json {
            return None;
        }
        let folder = run.folder.map(|folder| folder.path().to_owned());
        let unit = in_line(run.unit);
        let has_dashboard = run.live.screen().is_some();
        let lacks_dashboard = run.live.dashboard && !has_dashboard;
        let console = Console::open();
        Some(Box::new(Terminal {
            console,
            folder,
            epochs: 0,
            unit,
            has_dashboard,
            lacks_dashboard,
            generation: 0,
            is_alone: false,
            done_before: 0,
            shown: None,
        }))
    },
};

/// Time between two plain lines.
const EVERY: Duration = Duration::from_secs(5);

/// Message about a dashboard without a terminal.
const NO_DASHBOARD: &str =
    "--dashboard: `kolo train` has not started these workers, so no terminal is held for it; lines follow";

struct Terminal {
    console: Console,
    folder: Option<PathBuf>,
    /// Epochs of the run, from the first alignment on.
    epochs: usize,
    /// Unit that the loss counts.
    unit: String,
    /// True if a dashboard shows the steps.
    has_dashboard: bool,
    /// True until the user is told that the dashboard is impossible.
    lacks_dashboard: bool,
    /// Generation of an elastic job.
    generation: u64,
    /// True if the last figures are of a run that has had one worker, and no server, all the time.
    is_alone: bool,
    /// Steps of the run that were done before this worker began, which its times leave out.
    done_before: u64,
    /// Present from the first alignment on.
    shown: Option<Shown>,
}

struct Shown {
    /// True for a bar, false for plain lines.
    has_bar: bool,
    started: Instant,
    last_line: Instant,
    pace: Pace,
}

impl MetricSink for Terminal {
    fn record(&mut self, record: &Record<'_>) -> Result<(), Error> {
        match record {
            Record::Note(line) => self.console.say(*line),
            Record::Generation { generation, .. } => self.generation = generation.number,
            Record::Step { row, report, .. } => {
                self.step(row);
                if let Some(tuning) = &report.tuning {
                    self.console.say(tuning.to_string());
                }
            }
            Record::Continued { .. } => {}
            Record::Epoch(row) => self.epoch(row),
            Record::Summary(summary) => self.end(summary),
        }
        Ok(())
    }

    fn align(&mut self, progress: &Progress) -> Result<(), Error> {
        self.epochs = progress.planned_epochs();
        if self.shown.is_none() {
            self.shown = Some(Shown::from(progress));
            self.done_before = progress.step();
            self.console.show_progress(progress.step(), progress.total());
        }
        if std::mem::take(&mut self.lacks_dashboard) {
            self.console.say(NO_DASHBOARD);
        }
        Ok(())
    }
}

impl Shown {
    fn from(progress: &Progress) -> Self {
        let (pace, now) = (Pace::from(progress), Instant::now());
        let has_bar = std::io::stderr().is_terminal();
        Shown { has_bar, started: now, last_line: now, pace }
    }
}

impl Terminal {
    fn step(&mut self, row: &StepRow) {
        let Some(shown) = self.shown.as_mut().filter(|_| !self.has_dashboard) else { return };
        let done = row.step + 1;
        shown.pace.add(row);
        let (rate, left) = shown.pace.after(done, shown.started.elapsed());
        let line = format!(
            "epoch {}/{}  step {done}/{}  {rate:.0} {}/s  loss {:.4}  ETA {}",
            row.epoch + 1,
            self.epochs,
            shown.pace.total,
            self.unit,
            row.loss,
            clock(Duration::try_from_secs_f64(left).unwrap_or(Duration::MAX)),
        );
        if shown.has_bar {
            self.console.progress(done, line);
        } else if shown.last_line.elapsed() >= EVERY {
            shown.last_line = Instant::now();
            self.console.say(line);
        }
    }

    fn epoch(&mut self, row: &EpochRow) {
        self.is_alone = is_alone(row, self.generation);
        self.console.say(epoch_words(row, self.epochs, &self.unit, self.is_alone));
    }

    fn end(&mut self, summary: &Summary) {
        self.shown = None;
        self.console.result(in_columns(&self.results(summary)));
    }

    /// Returns the names and values of the result.
    fn results(&self, summary: &Summary) -> Vec<(String, String)> {
        let scores = summary.scores.0.iter().map(|score| (score.metric.label(), score.shown()));
        let mut lines: Vec<(String, String)> = scores.collect();
        let mut add = |name: &str, value: String| lines.push((name.into(), value));
        if let Some(best) = &summary.best {
            best.scores.0.iter().for_each(|score| {
                let place = self.folder.as_deref().and_then(|folder| best.checkpoint(folder));
                let place = place.map_or(String::new(), |path| format!(" ({path})"));
                add(
                    &format!("best {}", score.metric.label()),
                    format!("{} after step {}{place}", score.shown(), best.step),
                );
            });
        }
        add("train loss", format!("{:.4}", summary.train_loss));
        if let Some(skipped) = summary.skipped_steps {
            let is_rare = summary.sync.parse().is_ok_and(|mode: SyncMode| mode.traits().rounds.is_some());
            let of = if is_rare { "single islands".into() } else { summary.steps.to_string() };
            add("skipped steps", format!("{skipped} of {of}, because they overflowed"));
        }
        let (unit, per_second) = (&self.unit, summary.speed.per_second);
        let (all, steps) = (summary.train_seconds, summary.steps_seconds);
        add("training time", training_time(self.done_before, all, steps, per_second, unit));
        let [on_its_way, waiting] = [summary.comm_fraction, summary.exposed_comm_fraction];
        add("communication", communication(on_its_way, waiting, self.is_alone));
        if let Some(noise) = &summary.noise_scale {
            add("noise scale", noise.words(unit));
        }
        let Summary { sync, synchronized_steps, steps, summed_bytes, .. } = summary;
        // A resumed run counts those of its last part.
        if synchronized_steps < steps && sync != "every-step" {
            let (steps, summed) = (counted(*steps, "step"), *summed_bytes as f64 / 1e6);
            add(
                "synchronized",
                format!("in {synchronized_steps} of {steps} ({sync}): {summed:.1} MB summed"),
            );
        }
        if let Some(staleness) = &summary.staleness {
            add("staleness", staleness.words());
        }
        add("weights", format!("sha256 {}", summary.weights_sha256));
        summary.warnings.iter().for_each(|warning| add("warning", warning.to_string()));
        if let Some(folder) = &self.folder {
            add("run folder", folder.display().to_string());
        }
        lines
    }
}

/// Least width of the column of names.
const NAMES: usize = 15;

/// Returns a line for each name and value, the values in one column.
fn in_columns(lines: &[(String, String)]) -> String {
    let width = lines.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0).max(NAMES);
    lines.iter().map(|(name, value)| format!("{name:width$} {value}\n")).collect()
}

/// Describes the time of the run, and the part of it in which the rate was reached: steps, without the
/// start, evaluations, checkpoints that are waited for, and the time until a failed step begins again. A run
/// that was continued has the times of its last part.
fn training_time(done_before: u64, all: f64, steps: f64, per_second: f64, unit: &str) -> String {
    let since = if done_before > 0 { format!(" since step {done_before}") } else { String::new() };
    format!("{all:.1} s{since}, of which {steps:.1} s in steps at {per_second:.0} {unit}/s")
}

/// True if the figures are of a run that has had one worker, and no server, all the time: the first
/// generation of an elastic job, or a job that is not elastic.
pub(super) fn is_alone(row: &EpochRow, generation: u64) -> bool {
    row.world_size == 1 && generation <= 1
}

pub(super) fn epoch_words(row: &EpochRow, epochs: usize, unit: &str, is_alone: bool) -> String {
    let tests = row.scores.0.iter().map(|score| format!("{} {}, ", score.metric.label(), score.shown()));
    // Two digits for a part of an epoch.
    let epoch = (100.0 * row.epochs_done).round() / 100.0;
    format!(
        "epoch {}/{epochs}: train loss {:.4}, {}{:.0} {unit}/s, communication {}",
        epoch,
        row.train_loss,
        tests.collect::<String>(),
        row.samples_per_second,
        communication(row.comm_fraction, row.exposed_comm_fraction, is_alone),
    )
}

/// Describes the shares of the steps' time in which gradients were on their way, hidden behind computing or
/// not, and in which rank 0 waited for them or for workers that were late; one worker alone waits for its own
/// communication thread. Each is at most 100 %; the second one is no part of the first.
fn communication(on_its_way: f64, waiting: f64, is_alone: bool) -> String {
    let whom = if is_alone { "Kolo's own communication thread" } else { "it or for other workers" };
    format!("{:.1} % of the time, waiting for {whom} {:.1} %", 100.0 * on_its_way, 100.0 * waiting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn communication_is_told_in_shares_of_the_time() {
        let words = communication(0.173, 0.43, false);
        assert_eq!(words, "17.3 % of the time, waiting for it or for other workers 43.0 %");
        let words = communication(0.001, 0.179, true);
        assert_eq!(words, "0.1 % of the time, waiting for Kolo's own communication thread 17.9 %");
    }

    #[test]
    fn the_time_in_steps_and_the_rate_give_the_samples() {
        let words = training_time(0, 70.6, 64.9, 30_000.0 / 64.9, "images");
        assert_eq!(words, "70.6 s, of which 64.9 s in steps at 462 images/s");
        let words = training_time(122, 70.6, 64.9, 30_000.0 / 64.9, "images");
        assert_eq!(words, "70.6 s since step 122, of which 64.9 s in steps at 462 images/s");
    }

    #[test]
    fn only_a_run_that_never_had_another_worker_is_alone() {
        let row = |world_size| EpochRow { world_size, ..EpochRow::default() };
        assert!(is_alone(&row(1), 0) && is_alone(&row(1), 1));
        assert!(!is_alone(&row(2), 0) && !is_alone(&row(1), 2) && !is_alone(&row(3), 1));
    }

    #[test]
    fn a_long_name_moves_all_values() {
        let lines = |name: &str| in_columns(&[(name.into(), "1".into()), ("weights".into(), "2".into())]);
        assert_eq!(lines("val loss"), "val loss        1\nweights         2\n");
        assert_eq!(lines("val bits_per_byte"), "val bits_per_byte 1\nweights           2\n");
    }
}
