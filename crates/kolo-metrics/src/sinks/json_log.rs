//! `--log-format json`: the terminal's output for programs, an object on each line.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use kolo_run_folder::unix_seconds;
use serde_json::{Map, Value, json};

use super::console::Console;
use super::live::LogFormat;
use super::pace::Pace;
use super::sink::{MetricSink, Record, SinkEntry};
use crate::meter::{EpochRow, StepRow};
use crate::progress::Progress;
use crate::summary::Summary;
use kolo_recipe::Error;

pub(super) const ENTRY: SinkEntry = SinkEntry {
    name: "json log",
    about: "with --log-format json, in place of the terminal: progress and messages on standard error, the \
            result on standard output, a JSON object per line",
    open: |run| {
        let folder = run.folder.map(|folder| folder.path().to_owned());
        let job = Job { folder, epochs: 0, unit: run.unit.into() };
        (run.live.log_format == LogFormat::Json).then(|| -> Box<dyn MetricSink> {
            Box::new(JsonLog { console: Console::open(), job, clock: None })
        })
    },
};

/// Time between two lines of progress: `steps.jsonl` has every step.
const EVERY: Duration = Duration::from_secs(5);

struct JsonLog {
    console: Console,
    job: Job,
    /// Present from the first alignment on.
    clock: Option<Clock>,
}

struct Job {
    folder: Option<PathBuf>,
    /// Epochs of the run, from the first alignment on.
    epochs: usize,
    /// Unit that the loss counts.
    unit: String,
}

struct Clock {
    started: Instant,
    /// Time of the last line of progress; `None` before the first step.
    told: Option<Instant>,
    pace: Pace,
}

impl MetricSink for JsonLog {
    fn record(&mut self, record: &Record<'_>) -> Result<(), Error> {
        let event = match record {
            Record::Continued { .. } => return Ok(()),
            Record::Note(line) => event("note", [("message", json!(line))]),
            Record::Generation { generation, world_size } => event(
                "generation",
                [
                    ("generation", json!(generation.number)),
                    ("world_size", json!(world_size)),
                    ("reason", json!(generation.reason)),
                ],
            ),
            Record::Step { row, .. } => {
                let Some(clock) = &mut self.clock else { return Ok(()) };
                clock.pace.add(row);
                if !clock.is_due() {
                    return Ok(());
                }
                self.job.progress(row, &clock.pace, clock.started.elapsed())
            }
            Record::Epoch(row) => self.job.epoch(row),
            Record::Summary(summary) => {
                self.console.result(format!("{}\n", self.job.result(summary)?));
                return Ok(());
            }
        };
        self.console.say(event.to_string());
        Ok(())
    }

    fn align(&mut self, progress: &Progress) -> Result<(), Error> {
        self.job.epochs = progress.planned_epochs();
        let (started, pace) = (Instant::now(), Pace::from(progress));
        self.clock.get_or_insert(Clock { started, told: None, pace });
        Ok(())
    }
}

impl Clock {
    /// Returns true if a line of progress is due, and counts it as written.
    fn is_due(&mut self) -> bool {
        let is_due = self.told.is_none_or(|told| told.elapsed() >= EVERY);
        if is_due {
            self.told = Some(Instant::now());
        }
        is_due
    }
}

impl Job {
    fn progress(&self, row: &StepRow, pace: &Pace, elapsed: Duration) -> Value {
        let (rate, left) = pace.after(row.step + 1, elapsed);
        let mut event = event(
            "progress",
            [
                ("step", json!(row.step + 1)),
                ("steps", json!(pace.total)),
                ("epoch", json!(row.epoch + 1)),
                ("epochs", json!(self.epochs)),
                ("loss", json!(row.loss)),
                ("learning_rate", json!(row.learning_rate)),
                ("eta_seconds", json!(left)),
            ],
        );
        event[self.speed()] = json!(rate);
        event
    }

    fn epoch(&self, row: &EpochRow) -> Value {
        let mut event = event(
            "epoch",
            [
                ("epoch", json!(row.epoch)),
                ("epochs_done", json!(row.epochs_done)),
                ("epochs", json!(self.epochs)),
                ("train_loss", json!(row.train_loss)),
                ("learning_rate", json!(row.learning_rate)),
                ("seconds_per_step", json!(row.seconds_per_step)),
                ("comm_fraction", json!(row.comm_fraction)),
                ("exposed_comm_fraction", json!(row.exposed_comm_fraction)),
            ],
        );
        event[self.speed()] = json!(row.samples_per_second);
        for score in &row.scores.0 {
            event[score.metric.column()] = json!(score.value);
        }
        event
    }

    fn result(&self, summary: &Summary) -> Result<Value, Error> {
        let fail = |e: serde_json::Error| Error::encode("the summary", e);
        let Value::Object(fields) = serde_json::to_value(summary).map_err(fail)? else {
            return Ok(Value::Null);
        };
        let mut event = event("result", [("run_folder", json!(self.folder))]);
        fields.into_iter().for_each(|(name, value)| event[name] = value);
        Ok(event)
    }

    fn speed(&self) -> String {
        format!("{}_per_second", self.unit)
    }
}

/// Makes an object with the time and the name of an event.
fn event<const N: usize>(name: &str, fields: [(&str, Value); N]) -> Value {
    let mut event = Map::new();
    event.insert("time_unix".into(), json!(unix_seconds(SystemTime::now())));
    event.insert("event".into(), json!(name));
    event.extend(fields.map(|(name, value)| (name.to_owned(), value)));
    Value::Object(event)
}

#[cfg(test)]
mod tests {
    use kolo_ddp::StepReport;

    use super::*;
    use crate::calendar::Calendar;
    use crate::metric::{Metric, Score, Scores};

    #[test]
    fn events_have_their_figures_by_name() {
        let job = Job { folder: None, epochs: 3, unit: "tokens".into() };
        let pace = Pace::from(&Progress::at(0, Calendar::for_tests(20, 40)));
        let mut clock = Clock { started: Instant::now(), told: None, pace };
        assert!(clock.is_due() && !clock.is_due(), "the first step is told, and then one each time");
        let report = StepReport { loss: f64::NAN, ..StepReport::default() };
        let row = StepRow::new(9, 0, 0.1, Duration::from_millis(50), &report);
        let event = job.progress(&row, &clock.pace, Duration::from_secs(1));
        assert_eq!(
            [&event["event"], &event["step"], &event["loss"]],
            [&json!("progress"), &json!(10), &Value::Null]
        );
        assert!(event["tokens_per_second"].is_number() && event["time_unix"].as_f64() > Some(1.7e9));
        let row = EpochRow {
            epoch: 1,
            steps: 20,
            epochs_done: 0.25,
            world_size: 2,
            seconds_per_step: 0.05,
            samples_per_second: 80.0,
            comm_fraction: 0.2,
            exposed_comm_fraction: 0.1,
            train_loss: 0.5,
            scores: Scores(vec![Score { metric: Metric::ACCURACY, value: 0.75 }]),
            learning_rate: 0.01,
            noise_scale: None,
        };
        let event = job.epoch(&row);
        assert_eq!((&event["test_accuracy"], &event["tokens_per_second"]), (&json!(0.75), &json!(80.0)));
        assert_eq!((&event["epoch"], &event["epochs_done"]), (&json!(1), &json!(0.25)));
        assert!(!event.to_string().contains('\n'));
    }
}
