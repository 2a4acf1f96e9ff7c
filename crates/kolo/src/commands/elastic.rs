//! What becomes of a job whose workers die: options of the commands that start workers.

use clap::Args;
use kolo_launch::Job;

/// When a worker dies, the others go on, and another one is started.
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
