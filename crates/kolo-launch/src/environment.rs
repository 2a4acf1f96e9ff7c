//! The environment variables of a worker, which are torchrun's. The launcher sets all of them, not only
//! those that Kolo reads: programs for torchrun find what they expect, and inherit none of another launcher.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::Path;

use kolo_comm::env;
use kolo_elastic::{COORDINATOR, MEMBER, STOP_ON};

use crate::error_file::LAUNCHER_PID;
use crate::job::Job;
use crate::token::TokenSource;

/// Rendezvous of a job's workers: its address and settings, which all of them receive.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    /// Port of the store.
    pub port: u16,
    /// Name of the job.
    pub run_id: String,
    /// Source of the workers' token.
    pub token: TokenSource,
    /// Address of an elastic job's coordinator.
    pub coordinator: Option<SocketAddr>,
    /// Number of times that all workers have been restarted.
    pub group_restarts: usize,
    /// Number of workers of the whole job with the maximum number of nodes.
    pub most_workers: usize,
}

/// Returns the variables of this node's worker `local`, which replaces `before` earlier ones.
///
/// `inherited` returns true for variables of the launcher's own environment: those are the user's choice,
/// which defaults must not override.
pub(crate) fn variables(
    job: &Job,
    rendezvous: &Rendezvous,
    local: usize,
    before: usize,
    member: &str,
    error_file: &Path,
    inherited: impl Fn(&str) -> bool,
) -> Vec<(String, OsString)> {
    let rank = job.rank(local).0.to_string();
    let world_size = job.world_size().to_string();
    let is_chosen = |name: &str| inherited(name) || job.env.iter().any(|(n, _)| n == name);
    let defaults = [
        // One thread per worker, as torchrun sets it: N workers with a thread for each core slow each other
        // down, and results could depend on the machine.
        ("OMP_NUM_THREADS", "1"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    ];
    let stop_on = job.stop_on.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    let set = [
        (env::RANK, rank.clone()),
        (env::WORLD_SIZE, world_size.clone()),
        (env::LOCAL_RANK, local.to_string()),
        (env::LOCAL_WORLD_SIZE, job.processes().to_string()),
        (env::GROUP_RANK, job.node_rank.to_string()),
        ("GROUP_WORLD_SIZE", job.nnodes.to_string()),
        // Roles are torchrun's way to mix programs in one job; here there is one role.
        ("ROLE_NAME", "default".into()),
        ("ROLE_RANK", rank),
        ("ROLE_WORLD_SIZE", world_size),
        (env::MASTER_ADDR, job.master_addr.clone()),
        (env::MASTER_PORT, rendezvous.port.to_string()),
        (env::RUN_ID, rendezvous.run_id.clone()),
        (env::SERVER, u8::from(job.is_server(local)).to_string()),
        (env::SERVERS, (job.servers * job.nnodes).to_string()),
        (env::MOST_WORKERS, rendezvous.most_workers.to_string()),
        ("TORCHELASTIC_RESTART_COUNT", (rendezvous.group_restarts + before).to_string()),
        ("TORCHELASTIC_MAX_RESTARTS", job.restarts.max(job.group_restarts).to_string()),
        // The launcher shows the errors of its own children.
        (LAUNCHER_PID, std::process::id().to_string()),
        (STOP_ON, stop_on),
        // Rank 0 serves the store, not the launcher.
        ("TORCHELASTIC_USE_AGENT_STORE", "False".into()),
    ];
    let defaults =
        defaults.into_iter().filter(|(name, _)| !is_chosen(name)).map(|(n, v)| (n.into(), v.into()));
    let set = set.into_iter().map(|(name, value)| (name.into(), value.into()));
    let error_file = (env::ERROR_FILE.into(), error_file.into());
    // The last value of a name counts.
    let token = rendezvous.token.variables().0;
    let elastic = rendezvous.coordinator.into_iter().flat_map(|address| {
        [(COORDINATOR.into(), address.to_string().into()), (MEMBER.into(), member.into())]
    });
    job.env
        .iter()
        .cloned()
        .chain(defaults)
        .chain(set)
        .chain([error_file])
        .chain(elastic)
        .chain(token)
        .collect()
}

/// Returns the job's name: the user's, or one that is unique on this machine, because workers name shared
/// memory and files after it. Nodes that cannot communicate yet derive it from the master's address.
pub(crate) fn run_id(job: &Job, port: u16) -> String {
    match &job.run_id {
        Some(given) => given.clone(),
        None if job.nnodes > 1 || job.nnodes_min.is_some() => format!("kolo-{}-{port}", job.master_addr),
        None => {
            let since_1970 = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            format!("kolo-{}-{:x}-{port}", std::process::id(), since_1970.as_nanos())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn read(job: &Job, local: usize, inherited: &[&str]) -> HashMap<String, String> {
        let rendezvous = Rendezvous {
            port: 1234,
            run_id: "name".into(),
            token: TokenSource::Inherited,
            coordinator: None,
            group_restarts: 1,
            most_workers: 12,
        };
        variables(job, &rendezvous, local, 2, "node0/0.0", Path::new("/errors/1"), |name| {
            inherited.contains(&name)
        })
        .into_iter()
        .map(|(name, value)| (name, value.into_string().unwrap()))
        .collect()
    }

    #[test]
    fn ranks_of_a_later_node() {
        let job = Job { nnodes: 2, node_rank: 1, master_addr: "head".into(), ..Job::new(["true"], 4) };
        let seen = read(&job, 3, &[]);
        for (name, value) in [
            ("RANK", "7"),
            ("WORLD_SIZE", "8"),
            ("LOCAL_RANK", "3"),
            ("LOCAL_WORLD_SIZE", "4"),
            ("GROUP_RANK", "1"),
            ("GROUP_WORLD_SIZE", "2"),
            ("KOLO_MOST_WORKERS", "12"),
            ("ROLE_RANK", "7"),
            ("ROLE_WORLD_SIZE", "8"),
            ("MASTER_ADDR", "head"),
            ("MASTER_PORT", "1234"),
            ("TORCHELASTIC_RUN_ID", "name"),
            ("TORCHELASTIC_RESTART_COUNT", "3"),
            ("TORCHELASTIC_MAX_RESTARTS", "3"),
            ("TORCHELASTIC_ERROR_FILE", "/errors/1"),
            ("TORCHELASTIC_USE_AGENT_STORE", "False"),
            ("OMP_NUM_THREADS", "1"),
            ("KOLO_STOP_ON", ""),
        ] {
            assert_eq!(seen.get(name).map(String::as_str), Some(value), "{name}");
        }
    }

    #[test]
    fn the_last_processes_of_a_node_are_its_servers() {
        let job = Job { servers: 2, nnodes: 2, node_rank: 1, ..Job::new(["true"], 3) };
        for (local, rank, server) in [(0, "5", "0"), (2, "7", "0"), (3, "8", "1"), (4, "9", "1")] {
            let seen = read(&job, local, &["KOLO_SERVER"]);
            assert_eq!((seen["RANK"].as_str(), seen["KOLO_SERVER"].as_str()), (rank, server));
            assert_eq!((seen["WORLD_SIZE"].as_str(), seen["KOLO_SERVERS"].as_str()), ("10", "4"));
        }
    }

    #[test]
    fn wishes_win_over_defaults_but_not_over_the_place() {
        let mut job = Job::new(["true"], 1);
        assert!(!read(&job, 0, &["OMP_NUM_THREADS"]).contains_key("OMP_NUM_THREADS"));
        job.env = vec![("OMP_NUM_THREADS".into(), "8".into()), ("RANK".into(), "5".into())];
        let seen = read(&job, 0, &[]);
        assert_eq!((seen["OMP_NUM_THREADS"].as_str(), seen["RANK"].as_str()), ("8", "0"));
    }

    #[test]
    fn names_differ_between_jobs_and_agree_between_nodes() {
        let one = Job::new(["true"], 1);
        assert_ne!(run_id(&one, 1), run_id(&one, 2));
        let node = |node_rank| Job { nnodes: 2, node_rank, ..Job::new(["true"], 1) };
        assert_eq!(run_id(&node(0), 7), run_id(&node(1), 7));
        let begun_alone = Job { nnodes_min: Some(1), nnodes: 1, ..node(0) };
        assert_eq!(run_id(&begun_alone, 7), run_id(&node(1), 7));
        assert_eq!(run_id(&Job { run_id: Some("mine".into()), ..node(0) }, 7), "mine");
    }
}
