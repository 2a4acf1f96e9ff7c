//! All that the checks look at: what each rank has found, and what lies between them.

use serde::{Deserialize, Serialize};

use crate::probes::{
    Clock, Cpu, DataFacts, FolderFacts, Host, HugePages, LinkFacts, Memory, OpenFiles, Processor, Program,
};
use crate::settings::Settings;

/// All that the checks look at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Facts {
    /// What the job is asked to do.
    pub settings: Settings,
    /// What each rank has found, in the order of ranks.
    pub ranks: Vec<RankFacts>,
    /// The links between nodes that were measured.
    pub links: Vec<LinkFacts>,
    /// Nodes: groups of ranks that share memory.
    pub nodes: usize,
}

/// What a rank has found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankFacts {
    /// Whether it is a server, which has no shards.
    pub is_server: bool,
    /// Where it runs.
    pub host: Host,
    /// The settings that it was given, a line each.
    pub settings: String,
    /// The program that it runs.
    pub program: Program,
    /// The kind of processor.
    pub processor: Processor,
    /// How much of the processors it may use.
    pub cpu: Cpu,
    /// Its clock beside that of rank 0.
    pub clock: Clock,
    /// Memory, before the model was built.
    pub memory: Memory,
    /// Files and connections.
    pub open_files: OpenFiles,
    /// Huge pages, where the system says.
    pub huge_pages: Option<HugePages>,
    /// The run folder, as it sees it.
    pub folder: FolderFacts,
    /// The data, or why it cannot be read.
    pub data: Result<DataFacts, String>,
    /// What a shard's step has taken.
    pub trial: Trial,
    /// The checkpoint from which it would go on, or why there is none; `None` where the run begins.
    pub checkpoint: Option<Result<u64, String>>,
}

/// A shard's step, tried alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Trial {
    /// It was taken.
    Taken(TrialStep),
    /// The process that tried has failed.
    Failed {
        /// How it has ended.
        how: String,
        /// Whether a signal has ended it, as where the system has no memory for it.
        was_killed: bool,
        /// Its last words.
        words: String,
    },
    /// A server has no shards; or there is no data.
    NotTaken,
}

/// What a shard's step takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialStep {
    /// Bytes of the gradient.
    pub gradient_bytes: u64,
    /// Bytes of a checkpoint.
    pub checkpoint_bytes: u64,
    /// Seconds of a shard's forward and backward pass, data included.
    pub shard_seconds: f64,
    /// Seconds of the optimizer's update.
    pub update_seconds: f64,
    /// The most memory that the process had.
    pub peak_bytes: u64,
}

impl Facts {
    /// A rank by name, with its host where there are several.
    pub(crate) fn name(&self, rank: usize) -> String {
        let host = &self.ranks[rank].host;
        match self.ranks.iter().all(|other| other.host.name == host.name) {
            true => format!("rank {rank}"),
            false => format!("rank {rank} on {}", host.name),
        }
    }

    /// The ranks that are workers.
    pub(crate) fn workers(&self) -> impl Iterator<Item = (usize, &RankFacts)> {
        self.ranks.iter().enumerate().filter(|(_, facts)| !facts.is_server)
    }

    /// The ranks of each host.
    pub(crate) fn hosts(&self) -> Vec<Vec<usize>> {
        let mut hosts: Vec<Vec<usize>> = Vec::new();
        for (rank, facts) in self.ranks.iter().enumerate() {
            match hosts.iter_mut().find(|host| self.ranks[host[0]].host.boot == facts.host.boot) {
                Some(host) => host.push(rank),
                None => hosts.push(vec![rank]),
            }
        }
        hosts
    }

    /// What a rank's trial has taken.
    pub(crate) fn trial(&self, rank: usize) -> Option<&TrialStep> {
        match &self.ranks[rank].trial {
            Trial::Taken(step) => Some(step),
            _ => None,
        }
    }

    /// What the first trial that was taken says of the model, which is the same on all ranks.
    pub(crate) fn model(&self) -> Option<&TrialStep> {
        (0..self.ranks.len()).find_map(|rank| self.trial(rank))
    }

    /// Seconds that the slowest worker computes in a step; `None` where a trial was not taken.
    pub(crate) fn step_seconds(&self) -> Option<f64> {
        let shares = self.settings.shares.iter();
        let seconds = self.workers().zip(shares).map(|((rank, _), shards)| {
            let trial = self.trial(rank)?;
            Some(*shards as f64 * trial.shard_seconds + trial.update_seconds)
        });
        seconds.collect::<Option<Vec<f64>>>()?.into_iter().max_by(f64::total_cmp)
    }
}
