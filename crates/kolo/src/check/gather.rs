//! Facts of all ranks.

use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use kolo::Failure;
use kolo_burn_train::{Slowdown, check_resume};
use kolo_check::probes::{
    Clock, Cpu, DataFacts, FolderProbe, Host, HugePages, LinkFacts, Memory, OpenFiles, Processor, Program,
    measure_links,
};
use kolo_check::{Facts, RankFacts, Trial};
use kolo_comm::{Group, Rank};
use kolo_program::output::note;
use kolo_recipe::{BatchNormalization, RunFolder};

use super::request::CheckRequest;
use super::samples;
use super::settings::settings;
use super::trial::TrialJob;

/// Most times that ranks try a step.
const ROUNDS: usize = 3;
/// Time after which the user learns what is going on.
const SOON: Duration = Duration::from_secs(2);

/// Gathers all facts. A collective: every rank gets the facts of all ranks.
pub(crate) fn gather(group: &Group, request: &CheckRequest<'_>) -> Result<Facts, Failure> {
    let folder = group.broadcast_value(request.folder.clone(), Rank(0))?;
    let memory = Memory::here();
    let seen = FolderProbe { folder: &folder, take_over: request.take_over }.look(group)?;
    let (clock, links) = (Clock::measure(group)?, measure_links(group)?);
    // The ranks of a node share its cores.
    let nodes = group.topology().nodes();
    let here = nodes.iter().find(|ranks| ranks.contains(&group.rank())).map_or(1, Vec::len);
    let threads = std::thread::available_parallelism().map_or(1, usize::from) / here.max(1);
    let words = (group.rank() == Rank(0)).then(|| format!("reading the samples of {}", request.recipe.data));
    let run = request.resumes.then_some(&*folder);
    let read = || samples::read(request.recipe, run, threads).map_err(|e| e.to_string());
    let data = note_if_long(words.as_ref(), read);
    let stated = request.recipe.stated()?;
    let own = RankFacts {
        is_server: group.is_server(),
        host: Host::here(),
        settings: stated.into_iter().map(|(name, value)| format!("{name} = {value}\n")).collect(),
        program: Program::here(env!("CARGO_PKG_VERSION")),
        processor: Processor::here(),
        cpu: Cpu::here(),
        clock,
        memory,
        open_files: OpenFiles::here(),
        huge_pages: HugePages::here(),
        folder: seen,
        checkpoint: request.resumes.then(|| newest(&folder, request)),
        trial: Trial::NotTaken,
        data,
    };
    let own = RankFacts { trial: trial(group, request, &own.data)?, ..own };
    let ranks: Vec<RankFacts> = group.all_gather_value(&own)?;
    let links: Vec<Vec<LinkFacts>> = group.all_gather_value(&links)?;
    let data = ranks.iter().find_map(|rank| rank.data.as_ref().ok());
    Ok(Facts {
        settings: settings(request, &folder, data)?,
        ranks,
        links: links.into_iter().flatten().collect(),
        nodes: group.topology().nodes().len(),
    })
}

/// Returns the step of the newest good checkpoint, or the reason that the run cannot go on from one.
fn newest(folder: &Path, request: &CheckRequest<'_>) -> Result<u64, String> {
    let folder = RunFolder::at(folder.to_owned());
    let found = folder.newest_checkpoint().map_err(|error| error.to_string())?;
    // Unreadable data is a finding of its own.
    if let Ok(images) = request.recipe.open_data() {
        let checked = check_resume(&folder, request.recipe, &*images, request.accept_changed_data);
        checked.map_err(|error| error.to_string())?;
    }
    Ok(found.step)
}

/// Tries a step on all ranks at the same time, as in the run. The ranks repeat it if one of them is slow: a
/// short disturbance of a host is no property of the job.
fn trial(
    group: &Group,
    request: &CheckRequest<'_>,
    data: &Result<DataFacts, String>,
) -> Result<Trial, Failure> {
    let computes = !group.is_server() && data.is_ok();
    let (recipe, workers) = (request.recipe, request.recipe.nproc.max(1));
    let together = match recipe.batch_norm {
        BatchNormalization::Sync => recipe.shards.div_ceil(workers),
        _ => 1,
    };
    let pause = Slowdown::per_shard(request.slowdowns, group.rank().0);
    let job = TrialJob { recipe: recipe.to_toml()?, together, pause };
    let words = format!("trying a step of {} on each worker; a large model takes minutes", recipe.model);
    let is_told = group.rank() == Rank(0);
    note_if_long(is_told.then_some(&words), || {
        let mut best = Trial::NotTaken;
        for _ in 0..ROUNDS {
            group.barrier()?;
            if computes {
                best = best.best_of(job.run());
            }
            let all: Vec<Trial> = group.all_gather_value(&best)?;
            if !Trial::may_be_disturbed(&all) {
                break;
            }
        }
        Ok(best)
    })
}

/// Does the work. Prints these words on standard error if it takes long.
fn note_if_long<T>(words: Option<&String>, work: impl FnOnce() -> T) -> T {
    let (ends, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if ended.recv_timeout(SOON) == Err(RecvTimeoutError::Timeout) {
                words.into_iter().for_each(|words| note(words));
            }
        });
        let done = work();
        drop(ends);
        done
    })
}
