//! `kolo launch`: starts any program as workers.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kolo::Failure;
use kolo_comm::env::{NodeEnv, Nodes};
use kolo_ddp::table::{Value, parse_number};
use kolo_launch::LaunchError;

use super::train;
use crate::options::{Communication, Elastic, algorithms};

/// Start any program as workers: with torchrun's variables, output prefixed by rank, the first failure
/// reported first.
#[derive(Args)]
pub(crate) struct Launch {
    /// Workers on this node [default: PET_NPROC_PER_NODE, or 2]
    #[arg(long)]
    nproc: Option<usize>,
    /// Number of nodes; run the command on each of them. With MIN:MAX the job begins when MIN nodes are
    /// there, and others may join later [default: PET_NNODES, or the tasks of srun, or 1]
    #[arg(long, value_name = "NODES or MIN:MAX", value_parser = nnodes)]
    nnodes: Option<Nodes>,
    /// Number of this node, from 0 [default: PET_NODE_RANK, the task of srun or the index of an Indexed Job's
    /// pod, or 0]. Leave it out with --nnodes MIN:MAX, which numbers nodes as they arrive
    #[arg(long)]
    node_rank: Option<usize>,
    /// Address at which rank 0 meets the others, the same on all nodes: the name of node 0 and a port, or
    /// [::1]:29500 with IPv6. After commas, you may add other nodes, at which a launcher finds the job if
    /// node 0 is gone [default: PET_MASTER_ADDR and PET_MASTER_PORT, or the first node of srun, or a free
    /// port of this machine]
    #[arg(long, value_name = "HOST:PORT,…")]
    master: Option<String>,
    /// Host of --master, in torchrun's spelling
    #[arg(long, value_name = "HOST")]
    master_addr: Option<String>,
    /// Port of --master, in torchrun's spelling
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    master_port: Option<u16>,
    /// Name of the job, the same on all nodes
    #[arg(long)]
    run_id: Option<String>,
    /// File with the job's token, the same on all nodes [default: KOLO_TOKEN, or a new token if there is
    /// one node]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Algorithm of the collectives [default: the fastest that keeps the bits]
    #[arg(long, value_parser = algorithms())]
    algorithm: Option<String>,
    #[command(flatten)]
    communication: Communication,
    #[command(flatten)]
    elastic: Elastic,
    /// How the launchers decide which of them continue when the network between them fails; the same on all
    /// nodes
    #[arg(long, default_value = "majority", long_help = arbiter_help())]
    arbiter: String,
    /// Seconds that workers have to end before Kolo kills them [default: 30; 2 after a failure of a program
    /// that is not elastic]
    #[arg(long, value_name = "SECONDS", value_parser = parse_number)]
    grace: Option<f64>,
    /// Print JSON: the launcher's own messages, an object per line on standard error
    #[arg(long)]
    json: bool,
    /// Your program and its arguments, after `--`
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

impl Launch {
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        train::refuse_bare(&self.command)?;
        let given = NodeEnv::from_env().map_err(LaunchError::Variable)?;
        let mut job = kolo_launch::Job::new(self.command, self.nproc.or(given.workers).unwrap_or(2));
        Nodes { fewest: job.nnodes_min, most: job.nnodes } =
            self.nnodes.or(given.nodes).unwrap_or(Nodes { fewest: None, most: 1 });
        if let (Some(min), Some(node)) = (job.nnodes_min, self.node_rank) {
            let max = job.nnodes;
            return Err(Failure::input(format!(
                "--node-rank {node}: with --nnodes {min}:{max} nodes are numbered as they come; leave it out"
            )));
        }
        let (mut addr, mut port) = (self.master_addr, self.master_port);
        if job.nnodes > 1 {
            let place = given.rank.filter(|_| self.node_rank.is_none() && job.nnodes_min.is_none());
            if let Some((rank, variable)) = place {
                job.node_rank = place_below(rank, job.nnodes, variable)?;
            }
            if self.master.is_none() {
                addr = addr.or(given.host);
                port = port.or(given.port);
            }
        }
        job.node_rank = self.node_rank.unwrap_or(job.node_rank);
        job.set_master(self.master.as_deref(), addr.as_deref(), port)?;
        job.messages = if self.json { kolo_launch::Messages::Json } else { kolo_launch::Messages::Text };
        job.run_id = self.run_id.or(given.run_id);
        job.env = self.communication.environment(self.algorithm.as_ref());
        job.bind = self.communication.bind();
        job.token_file = self.token_file;
        // The workers themselves name what is wrong with their options.
        let train = train::options_of(&job.command).and_then(|options| train::parse(options).ok());
        if let Some(train) = &train {
            self.elastic.stop_on.extend(train.elastic.stop_on.iter().copied());
            if let Ok(config) = train.configuration() {
                if let Some(min) = self.elastic.min {
                    train::refuse_fewest(&format!("--min {min}"), &config)?;
                }
                self.elastic.servers = Some(self.elastic.servers_of(&config));
            }
        }
        self.elastic.apply(&mut job);
        if let Some(restarts) = self.elastic.max_restarts.or(given.restarts) {
            (job.restarts, job.group_restarts) = (restarts, restarts);
        }
        job.arbiter = kolo_elastic::Arbiter::parse(&self.arbiter)
            .map_err(|error| Failure::input(format!("--arbiter: {error}")))?;
        job.grace = self.grace.map(grace).transpose()?;
        // Other nodes, or another job, may be about to begin in the same folder.
        let is_alone = job.nnodes == 1 && job.nnodes_min.is_none();
        let train = train.filter(|train| is_alone && !train.is_there());
        let ended = kolo_launch::run(&job).map_err(Failure::from);
        match train {
            Some(train) => ended.map_err(|failure| train.discard_if_interrupted(failure)),
            None => ended,
        }
    }
}

/// Largest grace in seconds, some 30 years.
const MOST_GRACE: f64 = 1e9;

fn grace(seconds: f64) -> Result<Duration, Failure> {
    let duration = Duration::try_from_secs_f64(seconds).ok().filter(|_| seconds <= MOST_GRACE);
    let seconds = Value::Number(seconds);
    duration
        .ok_or_else(|| Failure::input(format!("--grace {seconds}: give seconds from 0 to {MOST_GRACE:e}")))
}

fn arbiter_help() -> String {
    let says = "How the launchers decide which of them continue when the network between them fails; the same \
                on all nodes.";
    let kinds = kolo_elastic::ARBITERS.iter().map(|kind| format!("\n  {}: {}.", kind.usage, kind.summary));
    kinds.fold(says.into(), |help, kind| help + &kind)
}

/// Returns the number of this node from the variable of a job manager.
fn place_below(rank: usize, nodes: usize, variable: &str) -> Result<usize, LaunchError> {
    if rank < nodes {
        return Ok(rank);
    }
    let problem = format!(
        "is {rank}, but the job has {nodes} nodes; start `kolo launch` once for each node, or give their number by \
         --nnodes"
    );
    Err(LaunchError::Variable(kolo_comm::Error::environment(variable, problem)))
}

/// Parses `3` (a fixed number of nodes) or `1:4` (fewest and most, for nodes that come and go).
fn nnodes(text: &str) -> Result<Nodes, String> {
    let number = |text: &str| {
        text.parse::<usize>().map_err(|_| String::from("give a number of nodes, or MIN:MAX as in 1:4"))
    };
    match text.split_once(':') {
        Some((min, max)) => Ok(Nodes { fewest: Some(number(min)?), most: number(max)? }),
        None => Ok(Nodes { fewest: None, most: number(text)? }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_is_refused_with_its_limit_and_as_it_was_given() {
        assert_eq!(grace(1.5).unwrap(), Duration::from_millis(1500));
        for (seconds, shown) in [(f64::INFINITY, "inf"), (1e300, "1e300"), (-1.0, "-1"), (f64::NAN, "NaN")] {
            let error = grace(seconds).unwrap_err().to_string();
            assert_eq!(error, format!("--grace {shown}: give seconds from 0 to 1e9"));
        }
    }

    #[test]
    fn a_place_beyond_the_nodes_is_refused() {
        assert_eq!(place_below(1, 2, "SLURM_PROCID").unwrap(), 1);
        let error = place_below(2, 2, "SLURM_PROCID").unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert_eq!(
            error.to_string(),
            "the environment variable SLURM_PROCID is 2, but the job has 2 nodes; start `kolo launch` once for each \
             node, or give their number by --nnodes"
        );
    }

    #[test]
    fn nodes_are_a_number_or_a_range() {
        assert_eq!(nnodes("3"), Ok(Nodes { fewest: None, most: 3 }));
        assert_eq!(nnodes("1:4"), Ok(Nodes { fewest: Some(1), most: 4 }));
        for wrong in ["", "a", "1:", ":4", "1:2:3", "-1"] {
            assert!(nnodes(wrong).is_err_and(|error| error.contains("MIN:MAX")), "{wrong}");
        }
    }
}
