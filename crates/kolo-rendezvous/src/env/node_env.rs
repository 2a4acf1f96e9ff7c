//! A node's place in its job, from the variables of the job manager that starts a launcher on each node.
//!
//! `kolo launch` takes its options from here where the command line has none. The first of these counts that
//! has set its variables: torchrun's options (`PET_…`, which Kubeflow sets), the tasks of `srun`, the pods of
//! an Indexed Job.

use super::launchers::slurm::Slurm;
use super::launchers::{Launcher, read_ranks};
use super::names::{JOB_COMPLETION_INDEX, MASTER_ADDR, MASTER_PORT, PET_NNODES};
use super::variables::Variables;
use super::{endpoint, ports};
use crate::error::Error;

const PET_NODE_RANK: &str = "PET_NODE_RANK";
const PET_NPROC: &str = "PET_NPROC_PER_NODE";
const PET_ADDR: &str = "PET_MASTER_ADDR";
const PET_PORT: &str = "PET_MASTER_PORT";
const PET_ENDPOINT: &str = "PET_RDZV_ENDPOINT";
const PET_RUN_ID: &str = "PET_RDZV_ID";
const PET_RESTARTS: &str = "PET_MAX_RESTARTS";
/// torchrun's port where none is given.
const TORCHRUN_PORT: u16 = 29500;

/// Number of nodes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// Number with which the job begins, if nodes may come and go.
    pub fewest: Option<usize>,
    /// Number of nodes; the maximum if nodes may come and go.
    pub most: usize,
}

/// A node's place in its job; `None` where the job manager does not set it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeEnv {
    /// Number of nodes.
    pub nodes: Option<Nodes>,
    /// Number of workers on this node.
    pub workers: Option<usize>,
    /// Number of this node, and the variable that holds it.
    pub rank: Option<(usize, &'static str)>,
    /// Host of node 0.
    pub host: Option<String>,
    /// Port on that host.
    pub port: Option<u16>,
    /// Name of the job.
    pub run_id: Option<String>,
    /// Number of replacements for dead workers.
    pub restarts: Option<usize>,
}

impl NodeEnv {
    /// Reads the variables of the job manager that has started this process.
    ///
    /// # Errors
    ///
    /// [`Error::Environment`] names the variable that is invalid.
    pub fn from_env() -> Result<NodeEnv, Error> {
        Self::from_variables(&Variables::of_process())
    }

    fn from_variables(variables: &Variables) -> Result<NodeEnv, Error> {
        let torchrun = [PET_NNODES, PET_NODE_RANK, PET_NPROC, PET_ADDR, PET_PORT, PET_ENDPOINT];
        if torchrun.iter().any(|name| variables.has(name)) {
            torchrun_options(variables)
        } else if Slurm.has_started(variables) {
            srun(variables)
        } else {
            indexed_job(variables)
        }
    }
}

/// Reads torchrun's options, whose variables begin with the name that torchrun once had (PyTorch Elastic).
fn torchrun_options(variables: &Variables) -> Result<NodeEnv, Error> {
    let given = variables.get(PET_ENDPOINT).filter(|text| !text.is_empty());
    let meeting = given.map(|text| host_and_port(&text)).transpose()?;
    let addr = variables.get(PET_ADDR);
    let port = addr.is_some().then_some(TORCHRUN_PORT);
    let (host, port) = meeting.unwrap_or((addr, endpoint::port(variables, PET_PORT)?.or(port)));
    Ok(NodeEnv {
        nodes: variables.get(PET_NNODES).map(|text| nodes(&text)).transpose()?,
        workers: variables.get(PET_NPROC).map(|text| workers(&text)).transpose()?,
        rank: variables.number_if_set(&[PET_NODE_RANK])?.map(|rank| (rank, PET_NODE_RANK)),
        host,
        port,
        run_id: variables.get(PET_RUN_ID),
        restarts: variables.count_if_set(&[PET_RESTARTS])?,
    })
}

/// Reads the place of a task of `srun`, which has started one launcher on each node.
fn srun(variables: &Variables) -> Result<NodeEnv, Error> {
    let (rank, tasks) = read_ranks(&Slurm, variables)?;
    let host =
        variables.get(MASTER_ADDR).map_or_else(|| Slurm.rank_0_host(variables), |host| Ok(Some(host)))?;
    let derived = || ports::of_job(&Slurm.job_name(variables, false)?).first().copied();
    Ok(NodeEnv {
        nodes: Some(Nodes { fewest: None, most: tasks }),
        rank: Some((rank.0, variables.first(Slurm.numbers().rank))),
        host,
        port: endpoint::port(variables, MASTER_PORT)?.or_else(derived),
        ..NodeEnv::default()
    })
}

/// Reads the index of a pod. The Job does not tell its pods their number, so `--nnodes` has to.
fn indexed_job(variables: &Variables) -> Result<NodeEnv, Error> {
    let Some(rank) = variables.number_if_set(&[JOB_COMPLETION_INDEX])? else { return Ok(NodeEnv::default()) };
    let host = variables.get(MASTER_ADDR);
    let port = endpoint::port(variables, MASTER_PORT)?.or(host.is_some().then_some(TORCHRUN_PORT));
    Ok(NodeEnv { rank: Some((rank, JOB_COMPLETION_INDEX)), host, port, ..NodeEnv::default() })
}

fn nodes(text: &str) -> Result<Nodes, Error> {
    let number = |text: &str| text.parse::<usize>().ok().filter(|number| *number > 0);
    let found = match text.split_once(':') {
        Some((fewest, most)) => {
            number(fewest).zip(number(most)).map(|(fewest, most)| Nodes { fewest: Some(fewest), most })
        }
        None => number(text).map(|most| Nodes { fewest: None, most }),
    };
    let wrong = || format!("is `{text}`; it must be a number of nodes, or MIN:MAX as in 1:4");
    found.ok_or_else(|| Error::environment(PET_NNODES, wrong()))
}

fn workers(text: &str) -> Result<usize, Error> {
    match text {
        "auto" | "cpu" => Ok(std::thread::available_parallelism().map_or(1, usize::from)),
        _ => text.parse().ok().filter(|number| *number > 0).ok_or_else(|| {
            let problem = format!("is `{text}`; it must be a number of workers, `auto` or `cpu`");
            Error::environment(PET_NPROC, problem)
        }),
    }
}

/// Splits `HOST:PORT`. torchrun allows a host alone.
fn host_and_port(text: &str) -> Result<(Option<String>, Option<u16>), Error> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().ok().filter(|port| *port > 0)),
        None => (text, Some(TORCHRUN_PORT)),
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    match (bare, port) {
        (Some(host), Some(port)) if !host.is_empty() => Ok((Some(host.into()), Some(port))),
        (None, Some(port)) if !host.is_empty() && !host.contains(':') => Ok((Some(host.into()), Some(port))),
        _ => Err(Error::environment(
            PET_ENDPOINT,
            format!("is `{text}`; it must be HOST:PORT, as in head:29500"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vars: &[(&str, &str)]) -> Result<NodeEnv, String> {
        let find = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string());
        NodeEnv::from_variables(&Variables(&find)).map_err(|error| error.to_string())
    }

    const fn fixed(most: usize) -> Option<Nodes> {
        Some(Nodes { fewest: None, most })
    }

    #[test]
    fn nothing_is_read_where_no_job_manager_started_the_process() {
        assert_eq!(read(&[("MASTER_ADDR", "head"), ("RANK", "1")]), Ok(NodeEnv::default()));
    }

    #[test]
    fn a_pod_of_a_train_job() {
        let pod = [
            ("PET_NNODES", "3"),
            ("PET_NPROC_PER_NODE", "4"),
            ("PET_NODE_RANK", "2"),
            ("PET_MASTER_ADDR", "train-node-0-0.train"),
            ("PET_MASTER_PORT", "29400"),
            ("JOB_COMPLETION_INDEX", "1"),
        ];
        let expected = NodeEnv {
            nodes: fixed(3),
            workers: Some(4),
            rank: Some((2, "PET_NODE_RANK")),
            host: Some("train-node-0-0.train".into()),
            port: Some(29400),
            ..NodeEnv::default()
        };
        assert_eq!(read(&pod), Ok(expected.clone()));
        assert_eq!(read(&[&pod[..4], &pod[5..]].concat()), Ok(NodeEnv { port: Some(29500), ..expected }));
    }

    #[test]
    fn a_pod_of_an_elastic_pytorch_job() {
        let pod = [
            ("PET_RDZV_BACKEND", "c10d"),
            ("PET_RDZV_ENDPOINT", "train-worker-0:23456"),
            ("PET_RDZV_ID", "train"),
            ("PET_NNODES", "1:3"),
            ("PET_MAX_RESTARTS", "7"),
        ];
        let expected = NodeEnv {
            nodes: Some(Nodes { fewest: Some(1), most: 3 }),
            host: Some("train-worker-0".into()),
            port: Some(23456),
            run_id: Some("train".into()),
            restarts: Some(7),
            ..NodeEnv::default()
        };
        assert_eq!(read(&pod), Ok(expected));
        let place = |text| read(&[("PET_RDZV_ENDPOINT", text)]).map(|node| (node.host.unwrap(), node.port));
        assert_eq!(place("[fd00::1]:7"), Ok(("fd00::1".into(), Some(7))));
        assert_eq!(place("head"), Ok(("head".into(), Some(29500))));
    }

    #[test]
    fn workers_may_be_as_many_as_processors() {
        let cores = std::thread::available_parallelism().unwrap().get();
        for text in ["auto", "cpu"] {
            assert_eq!(read(&[("PET_NPROC_PER_NODE", text)]).unwrap().workers, Some(cores));
        }
    }

    #[test]
    fn a_task_of_srun_is_a_node() {
        let task = [
            ("SLURM_JOB_ID", "4711"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "1"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_STEP_NODELIST", "gpu[07-08]"),
        ];
        let expected = NodeEnv {
            nodes: fixed(2),
            rank: Some((1, "SLURM_PROCID")),
            host: Some("gpu07".into()),
            port: Some(ports::of_job("slurm 4711.0.0")[0]),
            ..NodeEnv::default()
        };
        assert_eq!(read(&task), Ok(expected.clone()));
        let requeued = [&task[..], &[("SLURM_RESTART_COUNT", "1")]].concat();
        assert_eq!(read(&requeued).unwrap().port, Some(ports::of_job("slurm 4711.0.1")[0]));
        let chosen = [&task[..], &[("MASTER_ADDR", "head"), ("MASTER_PORT", "5")]].concat();
        let expected = NodeEnv { host: Some("head".into()), port: Some(5), ..expected };
        assert_eq!(read(&chosen), Ok(expected));
        // A step of one task, and a script of `sbatch`.
        assert_eq!(read(&[&task[..3], &[("SLURM_STEP_NUM_TASKS", "1")]].concat()), Ok(NodeEnv::default()));
        assert_eq!(read(&task[2..]), Ok(NodeEnv::default()));
    }

    #[test]
    fn a_pod_of_an_indexed_job_knows_its_index_alone() {
        let rank = Some((3, "JOB_COMPLETION_INDEX"));
        let pod = [("JOB_COMPLETION_INDEX", "3"), ("MASTER_ADDR", "train-0.train")];
        assert_eq!(read(&pod[..1]), Ok(NodeEnv { rank, ..NodeEnv::default() }));
        let (host, port) = (Some("train-0.train".into()), Some(29500));
        assert_eq!(read(&pod), Ok(NodeEnv { rank, host, port, ..NodeEnv::default() }));
    }

    #[test]
    fn a_wrong_value_is_named_in_one_sentence() {
        for (name, value, problem) in [
            ("PET_NNODES", "many", "is `many`; it must be a number of nodes, or MIN:MAX as in 1:4"),
            ("PET_NNODES", "0", "is `0`; it must be a number of nodes, or MIN:MAX as in 1:4"),
            ("PET_NNODES", "1:", "is `1:`; it must be a number of nodes, or MIN:MAX as in 1:4"),
            ("PET_NPROC_PER_NODE", "gpu", "is `gpu`; it must be a number of workers, `auto` or `cpu`"),
            ("PET_NPROC_PER_NODE", "0", "is `0`; it must be a number of workers, `auto` or `cpu`"),
            ("PET_NODE_RANK", "-1", "is `-1`; it must be a whole number"),
            ("PET_MASTER_PORT", "0", "is `0`; it must be a port number from 1 to 65535"),
            ("PET_RDZV_ENDPOINT", "head:no", "is `head:no`; it must be HOST:PORT, as in head:29500"),
            ("PET_RDZV_ENDPOINT", ":1", "is `:1`; it must be HOST:PORT, as in head:29500"),
            ("JOB_COMPLETION_INDEX", "x", "is `x`; it must be a whole number"),
        ] {
            assert_eq!(read(&[(name, value)]), Err(format!("the environment variable {name} {problem}")));
        }
        let error = read(&[("PET_NNODES", "1"), ("PET_MAX_RESTARTS", "1048577")]).unwrap_err();
        assert_eq!(error, "the environment variable PET_MAX_RESTARTS is 1048577; it must be at most 1048576");
    }
}
