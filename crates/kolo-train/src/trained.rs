//! What a run leaves to the program.

use crate::summary::Summary;

/// What has come of a run.
#[derive(Debug)]
pub struct Trained<M> {
    /// The model after the last step; `None` on a worker that has left before, or came when the run was over,
    /// and on a summation server.
    pub model: Option<M>,
    /// The run in a few figures: rank 0's, of a run that has come to its end.
    pub summary: Option<Summary>,
}
