//! The timeline of a run (`--trace`): each rank records its part, and rank 0 joins them.

use std::path::PathBuf;

use kolo_metrics::LiveMetrics;

use crate::error::Error;

/// This worker's part of a timeline, if the user wants one.
pub(crate) struct Timeline {
    file: Option<PathBuf>,
}

impl Timeline {
    /// Begins to record.
    pub(crate) fn begin(live: &LiveMetrics) -> Result<Self, Error> {
        let file = live.trace.clone();
        if let Some(file) = &file {
            let steps = live.trace_steps.clone().unwrap_or_default();
            kolo_trace::record(&kolo_trace::parts_folder(file), steps)?;
        }
        Ok(Timeline { file })
    }

    /// Ends the recording. Rank 0 joins the parts at the end of a run, after the others have written theirs
    /// ([`close`]). A failure gives a warning, and fails nothing else.
    pub(crate) fn end(self, joins: bool) {
        close();
        let Some(file) = self.file.filter(|_| joins) else { return };
        match kolo_trace::join(&file) {
            Ok(joined) => {
                let (file, ranks) = (file.display(), joined.processes);
                log::info!("{file} has {} events of {ranks} processes", joined.events);
            }
            Err(error) => kolo_ddp::checkpoint::tell(&error.to_string()),
        }
    }
}

/// Writes this worker's part and stops recording, before the last collective of a run.
pub(crate) fn close() {
    if let Err(error) = kolo_trace::finish() {
        kolo_ddp::checkpoint::tell(&format!("the timeline is not whole: {error}"));
    }
}
