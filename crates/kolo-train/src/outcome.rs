//! What ends the work of a worker with the ranks that there are.

/// Why a worker does not simply take the next step.
pub(crate) enum Outcome {
    /// The run is over.
    Over {
        /// The largest of all workers.
        peak_rss_bytes: u64,
    },
    /// The members of the job have changed: batches have to be prepared anew.
    Regrouped,
    /// This worker has left the job.
    Left,
    /// All workers have.
    AllLeft,
    /// The next step has ended one worker after another, for this reason.
    Poisoned(String),
}
