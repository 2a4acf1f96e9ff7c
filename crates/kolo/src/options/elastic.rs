//! Options for the servers of a job, and for the death of its workers.

use clap::Args;
use kolo_comm::env::MOST_PROCESSES;
use kolo_elastic::{STOP_ON, StopSignal};
use kolo_launch::Job;
use kolo_recipe::Recipe;

/// Options for the servers of a job, its fewest workers, and the replacement of dead ones.
#[derive(Args, Default)]
pub(crate) struct Elastic {
    /// Summation servers on this node, besides its workers. Servers have no shards: they add the workers'
    /// gradients, so that workers send less, in the same bits. They help if they have network links of
    /// their own. With --sync stale they hold the weights [default: 0, or 1 with --sync stale]
    #[arg(long, value_name = "SERVERS", value_parser = processes)]
    pub(crate) servers: Option<usize>,
    /// Fewest workers with which the job continues when others die [default: 1]
    #[arg(long, value_name = "WORKERS")]
    pub(crate) min: Option<usize>,
    /// Number of dead workers that Kolo replaces [default: 3]. If a program under `kolo launch` is not
    /// elastic, this option restarts all its workers, on one node, up to this many times
    #[arg(long, value_name = "WORKERS", value_parser = processes)]
    pub(crate) max_restarts: Option<usize>,
    /// More signals at which the job saves and ends: usr1, usr2 or usr1,usr2, for example for Slurm's
    /// --signal=B:USR1@120. SIGTERM, SIGINT, SIGHUP and SIGXCPU always do that
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

    /// Servers of a run: if their number is not given, one for weights that are on servers.
    pub(crate) fn servers_of(&self, run: &Recipe) -> usize {
        self.servers.unwrap_or(run.sync.mode.traits().staleness_bound.is_some().into())
    }

    /// Signals besides the usual ones at which the job ends: those given, and those of the environment.
    pub(crate) fn stop_signals(&self) -> Vec<StopSignal> {
        // `kolo::main` has refused wrong words.
        let inherited = std::env::var(STOP_ON).ok().and_then(|text| StopSignal::list(&text).ok());
        [self.stop_on.clone(), inherited.unwrap_or_default()].concat()
    }

    pub(crate) fn apply(&self, job: &mut Job) {
        job.stop_on = self.stop_signals();
        job.servers = self.servers.unwrap_or(0);
        job.min = self.min.unwrap_or(job.min);
        job.restarts = self.max_restarts.unwrap_or(job.restarts);
    }
}
