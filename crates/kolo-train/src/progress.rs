//! What the user sees while it trains: one bar for the job on a terminal, plain lines elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::meter::{EpochRow, Meter, StepRow};

/// Seconds between two plain lines.
const EVERY: Duration = Duration::from_secs(5);

/// See the module's text. Only rank 0 has one.
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    started: Instant,
    last_line: Instant,
    first_step: u64,
    total: u64,
    epochs: usize,
}

impl Progress {
    pub(crate) fn new(first_step: u64, total: u64, epochs: usize) -> Self {
        let style = "{msg}\n[{elapsed_precise}] {wide_bar} {pos}/{len} steps";
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total).with_position(first_step);
            // The template is a constant; if it were wrong, indicatif's own would do.
            bar.set_style(
                ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            bar
        });
        let now = Instant::now();
        Progress { bar, started: now, last_line: now, first_step, total, epochs }
    }

    pub(crate) fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.println(line),
            None => eprintln!("{line}"),
        }
    }

    pub(crate) fn step(&mut self, row: &StepRow, meter: &Meter) {
        let done = row.step + 1;
        let per_step = self.started.elapsed().as_secs_f64() / (done - self.first_step) as f64;
        let left = Duration::from_secs_f64(per_step * self.total.saturating_sub(done) as f64);
        let line = format!(
            "epoch {}/{}  step {done}/{}  {:.0} images/s  loss {:.4}  ETA {}",
            row.epoch + 1,
            self.epochs,
            self.total,
            meter.images_per_second(),
            row.loss,
            clock(left),
        );
        match &self.bar {
            Some(bar) => {
                bar.set_position(done);
                bar.set_message(line);
            }
            None if self.last_line.elapsed() >= EVERY => {
                self.last_line = Instant::now();
                eprintln!("{line}");
            }
            None => {}
        }
    }

    pub(crate) fn epoch(&self, row: &EpochRow) {
        self.say(&format!(
            "epoch {}/{}: train loss {:.4}, test accuracy {:.2} %, {:.0} images/s, communication {:.1} % of the work, \
             {:.1} % of the time waited for",
            row.epoch,
            self.epochs,
            row.train_loss,
            100.0 * row.test_accuracy,
            row.images_per_second,
            100.0 * row.comm_fraction,
            100.0 * row.exposed_comm_fraction,
        ));
    }

    pub(crate) fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds / 3600 {
        0 => format!("{}:{:02}", seconds / 60, seconds % 60),
        hours => format!("{hours}:{:02}:{:02}", seconds / 60 % 60, seconds % 60),
    }
}
