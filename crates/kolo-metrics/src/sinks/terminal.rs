//! The user's output: one bar for the job on a terminal, plain lines elsewhere, and the result at the end.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kolo_ddp::sync::SyncMode;
use kolo_run_folder::in_line;
use kolo_run_folder::units::{clock, counted};

use super::console::Console;
use super::live::LogFormat;
use super::sink::{MetricSink, Record, SinkEntry};
use crate::meter::{EpochRow, Meter, StepRow};
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
    /// Present from the first alignment on.
    shown: Option<Shown>,
}

struct Shown {
    /// True for a bar, false for plain lines.
    has_bar: bool,
    started: Instant,
    last_line: Instant,
    first_step: u64,
    total: u64,
}

impl MetricSink for Terminal {
    fn record(&mut self, record: &Record<'_>) -> Result<(), Error> {
        match record {
            Record::Note(line) => self.console.say(*line),
            Record::Generation { .. } => {}
            Record::Step { row, epoch, report } => {
                self.step(row, epoch);
                if let Some(tuning) = &report.tuning {
                    self.console.say(tuning.to_string());
                }
            }
            Record::Epoch(row) => self.epoch(row),
            Record::Summary(summary) => self.end(summary),
        }
        Ok(())
    }

    fn align(&mut self, progress: &Progress) -> Result<(), Error> {
        self.epochs = progress.planned_epochs();
        if self.shown.is_none() {
            self.shown = Some(Shown::from(progress));
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
        let (first_step, total, now) = (progress.step(), progress.total(), Instant::now());
        let has_bar = std::io::stderr().is_terminal();
        Shown { has_bar, started: now, last_line: now, first_step, total }
    }
}

impl Terminal {
    fn step(&mut self, row: &StepRow, epoch: &Meter) {
        let Some(shown) = self.shown.as_mut().filter(|_| !self.has_dashboard) else { return };
        let done = row.step + 1;
        let per_step =
            shown.started.elapsed().as_secs_f64() / done.saturating_sub(shown.first_step).max(1) as f64;
        let left = Duration::from_secs_f64(per_step * shown.total.saturating_sub(done) as f64);
        let line = format!(
            "epoch {}/{}  step {done}/{}  {:.0} {}/s  loss {:.4}  ETA {}",
            row.epoch + 1,
            self.epochs,
            shown.total,
            epoch.samples_per_second(),
            self.unit,
            row.loss,
            clock(left),
        );
        if shown.has_bar {
            self.console.progress(done, line);
        } else if shown.last_line.elapsed() >= EVERY {
            shown.last_line = Instant::now();
            self.console.say(line);
        }
    }

    fn epoch(&self, row: &EpochRow) {
        self.console.say(epoch_words(row, self.epochs, &self.unit));
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
        add("train loss", format!("{:.4}", summary.train_loss));
        if let Some(skipped) = summary.skipped_steps {
            let is_rare = summary.sync.parse().is_ok_and(|mode: SyncMode| mode.traits().rounds.is_some());
            let of = if is_rare { "single islands".into() } else { summary.steps.to_string() };
            add("skipped steps", format!("{skipped} of {of}, because they overflowed"));
        }
        let (unit, per_second) = (&self.unit, summary.speed.per_second);
        add("training time", format!("{:.1} s, {per_second:.0} {unit}/s", summary.train_seconds));
        add("communication", communication(summary.comm_fraction, summary.exposed_comm_fraction));
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

pub(super) fn epoch_words(row: &EpochRow, epochs: usize, unit: &str) -> String {
    let tests = row.scores.0.iter().map(|score| format!("{} {}, ", score.metric.label(), score.shown()));
    // Two digits for a part of an epoch.
    let epoch = (100.0 * row.epochs_done).round() / 100.0;
    format!(
        "epoch {}/{epochs}: train loss {:.4}, {}{:.0} {unit}/s, communication {}",
        epoch,
        row.train_loss,
        tests.collect::<String>(),
        row.samples_per_second,
        communication(row.comm_fraction, row.exposed_comm_fraction),
    )
}

/// Describes the shares of the steps' time in which gradients were on their way, hidden behind computing or
/// not, and in which rank 0 waited for them or for workers that were late. Each is at most 100 %; the second
/// one is no part of the first.
fn communication(on_its_way: f64, waiting: f64) -> String {
    format!(
        "{:.1} % of the time, waiting for it or for other workers {:.1} %",
        100.0 * on_its_way,
        100.0 * waiting
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn communication_is_told_in_shares_of_the_time() {
        let words = communication(0.173, 0.43);
        assert_eq!(words, "17.3 % of the time, waiting for it or for other workers 43.0 %");
    }

    #[test]
    fn a_long_name_moves_all_values() {
        let lines = |name: &str| in_columns(&[(name.into(), "1".into()), ("weights".into(), "2".into())]);
        assert_eq!(lines("val loss"), "val loss        1\nweights         2\n");
        assert_eq!(lines("val bits_per_byte"), "val bits_per_byte 1\nweights           2\n");
    }
}
