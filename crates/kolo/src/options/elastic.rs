//! Options of the commands that start workers: how a job goes on when workers die.

use clap::Args;
use kolo_launch::Job;

/// With how many workers a job goes on when one dies, and how many are started in place of dead ones.
#[derive(Args, Default)]
pub(crate) struct Elastic {
    /// Workers with which the job goes on at least when others die [default: 1]
    #[arg(long, value_name = "WORKERS")]
    min: Option<usize>,
    /// Workers that are started in place of others that died [default: 3]
    #[arg(long, value_name = "WORKERS")]
    max_restarts: Option<usize>,
}

impl Elastic {
    /// Workers with which the job goes on at least.
    pub(crate) fn min(&self) -> usize {
        self.min.unwrap_or(1)
    }

    pub(crate) fn apply(&self, job: &mut Job) {
        job.min = self.min.unwrap_or(job.min);
        job.restarts = self.max_restarts.unwrap_or(job.restarts);
    }
}
