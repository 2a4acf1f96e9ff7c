//! Input of the checks: the measurements of each rank, and of the links between them.

use serde::{Deserialize, Serialize};

use crate::probes::{
    Clock, Cpu, DataFacts, FolderFacts, Host, HugePages, LinkFacts, Memory, OpenFiles, Processor, Program,
};
use crate::settings::Settings;
use crate::trial::{Trial, TrialStep};

/// Input of all checks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Facts {
    /// Settings of the job.
    pub settings: Settings,
    /// Facts of each rank, in the order of ranks.
    pub ranks: Vec<RankFacts>,
    /// Links between nodes that were measured.
    pub links: Vec<LinkFacts>,
    /// Number of nodes: groups of ranks that share memory.
    pub nodes: usize,
}

/// Facts of one rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankFacts {
    /// True if it is a server, which has no shards.
    pub is_server: bool,
    /// Host that it runs on.
    pub host: Host,
    /// Settings that it was given, one per line.
    pub settings: String,
    /// Program that it runs.
    pub program: Program,
    /// Kind of processor.
    pub processor: Processor,
    /// Share of the host's processors that it may use.
    pub cpu: Cpu,
    /// Offset of its clock from that of rank 0.
    pub clock: Clock,
    /// Memory, before the model was built.
    pub memory: Memory,
    /// Limits and use of files and connections.
    pub open_files: OpenFiles,
    /// Setting of huge pages, if the system has one.
    pub huge_pages: Option<HugePages>,
    /// State of the run folder on this rank.
    pub folder: FolderFacts,
    /// Data, or the reason why the rank cannot read it.
    pub data: Result<DataFacts, String>,
    /// Cost of one shard's step.
    pub trial: Trial,
    /// Step of the checkpoint that it would resume from, or the reason why there is none; `None` for a new
    /// run.
    pub checkpoint: Option<Result<u64, String>>,
}

impl Facts {
    /// Returns the name of a rank, with its host if there are several.
    pub(crate) fn name(&self, rank: usize) -> String {
        let host = &self.ranks[rank].host;
        match self.ranks.iter().all(|other| other.host.name == host.name) {
            true => format!("rank {rank}"),
            false => format!("rank {rank} on {}", host.name),
        }
    }

    pub(crate) fn workers(&self) -> impl Iterator<Item = (usize, &RankFacts)> {
        self.ranks.iter().enumerate().filter(|(_, facts)| !facts.is_server)
    }

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

    /// Returns a rank's trial step if it succeeded.
    pub(crate) fn trial(&self, rank: usize) -> Option<&TrialStep> {
        match &self.ranks[rank].trial {
            Trial::Taken(step) => Some(step),
            _ => None,
        }
    }

    /// Returns the first trial step that succeeded; its sizes are those of the model, the same on all ranks.
    pub(crate) fn model(&self) -> Option<&TrialStep> {
        (0..self.ranks.len()).find_map(|rank| self.trial(rank))
    }

    /// Returns the seconds that the slowest worker computes in a step; `None` if a worker has no trial step.
    pub(crate) fn step_seconds(&self) -> Option<f64> {
        let shares = self.settings.shares.iter();
        let seconds = self.workers().zip(shares).map(|((rank, _), shards)| {
            let trial = self.trial(rank)?;
            Some(*shards as f64 * trial.shard_seconds + trial.update_seconds)
        });
        seconds.collect::<Option<Vec<f64>>>()?.into_iter().max_by(f64::total_cmp)
    }
}
