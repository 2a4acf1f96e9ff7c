//! Events that end a worker's loop with the present ranks.

/// Reason that a worker does not simply take the next step.
pub(crate) enum Outcome {
    /// The run is over.
    Over {
        /// Peak memory in bytes, the largest of all workers.
        peak_rss_bytes: u64,
    },
    /// The members of the job have changed: batches must be prepared again.
    Regrouped,
    /// This worker has left the job.
    Left,
    /// All workers have left the job.
    AllLeft,
    /// All workers save and end here for this reason: the next step has ended one worker after another, or
    /// too few workers are left.
    Ends(String),
}
