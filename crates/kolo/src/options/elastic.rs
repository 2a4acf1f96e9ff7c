//! Options for the servers of a job, and for the death of its workers.

use clap::Args;
use kolo_comm::env::MOST_PROCESSES;
use kolo_elastic::{STOP_ON, StopSignal};
use kolo_launch::Job;

/// Options for the servers of a job, its fewest workers, and the replacement of dead ones.
#[derive(Args, Default)]
pub(crate) struct Elastic {
    /// Summation servers besides the workers of this node: processes without shards that add the gradients of
    /// the others, so that these send less; the bits are the same. They pay where they have links of their
    /// own. With --sync stale they hold the weights
    #[arg(long, value_name = "SERVERS", default_value_t = 0, value_parser = processes)]
    pub(crate) servers: usize,
    /// Workers with which the job goes on at least when others die [default: 1]
    #[arg(long, value_name = "WORKERS")]
    pub(crate) min: Option<usize>,
    /// Workers that are started in place of others that died [default: 3]. Programs under `kolo launch` that
    /// are not elastic are started again as a whole so often, on one node, if this option is given
    #[arg(long, value_name = "WORKERS", value_parser = processes)]
    pub(crate) max_restarts: Option<usize>,
    /// Signals at which the job saves and ends as at SIGTERM, SIGINT, SIGHUP and SIGXCPU: usr1, usr2 or both,
    /// as for Slurm's --signal=B:USR1@120
    #[arg(long, value_name = "SIGNALS", value_delimiter = ',')]
    pub(crate) stop_on: Vec<StopSignal>,
}

fn processes(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number <= MOST_PROCESSES);
    number.ok_or_else(|| format!("give a whole number from 0 to {MOST_PROCESSES}"))
}

impl Elastic {
    /// Fewest workers with which the job continues.
    pub(crate) fn min(&self) -> usize {
        self.min.unwrap_or(1)
    }

    pub(crate) fn apply(&self, job: &mut Job) {
        // `kolo::main` has refused wrong words.
        let inherited = std::env::var(STOP_ON).ok().and_then(|text| StopSignal::list(&text).ok());
        job.stop_on = [self.stop_on.clone(), inherited.unwrap_or_default()].concat();
        job.servers = self.servers;
        job.min = self.min.unwrap_or(job.min);
        job.restarts = self.max_restarts.unwrap_or(job.restarts);
    }
}
