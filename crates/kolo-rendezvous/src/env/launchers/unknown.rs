//! Process managers outside the table of launchers. Kolo refuses their processes: otherwise each would train
//! alone, and all would write the same files.

use crate::env::names::{MASTER_ADDR, MASTER_PORT, PET_NNODES, RANK, WORLD_SIZE};
use crate::env::variables::Variables;

/// Variables in which a process manager passes the rank and, if available, the number of processes.
struct Manager {
    rank: &'static str,
    size: Option<&'static str>,
}

/// The first manager whose rank is set counts, so names that several managers set come last.
const MANAGERS: [Manager; 7] = [
    Manager { rank: "MV2_COMM_WORLD_RANK", size: Some("MV2_COMM_WORLD_SIZE") },
    Manager { rank: "JSM_NAMESPACE_RANK", size: Some("JSM_NAMESPACE_SIZE") },
    Manager { rank: "FLUX_TASK_RANK", size: Some("FLUX_JOB_SIZE") },
    Manager { rank: "PALS_RANKID", size: Some("PALS_SIZE") },
    Manager { rank: "ALPS_APP_PE", size: None },
    Manager { rank: "PMI_RANK", size: Some("PMI_SIZE") },
    Manager { rank: "PMIX_RANK", size: None },
];

/// Returns the rank variable of an unknown manager, and the rest of an error message about it. `None` if no
/// such variable is set, or this process is the only one.
pub(super) fn detect(variables: &Variables) -> Option<(&'static str, String)> {
    if let Some(nodes) = variables.get(PET_NNODES).filter(|nodes| nodes.trim() != "1") {
        let problem = format!(
            "is {nodes}, so this node is one of several, but nothing has started its workers: each node would train \
             alone. Put `kolo launch --` before the command, or unset {PET_NNODES}"
        );
        return Some((PET_NNODES, problem));
    }
    let manager = MANAGERS.iter().find(|manager| variables.has(manager.rank))?;
    let size = manager.size.and_then(|name| variables.get(name));
    // Slurm also sets PMI's variables in a shell of one task, which is a job by itself.
    let tasks = || variables.get("SLURM_STEP_NUM_TASKS").or_else(|| variables.get("SLURM_NTASKS"));
    if size.or_else(tasks).is_some_and(|size| size.trim() == "1") {
        return None;
    }
    let rank = manager.rank;
    let size = manager.size.map_or_else(|| "NUMBER".into(), |name| format!("${name}"));
    let problem = format!(
        "is set, so this process is one of several, but no launcher that Kolo knows has started it: each would \
         train alone. Give every process its place ({RANK}=${rank} {WORLD_SIZE}={size}, and {MASTER_ADDR} and \
         {MASTER_PORT}), start them with `kolo launch`, or unset {rank} where there is only one"
    );
    Some((rank, problem))
}
