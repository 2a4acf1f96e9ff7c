//! `changes.jsonl`: a line for each setting that has changed since the checkpoint from which the run
//! continues.

use kolo_recipe::Error;
use kolo_run_folder::{CHANGES, JsonRow};

use super::append_file::{AppendFile, step_of};
use super::sink::{MetricSink, Record, SinkEntry};

pub(super) const ENTRY: SinkEntry = SinkEntry {
    name: CHANGES,
    about: "of a run that continues with other settings, a line per setting: the step, both values",
    open: |run| Some(Box::new(Changes(AppendFile::new(run.folder?, CHANGES, "")))),
};

struct Changes(AppendFile);

impl MetricSink for Changes {
    /// Writes the changes at a checkpoint in place of those from there on, which an earlier try has written.
    fn record(&mut self, record: &Record<'_>) -> Result<(), Error> {
        let Record::Continued { step, changes } = record else { return Ok(()) };
        let rewound = self.0.rewind(|line| step_of(line).is_some_and(|known| known < *step));
        let fail = |e: serde_json::Error| Error::encode("a changed setting", e);
        for change in *changes {
            self.0.add(&change.json().map_err(fail)?)?;
        }
        rewound.and(self.flush())
    }

    fn flush(&mut self) -> Result<(), Error> {
        // A run that keeps its settings has no such file.
        if self.0.is_waiting() { self.0.flush() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use kolo_recipe::{Recipe, RunFolder};
    use kolo_run_folder::ChangeRow;

    use super::super::live::LiveMetrics;
    use super::super::sink::SinkContext;
    use super::*;

    #[test]
    fn a_try_that_is_repeated_leaves_the_changes_of_the_last_one() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(place.path().into());
        let (config, live) = (Recipe::default(), LiveMetrics::default());
        let run =
            SinkContext { folder: Some(&folder), config: &config, metrics: &[], unit: "images", live: &live };
        let continued = |step, settings: &[&str]| {
            let row = |setting: &&str| ChangeRow {
                step,
                setting: setting.to_string(),
                before: "1".into(),
                after: "2".into(),
            };
            let changes: Vec<ChangeRow> = settings.iter().map(row).collect();
            (ENTRY.open)(&run).unwrap().record(&Record::Continued { step, changes: &changes }).unwrap();
            let text = fs::read_to_string(place.path().join(CHANGES)).unwrap_or_default();
            let rows = text.lines().map(|line| serde_json::from_str::<ChangeRow>(line).unwrap());
            rows.map(|row| format!("{} {}", row.step, row.setting)).collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        assert_eq!(continued(4, &[]), none);
        assert!(!place.path().join(CHANGES).exists());
        assert_eq!(continued(4, &["rate.lr", "dropout"]), ["4 rate.lr", "4 dropout"]);
        assert_eq!(continued(8, &["epochs"]), ["4 rate.lr", "4 dropout", "8 epochs"]);
        // Killed before the next checkpoint; the user has taken back the change, and then another one.
        assert_eq!(continued(8, &["augment"]), ["4 rate.lr", "4 dropout", "8 augment"]);
        assert_eq!(continued(8, &[]), ["4 rate.lr", "4 dropout"]);
        // The newer checkpoints are damaged.
        assert_eq!(continued(2, &["seed"]), ["2 seed"]);
    }
}
