//! Open MPI's `mpirun`, and `prterun` of Open MPI 5.

use super::launcher::{Launcher, Numbers};
use crate::env::variables::Variables;

/// Variables that name the job. The first exists since version 4; the second is the same number in 4.1; the
/// third names mpirun's own process.
const JOB_NAMES: [&str; 3] = ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"];

/// Open MPI passes the host of mpirun, which may differ from the host of rank 0, so `rank_0_host` is `None`.
pub(super) struct OpenMpi;

impl Launcher for OpenMpi {
    fn name(&self) -> &'static str {
        "Open MPI's mpirun"
    }

    fn has_started(&self, variables: &Variables) -> bool {
        variables.has("OMPI_COMM_WORLD_RANK")
    }

    fn numbers(&self) -> Numbers {
        Numbers {
            rank: &["OMPI_COMM_WORLD_RANK"],
            world_size: &["OMPI_COMM_WORLD_SIZE"],
            local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
            local_world_size: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
        }
    }

    fn job_name(&self, variables: &Variables, _: bool) -> Option<String> {
        JOB_NAMES.iter().find_map(|name| variables.get(name)).map(|name| format!("mpirun {name}"))
    }

    fn remedy(&self) -> &'static str {
        "pass them with `mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29500`, where HOST is that of rank 0"
    }

    /// Variables of Open MPI 4.1.4.
    #[cfg(test)]
    fn example(&self) -> super::launcher::Example {
        super::launcher::Example {
            variables: &[
                ("OMPI_COMM_WORLD_RANK", "1"),
                ("OMPI_COMM_WORLD_SIZE", "3"),
                ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
                ("OMPI_COMM_WORLD_LOCAL_SIZE", "3"),
                ("OMPI_MCA_ess_base_jobid", "1641086977"),
                ("OMPI_MCA_orte_hnp_uri", "1641086976.0;tcp://192.0.2.2:56547"),
                ("PMIX_NAMESPACE", "1641086977"),
            ],
            numbers: (1, 3, 1),
            host: "127.0.0.1",
            job: "PMIX_NAMESPACE",
        }
    }
}
