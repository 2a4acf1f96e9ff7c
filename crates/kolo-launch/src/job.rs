//! The description of a job on this node.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kolo_comm::Rank;
use kolo_elastic::{Arbiter, StopSignal};

use crate::error::LaunchError;

/// A job: one program, started as `nproc` workers on this node, and perhaps as `servers` summation servers.
///
/// All nodes of a job are started with the same number p of both together, the same `nnodes`, `master_addr`
/// and `master_port`, each with its own `node_rank`, unless nodes may come and go. Node k has the ranks `k·p
/// … (k+1)·p − 1`, servers last.
#[derive(Clone, Debug)]
pub struct Job {
    /// The program and its arguments. A program without a slash is looked up in `PATH`.
    pub command: Vec<OsString>,
    /// Workers on this node, at least 1; or none, where it has servers.
    pub nproc: usize,
    /// Summation servers on this node: processes that are told by `KOLO_SERVER` that they have no shards, and
    /// add for the workers.
    pub servers: usize,
    /// Nodes of the job, at least 1; at most so many where nodes may come and go.
    pub nnodes: usize,
    /// Nodes with which the job begins, where nodes may come and go: they are numbered as they come, and
    /// workers are started when so many are there. `None`: `nnodes`, which have the numbers that they are
    /// given.
    pub nnodes_min: Option<usize>,
    /// This node, `0 ≤ node_rank < nnodes`; not looked at where nodes may come and go.
    pub node_rank: usize,
    /// Host of rank 0, where the store is served: a name, or an address without brackets.
    pub master_addr: String,
    /// Port of the store; `None` takes a free one, which only a job of one node can do.
    pub master_port: Option<u16>,
    /// Other places by which launchers find each other, when the one of rank 0 is gone.
    pub masters: Vec<(String, u16)>,
    /// Name of the job, the same on all nodes. `None` makes one up: a unique one on one node, one from the
    /// master's address and port on several.
    pub run_id: Option<String>,
    /// File with the job's token, the same text on all nodes. `None`: what `KOLO_TOKEN` or `KOLO_TOKEN_FILE`
    /// say, else one is made for a job of one node; several nodes that meet elsewhere than on this machine
    /// need one.
    pub token_file: Option<PathBuf>,
    /// Variables for the workers, besides the inherited ones. The launcher's own (`RANK`, …) win over these.
    pub env: Vec<(String, OsString)>,
    /// Where the workers' output goes.
    pub output: Output,
    /// How the launcher tells of workers that die and generations that begin.
    pub messages: Messages,
    /// How long workers that are asked to end may take before they are killed. `None`: 30 seconds, as job
    /// managers wait; but 2 after a failure of a program that is not elastic, whose workers wait for one that
    /// is gone.
    pub grace: Option<Duration>,
    /// Signals besides SIGTERM, SIGINT, SIGHUP and SIGXCPU that ask the job to end. Workers know them by
    /// `KOLO_STOP_ON`.
    pub stop_on: Vec<StopSignal>,
    /// Workers with which an elastic job goes on at least, at least 1.
    pub min: usize,
    /// Workers that are started in place of others that died, in an elastic job.
    pub restarts: usize,
    /// How often all workers are started again after one has failed, where the program is not elastic: no
    /// generation has been formed. Only in a job of one node.
    pub group_restarts: usize,
    /// How long a worker may take to notice that others have died; then it hangs, and is ended.
    pub patience: Duration,
    /// How long too few workers wait for others before the job ends.
    pub wait: Duration,
    /// By what the launchers of several nodes agree which of them goes on when they have lost each other; the
    /// same on all nodes.
    pub arbiter: Arbiter,
}

/// Where the workers' output goes. Standard output goes to standard output, standard error to standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Every line of every worker with its rank before it: `[rank 0] `.
    Prefixed,
    /// Rank 0 of this node writes straight to the launcher's streams, so that progress bars work; the others
    /// are prefixed.
    RankZero,
}

/// How the launcher tells on standard error what becomes of the job while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Messages {
    /// A sentence after `kolo: `.
    #[default]
    Text,
    /// A JSON object a line; and lines of workers that are objects stay so, without a rank before them.
    Json,
}

impl Messages {
    /// Tells something.
    pub(crate) fn say(self, message: &str) {
        let line = match self {
            Messages::Text => format!("kolo: {message}\n"),
            Messages::Json => format!("{}\n", object(SystemTime::now(), message)),
        };
        // In one piece: the workers' lines are written by another thread. If nobody reads, the job goes on.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

fn object(now: SystemTime, message: &str) -> serde_json::Value {
    let time = now.duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64());
    serde_json::json!({ "time_unix": time, "event": "launcher", "message": message })
}

impl Job {
    /// A job on this machine alone, with a free port and prefixed output.
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

    /// Workers and servers on this node.
    pub(crate) fn processes(&self) -> usize {
        self.nproc + self.servers
    }

    /// Workers and servers of the whole job. Cannot overflow once [`check`](Self::check) has passed.
    pub(crate) fn world_size(&self) -> usize {
        self.processes() * self.nnodes
    }

    /// Whether this node's process `local` is a summation server.
    pub(crate) fn is_server(&self, local: usize) -> bool {
        local >= self.nproc
    }

    /// The rank of this node's process `local`.
    pub(crate) fn rank(&self, local: usize) -> Rank {
        Rank(self.node_rank * self.processes() + local)
    }

    /// Checks what would not start, before anything does.
    pub(crate) fn check(&self) -> Result<(), LaunchError> {
        let invalid = |what: String, remedy: &str| Err(LaunchError::Invalid { what, remedy: remedy.into() });
        if self.command.first().is_none_or(|program| program.is_empty()) {
            return invalid("no program is given".into(), "name the program that each worker runs");
        }
        if self.nproc == 0 && self.servers == 0 {
            return invalid("the number of workers is 0".into(), "start at least one (--nproc 1)");
        }
        let processes = self.nproc.checked_add(self.servers);
        // Other nodes may have more workers.
        let most = processes.unwrap_or(usize::MAX).saturating_mul(self.nnodes);
        if self.min == 0 || self.min > most.max(1) {
            let what = format!("{} workers at least, of {most}", self.min);
            return invalid(what, "--min is at least 1 and at most the number of workers");
        }
        if self.nnodes == 0 {
            return invalid("the number of nodes is 0".into(), "a job has at least one (--nnodes 1)");
        }
        if processes.and_then(|processes| processes.checked_mul(self.nnodes)).is_none() {
            let (nproc, servers) = (self.nproc, self.servers);
            let what =
                format!("{nproc} workers and {servers} servers on each of {} nodes is too many", self.nnodes);
            return invalid(what, "lower --nproc, --servers or --nnodes");
        }
        if self.nproc == 0 && self.nnodes == 1 {
            let what = format!("{} summation servers without any worker", self.servers);
            return invalid(what, "start workers, too (--nproc 1)");
        }
        if let Some(min) = self.nnodes_min.filter(|min| *min == 0 || *min > self.nnodes) {
            let what = format!("{min} nodes at least and {} at most", self.nnodes);
            return invalid(what, "give --nnodes MIN:MAX with 1 ≤ MIN ≤ MAX");
        }
        if self.nnodes_min.is_none() && self.node_rank >= self.nnodes {
            let what = format!("node {} does not exist among {} nodes", self.node_rank, self.nnodes);
            return invalid(what, "nodes are counted from 0: --node-rank must be below --nnodes");
        }
        if self.nnodes > 1 && self.master_port.is_none() {
            let what = "several nodes need one port that all of them know".into();
            return invalid(what, "give every node the same --master HOST:PORT (or --master-port)");
        }
        if self.master_port == Some(0) {
            return invalid(
                "port 0 cannot be connected to".into(),
                "leave the port out to have a free one taken",
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
    fn what_cannot_be_started_is_named() {
        let good = || Job::new(["true"], 2);
        let cases: [(Job, &str); 13] = [
            (Job::new(Vec::<OsString>::new(), 2), "program"),
            (Job::new([""], 2), "program"),
            (Job { nproc: 0, ..good() }, "--nproc"),
            (Job { nproc: 0, servers: 2, ..good() }, "2 summation servers without any worker"),
            (Job { servers: usize::MAX, master_port: Some(1), ..good() }, "--servers"),
            (Job { nnodes: 0, ..good() }, "--nnodes"),
            (Job { nproc: usize::MAX, nnodes: 2, master_port: Some(1), ..good() }, "too many"),
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
    }
}
