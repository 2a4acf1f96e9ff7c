//! `--dashboard`: a live view of the run on the terminal that the launcher holds.

use std::path::PathBuf;

use kolo_dashboard::{Bucket, Painter, RunState};
use kolo_ddp::StepReport;
use kolo_ddp::checkpoint::tell;
use kolo_run_folder::in_line;

use super::ranks::comparison;
use super::sink::{MetricSink, Record, SinkContext, SinkEntry};
use super::terminal::{epoch_words, is_alone};
use crate::meter::StepRow;
use crate::progress::Progress;
use kolo_recipe::Error;

pub(super) const ENTRY: SinkEntry = SinkEntry {
    name: "dashboard",
    about: "with --dashboard, on the terminal: loss, throughput, where the time goes, ranks, buckets",
    open: |run| {
        let tty = run.live.screen()?;
        let unit = in_line(run.unit);
        let workers = run.config.nproc;
        let title = title(run);
        Some(Box::new(Dashboard { tty, title, unit, workers, generation: 0, painter: None, is_lost: false }))
    },
};

struct Dashboard {
    tty: PathBuf,
    title: String,
    /// Unit that the loss counts.
    unit: String,
    /// Workers with which the run began.
    workers: usize,
    /// Generation of an elastic job.
    generation: u64,
    /// Present from the first alignment on.
    painter: Option<Painter>,
    /// True if the terminal has been closed.
    is_lost: bool,
}

impl MetricSink for Dashboard {
    fn record(&mut self, record: &Record<'_>) -> Result<(), Error> {
        if let Record::Generation { generation, .. } = record {
            self.generation = generation.number;
        }
        let number = self.generation;
        let Some(painter) = &self.painter else { return Ok(()) };
        painter.update(|run| match record {
            Record::Note(line) => run.say(*line),
            Record::Generation { generation, world_size } => {
                run.begin_generation(generation.number, *world_size);
                run.say(format!("generation {}: {}", generation.number, generation.reason));
            }
            Record::Step { row, report, .. } => step(run, row, report, number),
            Record::Epoch(row) => {
                let words = epoch_words(row, run.epochs, &run.unit, is_alone(row, number));
                run.say(words);
            }
            Record::Summary(_) | Record::Continued { .. } => {}
        });
        Ok(())
    }

    fn align(&mut self, progress: &Progress) -> Result<(), Error> {
        match &self.painter {
            Some(painter) => painter.update(|run| run.go_on_from(progress.step())),
            None if self.is_lost => {}
            None => {
                let (title, unit) = (self.title.clone(), self.unit.clone());
                let mut run =
                    RunState::new(title, unit, progress.planned_epochs(), progress.step(), progress.total());
                run.world_size = Some(self.workers);
                // The user may close the terminal before a worker becomes rank 0.
                match Painter::start(&self.tty, run) {
                    Ok(painter) => self.painter = Some(painter),
                    Err(error) => {
                        self.is_lost = true;
                        let tty = self.tty.display();
                        tell(&format_args!("--dashboard: {tty}: {error}; training continues without it"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the model, the data and the run folder.
fn title(run: &SinkContext<'_>) -> String {
    let folder = run.folder.map_or_else(String::new, |folder| format!(" · {}", folder.path().display()));
    format!("{}{}{folder}", run.config.model, run.config.on_data())
}

fn step(run: &mut RunState, row: &StepRow, report: &StepReport, generation: u64) {
    run.step(row.written());
    if !report.traffic.buckets.is_empty() {
        let bucket = |timing: &kolo_ddp::BucketTiming| Bucket {
            bytes: timing.bytes,
            seconds: timing.seconds,
            exposed: timing.exposed,
        };
        run.buckets = report.traffic.buckets.iter().map(bucket).collect();
    }
    if !report.times.of_ranks.is_empty() {
        run.ranks = Some(comparison(row.step, generation, &report.times.of_ranks));
    }
    report.warnings.iter().for_each(|warning| run.say(warning.to_string()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::Calendar;

    #[test]
    fn a_terminal_that_is_gone_ends_nothing() {
        let (tty, title, unit) = ("/dev/pts/none".into(), "mlp".into(), "images".into());
        let mut dashboard =
            Dashboard { tty, title, unit, workers: 2, generation: 2, painter: None, is_lost: false };
        let progress = Progress::at(40, Calendar::for_tests(10, 100));
        dashboard.align(&progress).unwrap();
        dashboard.align(&progress).unwrap();
        dashboard.record(&Record::Note("continues")).unwrap();
    }
}
