//! All facts, of all ranks.

use std::path::{Path, PathBuf};

use kolo_check::probes::{
    Clock, Cpu, DataFacts, FolderProbe, Host, HugePages, LinkFacts, Memory, OpenFiles, Processor, Program,
    measure_links,
};
use kolo_check::{Facts, RankFacts, Trial};
use kolo_comm::{Group, Rank};
use kolo_train::{BatchNormalisation, Recipe, RunFolder, Slowdown};

use super::samples;
use super::settings::settings;
use super::trial::{TrialJob, differ, fastest_of};
use kolo::Failure;

/// So often ranks try a step at most.
const ROUNDS: usize = 3;

/// What is to be checked.
pub(crate) struct Asked<'a> {
    /// The recipe, fitted to the workers of the job.
    pub(crate) recipe: &'a Recipe,
    /// The run folder as this rank knows it; rank 0's counts.
    pub(crate) folder: PathBuf,
    /// Whether x.
    pub(crate) may_continue: bool,
    /// Whether the run goes on from a checkpoint.
    pub(crate) resumes: bool,
    /// Whether the run folder is taken from whoever writes it.
    pub(crate) take_over: bool,
    /// Whether others can take the place of workers that die.
    pub(crate) is_elastic: bool,
    /// Workers that are made slow.
    pub(crate) slowdowns: &'a [Slowdown],
}

/// Looks at everything. A collective: every rank gets all facts.
///
/// # Errors
///
/// A collective failed (naming the rank), or the recipe is none.
pub(crate) fn gather(group: &Group, asked: &Asked<'_>) -> Result<Facts, Failure> {
    let folder = group.broadcast_value(asked.folder.clone(), Rank(0))?;
    let memory = Memory::here();
    let seen = FolderProbe { folder: &folder, take_over: asked.take_over }.look(group)?;
    let (clock, links) = (Clock::measure(group)?, measure_links(group)?);
    let data = samples::read(&asked.recipe.data);
    let own = RankFacts {
        is_server: group.is_server(),
        host: Host::here(),
        settings: asked
            .recipe
            .stated()?
            .into_iter()
            .map(|(name, value)| format!("{name} = {value}\n"))
            .collect(),
        program: Program::here(env!("CARGO_PKG_VERSION")),
        processor: Processor::here(),
        cpu: Cpu::here(),
        clock,
        memory,
        open_files: OpenFiles::here(),
        huge_pages: HugePages::here(),
        folder: seen,
        checkpoint: asked.resumes.then(|| newest(&folder)),
        trial: Trial::NotTaken,
        data,
    };
    let own = RankFacts { trial: trial(group, asked, &own.data)?, ..own };
    let ranks: Vec<RankFacts> = group.all_gather_value(&own)?;
    let links: Vec<Vec<LinkFacts>> = group.all_gather_value(&links)?;
    let data = ranks.iter().find_map(|rank| rank.data.as_ref().ok());
    Ok(Facts {
        settings: settings(asked, &folder, data)?,
        ranks,
        links: links.into_iter().flatten().collect(),
        nodes: group.topology().nodes().len(),
    })
}

/// The step of the newest good checkpoint, or why there is none.
fn newest(folder: &Path) -> Result<u64, String> {
    let found = RunFolder::at(folder.to_owned()).newest_checkpoint();
    found.map(|found| found.step).map_err(|error| error.to_string())
}

/// All ranks try their steps at the same time, as they would in the run. Where one of them is slow they try
/// again: what else a host does for a moment is no property of the job.
fn trial(group: &Group, asked: &Asked<'_>, data: &Result<DataFacts, String>) -> Result<Trial, Failure> {
    let computes = !group.is_server() && data.is_ok();
    let (recipe, workers) = (asked.recipe, asked.recipe.nproc.max(1));
    let together = match recipe.batch_norm {
        BatchNormalisation::Sync => recipe.shards.div_ceil(workers),
        _ => 1,
    };
    let pause = Slowdown::per_shard(asked.slowdowns, group.rank().0);
    let job = TrialJob { recipe: recipe.to_toml()?, together, pause };
    let mut best = Trial::NotTaken;
    for _ in 0..ROUNDS {
        group.barrier()?;
        if computes {
            best = fastest_of(best, job.run());
        }
        let all: Vec<Trial> = group.all_gather_value(&best)?;
        if !differ(&all) {
            break;
        }
    }
    Ok(best)
}
