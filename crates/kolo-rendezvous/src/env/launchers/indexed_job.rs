//! Kubernetes' Indexed Job, with one worker in each pod.

use super::launcher::{Launcher, Numbers};
use crate::env::names::{JOB_COMPLETION_INDEX, MASTER_ADDR, WORLD_SIZE};
use crate::env::variables::Variables;

pub(super) struct IndexedJob;

impl Launcher for IndexedJob {
    fn name(&self) -> &'static str {
        "an Indexed Job"
    }

    /// The pods of an Indexed Job may work apart, each on its part of a list. A manifest that sets the world
    /// size makes them one job.
    fn has_started(&self, variables: &Variables) -> bool {
        variables.has(JOB_COMPLETION_INDEX) && variables.has(WORLD_SIZE)
    }

    fn numbers(&self) -> Numbers {
        Numbers {
            rank: &[JOB_COMPLETION_INDEX],
            world_size: &[WORLD_SIZE],
            local_rank: &[],
            local_world_size: &[],
        }
    }

    fn one_worker_per_host(&self) -> bool {
        true
    }

    /// The name of pod 0 belongs to one job at a time.
    fn job_name(&self, variables: &Variables, _: bool) -> Option<String> {
        variables.get(MASTER_ADDR).map(|host| format!("indexed job of {host}"))
    }

    fn remedy(&self) -> &'static str {
        "set it in the pods' manifest: MASTER_ADDR is pod 0 by its headless service, as in train-0.train"
    }

    /// Variables of Kubernetes 1.33, and those of the manifest.
    #[cfg(test)]
    fn example(&self) -> super::launcher::Example {
        super::launcher::Example {
            variables: &[("JOB_COMPLETION_INDEX", "2"), ("WORLD_SIZE", "3"), ("MASTER_ADDR", "127.0.0.6")],
            numbers: (2, 3, 0),
            host: "127.0.0.6",
            job: "MASTER_ADDR",
        }
    }
}
