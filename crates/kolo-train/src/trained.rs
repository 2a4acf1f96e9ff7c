//! The result of a run for the program.

use kolo_metrics::Summary;

/// Result of a run.
#[derive(Debug)]
pub struct Trained<M> {
    /// Model after the last step; `None` on a summation server, on a worker that left earlier or joined after
    /// the end, and without [`Job::keeps_model`](crate::Job::keeps_model).
    pub model: Option<M>,
    /// The same with the averages of its weights, if the recipe has [`ema`](kolo_recipe::Recipe::ema).
    pub averaged: Option<M>,
    /// A few figures about the run, on rank 0 of a completed run.
    pub summary: Option<Summary>,
}
