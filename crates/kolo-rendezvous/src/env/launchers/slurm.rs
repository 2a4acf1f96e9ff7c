//! Slurm's `srun`.

use super::hostlist;
use super::launcher::{Launcher, Numbers};
use crate::env::variables::Variables;
use crate::error::Error;

const STEP_ID: &str = "SLURM_STEP_ID";
const TASKS: [&str; 2] = ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"];
const NODES: [&str; 3] = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"];

pub(in crate::env) struct Slurm;

/// Returns the number of times that Slurm has requeued the job, which keeps its own number: its earlier
/// workers may still end.
pub(super) fn restarts(variables: &Variables) -> String {
    variables.get("SLURM_RESTART_COUNT").unwrap_or_else(|| "0".into())
}

impl Launcher for Slurm {
    fn name(&self) -> &'static str {
        "srun"
    }

    /// Scripts of `sbatch` and shells of `salloc` have most of these variables, too, but no step: each is a
    /// job by itself. So is a step of one task, in which people work interactively.
    fn has_started(&self, variables: &Variables) -> bool {
        /// First of Slurm's reserved step numbers, for the batch script, the interactive shell and the like.
        const SPECIAL: u32 = 0xffff_fff0;
        let step = variables.get(STEP_ID).and_then(|text| text.parse::<u32>().ok());
        let alone = TASKS.iter().find_map(|name| variables.get(name)).is_none_or(|tasks| tasks == "1");
        step.is_some_and(|step| step < SPECIAL) && variables.has("SLURM_PROCID") && !alone
    }

    fn numbers(&self) -> Numbers {
        Numbers {
            rank: &["SLURM_PROCID"],
            world_size: &TASKS,
            local_rank: &["SLURM_LOCALID"],
            // `SLURM_STEP_TASKS_PER_NODE` lists all nodes; the node list shows if there is only one host.
            local_world_size: &[],
        }
    }

    /// Task 0 runs on the first node of the step's list.
    fn rank_0_host(&self, variables: &Variables) -> Result<Option<String>, Error> {
        let Some(name) = NODES.into_iter().find(|name| variables.has(name)) else {
            return Err(Error::environment(NODES[0], "is not set; set MASTER_ADDR to the host of rank 0"));
        };
        let list = variables.get(name).unwrap_or_default();
        let nodes = hostlist::expand(&list).map_err(|problem| {
            Error::environment(name, format!("is `{list}`, {problem}; set MASTER_ADDR to the host of rank 0"))
        })?;
        Ok(match nodes.as_slice() {
            [] => None,
            // The only node is this one, and its name may not resolve.
            [_] => Some("127.0.0.1".into()),
            [first, ..] => Some(first.clone()),
        })
    }

    fn job_name(&self, variables: &Variables, _: bool) -> Option<String> {
        let job = variables.get("SLURM_JOB_ID").or_else(|| variables.get("SLURM_JOBID"))?;
        let step = variables.get(STEP_ID).unwrap_or_default();
        Some(format!("slurm {job}.{step}.{}", restarts(variables)))
    }

    fn remedy(&self) -> &'static str {
        "export MASTER_ADDR (the host of rank 0) and MASTER_PORT before `srun`"
    }

    /// Variables of Slurm 22.05.
    #[cfg(test)]
    fn example(&self) -> super::launcher::Example {
        super::launcher::Example {
            variables: &[
                ("SLURM_JOB_ID", "4711"),
                ("SLURM_STEP_ID", "0"),
                ("SLURM_PROCID", "5"),
                ("SLURM_LOCALID", "1"),
                ("SLURM_NTASKS", "16"),
                ("SLURM_STEP_NUM_TASKS", "8"),
                ("SLURM_NODEID", "2"),
                ("SLURM_STEP_NODELIST", "127.0.0.[5-8]"),
            ],
            numbers: (5, 8, 1),
            host: "127.0.0.5",
            job: "SLURM_STEP_ID",
        }
    }
}
