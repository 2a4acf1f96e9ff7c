//! The description of a job on this node.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kolo_comm::Rank;
use kolo_comm::env::MOST_PROCESSES;
use kolo_comm::schedule::words::counted;
use kolo_elastic::{Arbiter, StopSignal};
use kolo_run_folder::in_lines;

use crate::bind::Bind;
use crate::error::LaunchError;
use crate::unblocked_stderr::UnblockedStderr;

/// A job: one program, started as `nproc` workers and `servers` summation servers on this node.
///
/// All nodes of a job have the same number p of processes (both together) and the same `nnodes`,
/// `master_addr` and `master_port`. Each has its own `node_rank`, unless nodes may come and go. Node k has
/// the ranks `k·p … (k+1)·p − 1`, servers last.
#[derive(Clone, Debug)]
pub struct Job {
    /// The program and its arguments. A program without a slash is looked up in `PATH`.
    pub command: Vec<OsString>,
    /// Number of workers on this node, at least 1; or 0 on a node with servers.
    pub nproc: usize,
    /// Number of summation servers on this node: with `KOLO_SERVER`, they add for the workers, without
    /// shards.
    pub servers: usize,
    /// Number of nodes, at least 1; the maximum if nodes may come and go.
    pub nnodes: usize,
    /// Number of nodes with which the job begins if nodes may come and go. Nodes are numbered as they
    /// arrive, and workers start when this many are present. `None` means `nnodes`, with the given ranks.
    pub nnodes_min: Option<usize>,
    /// Number of this node, `0 ≤ node_rank < nnodes`; ignored if nodes may come and go.
    pub node_rank: usize,
    /// Host of rank 0, which serves the store: a name, or an address without brackets.
    pub master_addr: String,
    /// Port of the store. `None` selects a free one, which requires a job of one node.
    pub master_port: Option<u16>,
    /// Other addresses at which launchers find each other when rank 0's is gone.
    pub masters: Vec<(String, u16)>,
    /// Name of the job, the same on all nodes. `None` generates one: unique on one node, derived from the
    /// master's address and port on several.
    pub run_id: Option<String>,
    /// File with the job's token, the same text on all nodes. `None` uses `KOLO_TOKEN` or `KOLO_TOKEN_FILE`,
    /// or generates a token for a job of one node. Several nodes need one, unless all are on one machine.
    pub token_file: Option<PathBuf>,
    /// Variables for the workers, besides the inherited ones. The launcher's own (`RANK`, …) override them.
    pub env: Vec<(String, OsString)>,
    /// Destination of the workers' output.
    pub output: Output,
    /// Cores of the workers.
    pub bind: Bind,
    /// Format of the launcher's messages about workers that die and generations that begin.
    pub messages: Messages,
    /// Time for workers to end on request before they are killed. `None` is 30 seconds, as for job managers,
    /// but 2 after a failure of a program that is not elastic, whose workers wait for a dead one.
    pub grace: Option<Duration>,
    /// Signals besides SIGTERM, SIGINT, SIGHUP and SIGXCPU that ask the job to end. `KOLO_STOP_ON` passes
    /// them to the workers.
    pub stop_on: Vec<StopSignal>,
    /// Minimum number of workers with which an elastic job continues, at least 1.
    pub min: usize,
    /// Number of replacements for dead workers in an elastic job.
    pub restarts: usize,
    /// Number of times that all workers are restarted after one has failed, if the program is not elastic:
    /// no generation has formed. Only for jobs of one node.
    pub group_restarts: usize,
    /// Time for a worker to notice that others have died; afterwards it counts as hung and is ended.
    pub patience: Duration,
    /// Time that too few workers wait for others before the job ends.
    pub wait: Duration,
    /// Means by which launchers of several nodes that have lost each other agree which one continues; the
    /// same on all nodes.
    pub arbiter: Arbiter,
}

/// Destination of the workers' output. Standard output and standard error stay apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Prefixes every line of every worker with its rank: `[rank 0] `.
    Prefixed,
    /// Lets rank 0 of this node write straight to the launcher's streams, so that progress bars work;
    /// prefixes the others.
    RankZero,
}

/// Format of the launcher's messages on standard error while the job runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Messages {
    /// A sentence after `kolo: `.
    #[default]
    Text,
    /// A JSON object per line. Lines of workers that are objects stay so, without a rank prefix.
    Json,
}

impl Messages {
    pub(crate) fn print(self, message: &str) {
        let line = match self {
            // Names of programs, files and hosts come from outside.
            Messages::Text => format!("kolo: {}\n", in_lines(message)),
            Messages::Json => format!("{}\n", object(SystemTime::now(), message)),
        };
        // If nobody reads it, the job continues.
        let _ = UnblockedStderr.write_all(line.as_bytes());
    }
}

fn object(now: SystemTime, message: &str) -> serde_json::Value {
    let time = now.duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
    serde_json::json!({ "time_unix": time, "event": "launcher", "message": message })
}

impl Job {
    /// Creates a job on this machine alone, with a free port and prefixed output.
    pub fn new<A: Into<OsString>>(command: impl IntoIterator<Item = A>, nproc: usize) -> Job {
        Job {
            command: command.into_iter().map(Into::into).collect(),
            nproc,
            servers: 0,
            nnodes: 1,
            nnodes_min: None,
            node_rank: 0,
            master_addr: "127.0.0.1".into(),
            master_port: None,
            masters: Vec::new(),
            run_id: None,
            token_file: None,
            env: Vec::new(),
            output: Output::Prefixed,
            bind: Bind::None,
            messages: Messages::Text,
            grace: None,
            stop_on: Vec::new(),
            min: 1,
            restarts: 3,
            group_restarts: 0,
            patience: Duration::from_secs(60),
            wait: Duration::from_secs(60),
            arbiter: Arbiter::default(),
        }
    }

    /// Returns the number of workers and servers on this node.
    pub(crate) fn processes(&self) -> usize {
        self.nproc + self.servers
    }

    /// Returns the number of workers and servers of the job. Cannot overflow after [`check`](Self::check).
    pub(crate) fn world_size(&self) -> usize {
        self.processes() * self.nnodes
    }

    /// Returns true if this node's process `local` is a summation server.
    pub(crate) fn is_server(&self, local: usize) -> bool {
        local >= self.nproc
    }

    /// Returns the rank of this node's process `local`.
    pub(crate) fn rank(&self, local: usize) -> Rank {
        Rank(self.node_rank * self.processes() + local)
    }

    /// Checks the description before anything starts.
    pub(crate) fn check(&self) -> Result<(), LaunchError> {
        let invalid = |what: String, remedy: &str| Err(LaunchError::Invalid { what, remedy: remedy.into() });
        if self.command.first().is_none_or(|program| program.is_empty()) {
            return invalid("no program is given".into(), "name the program that each worker runs");
        }
        if self.nproc == 0 && self.servers == 0 {
            return invalid("the number of workers is 0".into(), "start at least one (--nproc 1)");
        }
        let processes = self.nproc.checked_add(self.servers);
        // Other nodes may have workers in place of this one's servers.
        let elsewhere = processes.unwrap_or(usize::MAX).saturating_mul(self.nnodes.saturating_sub(1));
        let most = self.nproc.saturating_add(elsewhere);
        if self.min == 0 || self.min > most.max(1) {
            let what = format!("the job needs {} of {}", self.min, counted(most, "worker"));
            return invalid(what, "--min is at least 1 and at most the number of workers");
        }
        if self.nnodes == 0 {
            return invalid("the number of nodes is 0".into(), "a job has at least one (--nnodes 1)");
        }
        let all = processes.and_then(|processes| processes.checked_mul(self.nnodes));
        if all.is_none_or(|all| all > MOST_PROCESSES) {
            let (nproc, servers) = (self.nproc, self.servers);
            let what = format!(
                "{nproc} workers and {servers} servers on each of {} is too many",
                counted(self.nnodes, "node")
            );
            let remedy = format!("a job has at most {MOST_PROCESSES}: lower --nproc, --servers or --nnodes");
            return invalid(what, &remedy);
        }
        let restarts = self.restarts.max(self.group_restarts);
        if restarts > MOST_PROCESSES {
            return invalid(
                format!("--max-restarts is {restarts}"),
                &format!("it must be at most {MOST_PROCESSES}"),
            );
        }
        if self.nproc == 0 && self.nnodes == 1 {
            let what = format!("{} without any worker", counted(self.servers, "summation server"));
            return invalid(what, "start workers, too (--nproc 1)");
        }
        if let Some(min) = self.nnodes_min.filter(|min| *min == 0 || *min > self.nnodes) {
            let what = format!("{} at least and {} at most", counted(min, "node"), self.nnodes);
            return invalid(what, "give --nnodes MIN:MAX with 1 ≤ MIN ≤ MAX");
        }
        if self.nnodes_min.is_none() && self.node_rank >= self.nnodes {
            let what =
                format!("node {} does not exist among {}", self.node_rank, counted(self.nnodes, "node"));
            return invalid(what, "nodes are counted from 0: --node-rank must be below --nnodes");
        }
        if self.nnodes > 1 && self.master_port.is_none() {
            let what = "several nodes need one port that all of them know".into();
            return invalid(what, "give every node the same --master HOST:PORT (or --master-port)");
        }
        if self.master_port == Some(0) {
            return invalid(
                "port 0 is no port to connect to".into(),
                "leave the port out, and Kolo takes a free one",
            );
        }
        match self.env.iter().find(|(name, _)| name.is_empty() || name.contains(['=', '\0'])) {
            Some((name, _)) => {
                invalid(format!("`{name}` cannot name an environment variable"), "use a name without `=`")
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_count_through_the_nodes() {
        let job = Job { nnodes: 3, node_rank: 2, ..Job::new(["true"], 4) };
        assert_eq!((job.world_size(), job.rank(0), job.rank(3)), (12, Rank(8), Rank(11)));
        let served = Job { servers: 2, ..job };
        assert_eq!((served.world_size(), served.rank(0), served.rank(5)), (18, Rank(12), Rank(17)));
        assert_eq!((served.is_server(3), served.is_server(4)), (false, true));
    }

    #[test]
    fn jobs_that_cannot_start_are_refused() {
        let good = || Job::new(["true"], 2);
        let cases: [(Job, &str); 18] = [
            (Job::new(Vec::<OsString>::new(), 2), "program"),
            (Job::new([""], 2), "program"),
            (Job { nproc: 0, ..good() }, "--nproc"),
            (Job { min: 3, servers: 2, ..good() }, "the job needs 3 of 2 workers"),
            (
                Job { min: 7, servers: 2, nnodes: 2, master_port: Some(1), ..good() },
                "the job needs 7 of 6 workers",
            ),
            (Job { nproc: 0, servers: 2, ..good() }, "2 summation servers without any worker"),
            (Job { servers: usize::MAX, master_port: Some(1), ..good() }, "--servers"),
            (Job { nnodes: 0, ..good() }, "--nnodes"),
            (Job { nproc: usize::MAX, nnodes: 2, master_port: Some(1), ..good() }, "too many"),
            (Job { nproc: MOST_PROCESSES, servers: 1, ..good() }, "at most 1048576"),
            (Job { restarts: usize::MAX, ..good() }, "--max-restarts is 18446744073709551615"),
            (Job { group_restarts: usize::MAX, ..good() }, "at most 1048576"),
            (Job { nnodes: 2, node_rank: 2, master_port: Some(1), ..good() }, "node 2"),
            (Job { nnodes: 2, nnodes_min: Some(3), ..good() }, "MIN:MAX"),
            (Job { nnodes: 2, nnodes_min: Some(0), ..good() }, "MIN:MAX"),
            (Job { nnodes: 2, ..good() }, "--master-port"),
            (Job { master_port: Some(0), ..good() }, "port 0"),
            (Job { env: vec![("A=B".into(), "".into())], ..good() }, "A=B"),
        ];
        for (job, named) in cases {
            let error = job.check().unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
        good().check().unwrap();
        Job { min: 6, servers: 2, nnodes: 2, master_port: Some(1), ..good() }.check().unwrap();
    }
}
