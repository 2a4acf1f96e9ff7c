//! `summary.json`: the whole run in one object, written once nothing else is missing.

use kolo_recipe::RunFolder;
use kolo_run_folder::SUMMARY;

use super::sink::{MetricSink, Record, SinkEntry};
use crate::progress::Progress;
use kolo_recipe::Error;

pub(super) const ENTRY: SinkEntry = SinkEntry {
    name: SUMMARY,
    about: "the whole run in one object, once all of its steps are done",
    open: |run| Some(Box::new(SummaryFile(run.folder?.clone()))),
};

struct SummaryFile(RunFolder);

impl MetricSink for SummaryFile {
    /// Removes the summary of a run that continues: it is not complete any more.
    fn align(&mut self, progress: &Progress) -> Result<(), Error> {
        let path = self.0.path().join(SUMMARY);
        if progress.step() < progress.total() && path.exists() {
            self.0.check_claim()?;
            std::fs::remove_file(&path).map_err(|e| Error::file(&path, e))?;
        }
        Ok(())
    }

    fn record(&mut self, record: &Record<'_>) -> Result<(), Error> {
        let Record::Summary(summary) = record else { return Ok(()) };
        let fail = |e: serde_json::Error| Error::encode("the summary", e);
        let text = serde_json::to_string_pretty(summary).map_err(fail)?;
        self.0.sync_lines()?;
        self.0.write(&self.0.path().join(SUMMARY), (text + "\n").as_bytes())
    }
}
