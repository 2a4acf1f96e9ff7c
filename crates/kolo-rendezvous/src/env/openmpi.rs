//! Open MPI's `mpirun`, and `prterun` of Open MPI 5.

use super::Launcher;
use super::variables::Variables;

pub(super) static OPEN_MPI: Launcher = Launcher {
    name: "Open MPI's mpirun",
    recognise: |variables| variables.has("OMPI_COMM_WORLD_RANK"),
    rank: &["OMPI_COMM_WORLD_RANK"],
    world_size: &["OMPI_COMM_WORLD_SIZE"],
    local_rank: &["OMPI_COMM_WORLD_LOCAL_RANK"],
    local_world_size: &["OMPI_COMM_WORLD_LOCAL_SIZE"],
    takes_port: |_| false,
    // It tells where mpirun is, which need not be where rank 0 is.
    host: |_| Ok(None),
    job,
    remedy: "pass them with `mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29500`, where HOST is that of rank 0",
};

/// The first is there since version 4; the second is the same number in 4.1; the third names mpirun's own process.
const NAMES: [&str; 3] = ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"];

fn job(variables: &Variables, _: bool) -> Option<String> {
    NAMES.iter().find_map(|name| variables.get(name)).map(|name| format!("mpirun {name}"))
}
