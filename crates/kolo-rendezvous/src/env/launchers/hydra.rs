//! Hydra, the launcher of MPICH and of Intel MPI (`mpirun`, `mpiexec`).

use std::fs;

use super::launcher::{Launcher, Numbers};
use super::slurm::restarts;
use crate::env::variables::Variables;

pub(super) struct Hydra;

impl Launcher for Hydra {
    fn name(&self) -> &'static str {
        "MPICH's mpirun"
    }

    /// PMI_RANK alone may come from srun, whose own variables hold more.
    fn has_started(&self, variables: &Variables) -> bool {
        variables.has("PMI_RANK") && variables.has("MPI_LOCALRANKID")
    }

    fn numbers(&self) -> Numbers {
        Numbers {
            rank: &["PMI_RANK"],
            world_size: &["PMI_SIZE"],
            local_rank: &["MPI_LOCALRANKID"],
            local_world_size: &["MPI_LOCALNRANKS"],
        }
    }

    /// Hydra passes workers no name of their job, but all workers of a host descend from one proxy of Hydra.
    fn job_name(&self, variables: &Variables, one_host: bool) -> Option<String> {
        let proxy = || ancestor("hydra_pmi_proxy").filter(|_| one_host);
        // The mpiruns of one allocation share Slurm's job number, but all hosts know it.
        let slurm = || variables.get("SLURM_JOB_ID").map(|id| format!("slurm {id}.{}", restarts(variables)));
        proxy().or_else(slurm).map(|name| format!("hydra {name}"))
    }

    fn remedy(&self) -> &'static str {
        "pass them with `mpirun -genv MASTER_ADDR HOST -genv MASTER_PORT 29500`, where HOST is that of rank 0"
    }

    /// Variables of MPICH 4.0.2.
    #[cfg(test)]
    fn example(&self) -> super::launcher::Example {
        super::launcher::Example {
            variables: &[
                ("PMI_RANK", "2"),
                ("PMI_SIZE", "3"),
                ("MPI_LOCALRANKID", "2"),
                ("MPI_LOCALNRANKS", "3"),
                ("SLURM_JOB_ID", "77"),
            ],
            numbers: (2, 3, 2),
            host: "127.0.0.1",
            job: "SLURM_JOB_ID",
        }
    }
}

/// Returns the nearest ancestor process of that name as `pid.start time`, which stays unique on this host.
fn ancestor(name: &str) -> Option<String> {
    const DEEPEST: usize = 64;
    let mut pid = "self".to_string();
    for _ in 0..DEEPEST {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (called, fields) = parse_stat(&stat)?;
        if called == name {
            return Some(format!("{pid}.{}", fields.start));
        }
        pid = fields.parent.to_string();
    }
    None
}

/// Two fields of `/proc/PID/stat`: the parent's process id, and the time at which the process started.
struct Fields<'a> {
    parent: &'a str,
    start: &'a str,
}

/// Parses the process name (at most 15 bytes), the parent and the start time from `/proc/PID/stat`.
fn parse_stat(stat: &str) -> Option<(&str, Fields<'_>)> {
    // The name is in parentheses and may hold any character, closing parentheses too.
    let (head, tail) = stat.rsplit_once(") ")?;
    let (_, name) = head.split_once(" (")?;
    let fields: Vec<&str> = tail.split(' ').collect();
    // `fields` begins with the third field of the file; proc(5) counts from 1.
    Some((name, Fields { parent: fields.get(4 - 3)?, start: fields.get(22 - 3)? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_are_read() {
        let numbers: Vec<String> = (4..=52).map(|n| n.to_string()).collect();
        let stat = format!("17 (a (b) c) S {}\n", numbers.join(" "));
        let (name, fields) = parse_stat(&stat).unwrap();
        assert_eq!((name, fields.parent, fields.start), ("a (b) c", "4", "22"));
        assert!(parse_stat("17 (cut").is_none());
    }

    #[test]
    fn ancestor_processes_are_found() {
        let parent = std::os::unix::process::parent_id();
        let name = fs::read_to_string(format!("/proc/{parent}/comm")).unwrap();
        let found = ancestor(name.trim_end()).unwrap();
        assert!(found.ends_with(char::is_numeric) && found.contains('.'), "{found}");
        assert_eq!(ancestor("no such process"), None);
    }
}
