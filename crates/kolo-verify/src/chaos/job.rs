//! Runs of the job: the undisturbed one, and those with faults.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant, SystemTime};

use kolo_ddp::verify::trace;
use kolo_elastic::{ArbiterKind, Needs};
use kolo_program::Failure;
use kolo_recipe::RunFolder;
use kolo_run_folder::unix_seconds;
use serde::Serialize;

use super::fault::{Fault, Injection, Request};
use super::inject::{Injected, REPLACED, Target};
use super::launchers::Launchers;
use super::place::Place;
use super::plan::Targets;
use super::record::{self, RunRecord};
use super::strike::strike;
use super::workers::living_workers;
use crate::running::last_error;

/// The program of the job.
#[derive(Clone, Debug)]
pub enum Program {
    /// `kolo train` with these options.
    Train(Vec<OsString>),
    /// The user's own program and its arguments, started by `kolo launch`.
    Own(Vec<OsString>),
}

impl Program {
    pub(super) fn is_own(&self) -> bool {
        matches!(self, Program::Own(_))
    }

    pub(super) fn words(&self) -> &[OsString] {
        match self {
            Program::Train(words) | Program::Own(words) => words,
        }
    }
}

/// The job that all runs repeat.
#[derive(Clone, Debug)]
pub struct ChaosJob {
    /// Additions to the job that was asked for; empty for that job itself.
    pub name: String,
    /// The program.
    pub program: Program,
    /// Number of nodes, each with a launcher on this machine.
    pub nodes: usize,
    /// Arbiter between the launchers of several nodes.
    pub arbiter: &'static ArbiterKind,
    /// Number of workers of each node.
    pub nproc: usize,
    /// Number of summation servers, which faults strike as well.
    pub servers: usize,
    /// Size in MiB of a small disk for the run folder, which is filled up at times.
    pub disk: Option<u64>,
    /// True if each node has a host of its own, whose link is cut at times.
    pub cut_links: bool,
    /// True if each part of the optimizer's state has several owners, which must not die together.
    pub divided: bool,
    /// True if workers have one copy of the state in the memory of their host.
    pub shared: bool,
    /// True after the user interrupted the command.
    pub interrupted: Arc<AtomicBool>,
    /// Longest time of a run.
    pub limit: Duration,
}

/// Result of a run with faults.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RunVerdict {
    /// The run ended in the bits of the undisturbed one, with one line for every step.
    Same,
    /// The run ended without an error, but something is missing or differs.
    Lost(String),
    /// The run ended with an error.
    Failed(String),
    /// The run did not end within the limit.
    Hung,
}

/// A run with faults, and its result.
pub(super) struct Run {
    pub(super) hits: Vec<Injected>,
    /// Number of generations in which a step was done, those of a resumed job included; for a user's own
    /// program, the number of its last generation.
    pub(super) generations: u64,
    pub(super) seconds: f64,
    pub(super) verdict: RunVerdict,
}

impl ChaosJob {
    /// Returns the targets of faults.
    pub(super) fn targets(&self) -> Targets {
        let (nodes, workers, etcd) = (self.nodes, self.nproc, self.asks_etcd());
        // A majority may need the node whose launcher is killed with half of the workers.
        let launchers = nodes > 1 && self.arbiter.needs != Needs::Nothing;
        let (disk, links, resumes) = (self.disk.is_some(), self.cut_links, self.can_be_resumed());
        Targets { nodes, workers, shares_state: self.shared, launchers, resumes, etcd, disk, links }
    }

    /// Makes the place of a run.
    pub(super) fn place(&self, name: &str) -> Result<Place, Failure> {
        Place::new(name, self.disk, self.cut_links.then_some(self.nodes))
    }

    /// Number of workers of all nodes.
    pub(super) fn workers(&self) -> usize {
        self.nodes * self.nproc
    }

    /// True if a run can be ended and resumed: it is `kolo train`, on one node.
    pub(super) fn can_be_resumed(&self) -> bool {
        self.nodes == 1 && !self.program.is_own()
    }

    pub(super) fn asks_etcd(&self) -> bool {
        self.nodes > 1 && self.arbiter.needs == Needs::Etcd
    }

    /// Makes the reference run.
    pub(super) fn undisturbed(&self, place: &Place) -> Result<RunRecord, Failure> {
        let mut running = self.start(place, false)?;
        self.wait_for_begin(&mut running, place, Instant::now() + self.limit)?;
        let began = Instant::now();
        match running.wait(self.limit)? {
            Some(ended) => {
                if let Some(how) = ended.failure(|node| place.log(node), false) {
                    return Err(Failure::work(format!("the undisturbed run failed: {how}")));
                }
            }
            None => {
                let limit = self.limit.as_secs_f64();
                return Err(Failure::work(format!(
                    "the undisturbed run was not over after {limit} s; give it more with --limit, or fewer --steps{}",
                    last_error(&place.log(0))
                )));
            }
        }
        let lost = |lost| Failure::work(format!("the undisturbed run: {lost}"));
        if self.program.is_own() && !place.trace().exists() {
            return Err(lost(
                "it has done no step; the program must train by Kolo's `Ddp` or `Replica`".into(),
            ));
        }
        self.record(place, began.elapsed().as_secs_f64()).map_err(lost)
    }

    /// Reads the record of a run that ended `seconds` after its first generation.
    fn record(&self, place: &Place, seconds: f64) -> Result<RunRecord, String> {
        match &self.program {
            Program::Train(_) => RunRecord::of(&place.run()),
            Program::Own(_) => RunRecord::of_trace(&place.trace(), seconds),
        }
    }

    /// Makes a run and injects faults into it, where an undisturbed run takes `length` seconds. With `tuned`,
    /// each step uses another setting if steps can be tuned.
    pub(super) fn disturbed(
        &self,
        hits: &[Injection],
        place: &mut Place,
        undisturbed: &RunRecord,
        length: f64,
        tuned: bool,
    ) -> Result<Run, Failure> {
        let until = Instant::now() + self.limit;
        let mut running = self.start(place, tuned)?;
        let mut hits = self.hit(hits, &mut running, place, length, tuned, until)?;
        let ended = running.wait(until.saturating_duration_since(Instant::now()))?;
        let seconds = (self.limit - until.saturating_duration_since(Instant::now())).as_secs_f64();
        drop(running);
        let compared = || self.record(place, seconds).and_then(|record| record.compare(undisturbed));
        // The run was complete when the signal came.
        let asked_at_its_end = ended.as_ref().is_some_and(|ended| {
            let code = |hit: &Injected| match hit.hit.fault {
                Fault::End(request) => ended.is(128 + request.signal().as_raw()),
                _ => false,
            };
            hits.iter().any(code) && RunFolder::at(place.run()).is_complete()
        });
        let is_parted = hits.iter().any(|hit| hit.missed.is_none() && hit.hit.fault.parts());
        let verdict = match ended {
            None => RunVerdict::Hung,
            Some(ended) => match ended.failure(|node| place.log(node), is_parted) {
                Some(_) if asked_at_its_end => {
                    compared().map_or_else(RunVerdict::Lost, |()| RunVerdict::Same)
                }
                Some(how) => RunVerdict::Failed(how),
                None => compared().map_or_else(RunVerdict::Lost, |()| RunVerdict::Same),
            },
        };
        // A run folder without generations means that none has done a step.
        let rows = record::generations(&place.run()).unwrap_or_default();
        let is_end = |hit: &&Injected| hit.missed.is_none() && matches!(hit.hit.fault, Fault::End(_));
        let ends: Vec<f64> = hits.iter().filter(is_end).map(|hit| hit.unix).collect();
        for hit in hits.iter_mut().filter(|hit| hit.missed.is_none() && hit.hit.fault.ends_generation()) {
            hit.recovery = record::recovery(hit.unix, &ends, &rows);
        }
        let generations = match self.program {
            // A resumed job begins with generation 1 again.
            Program::Train(_) => rows.len() as u64,
            Program::Own(_) => {
                (0..self.nodes).map(|node| last_generation(&place.log(node))).max().unwrap_or(1)
            }
        };
        Ok(Run { hits, generations, seconds, verdict })
    }

    /// Injects each fault at its time, as long as the run continues.
    fn hit(
        &self,
        hits: &[Injection],
        running: &mut Launchers,
        place: &mut Place,
        length: f64,
        tuned: bool,
        until: Instant,
    ) -> Result<Vec<Injected>, Failure> {
        let mut injected = Vec::new();
        // A fault before the first generation would rightly end the job.
        if !self.wait_for_begin(running, place, until)? {
            return Ok(injected);
        }
        let (began, launchers) = (Instant::now(), running.pids());
        let mut originals: Vec<i32> =
            launchers.iter().flat_map(|launcher| living_workers(*launcher)).collect();
        let folder = place.run();
        // A user's own program has no run folder that could be moved or need space.
        let is_of_folder = |fault| matches!(fault, Fault::Folder(_) | Fault::DiskFull(_));
        let possible = |hit: &&Injection| !(self.program.is_own() && is_of_folder(hit.fault));
        for hit in hits.iter().filter(possible) {
            let at = began + Duration::from_secs_f64(hit.at * length);
            if running.wait(at.saturating_duration_since(Instant::now()))?.is_some() {
                break;
            }
            if self.divided && hit.fault.removes() {
                self.wait_for_recovery(&injected, running, &folder, until)?;
            }
            if let Fault::End(request) = hit.fault {
                injected.push(self.end_and_resume(hit, request, running, place, tuned, until)?);
                originals = running.pids().into_iter().flat_map(living_workers).collect();
                continue;
            }
            let longest_away = Duration::from_secs_f64(0.5 * (1.0 - hit.at).max(0.0) * length);
            let (launchers, originals, folder, program, aims) =
                (&mut *running, &originals, &folder, &place.program(), &place.aims());
            let (disk, hosts) = (place.disk.as_mut(), place.hosts.as_mut());
            let mut target =
                Target { launchers, originals, folder, program, aims, disk, hosts, longest_away };
            injected.push(target.inject(hit, until));
        }
        Ok(injected)
    }

    /// Waits for the recovery from the last removed worker: two owners of a part must not be lost at once.
    fn wait_for_recovery(
        &self,
        injected: &[Injected],
        running: &mut Launchers,
        folder: &Path,
        until: Instant,
    ) -> Result<(), Failure> {
        let has_removed = |hit: &&Injected| hit.missed.is_none() && hit.hit.fault.removes();
        // A user's own program has no run folder that tells.
        let Some(last) = injected.iter().rfind(has_removed).filter(|_| !self.program.is_own()) else {
            return Ok(());
        };
        let until = until.min(Instant::now() + REPLACED);
        while Instant::now() < until
            && !record::has_recovered(last.unix, folder)
            && running.wait(Duration::from_millis(10))?.is_none()
        {}
        Ok(())
    }

    /// Signals the launcher to end, and resumes the run unless it is complete by then.
    fn end_and_resume(
        &self,
        hit: &Injection,
        request: Request,
        running: &mut Launchers,
        place: &Place,
        tuned: bool,
        until: Instant,
    ) -> Result<Injected, Failure> {
        let (pid, unix) = (running.pids().first().map(|pid| *pid as i32), unix_seconds(SystemTime::now()));
        let mut injected = Injected { hit: hit.clone(), pid, unix, missed: None, recovery: None };
        let Some(pid) = pid else { return Ok(injected) };
        if let Err(error) = strike(hit.fault, pid) {
            injected.missed = Some(error.to_string());
            return Ok(injected);
        }
        let ended = running.wait(until.saturating_duration_since(Instant::now()))?;
        let folder = RunFolder::at(place.run());
        // Without a checkpoint the work is lost, and the launcher's exit counts as the run's failure.
        let is_resumed = ended.is_some_and(|ended| ended.is(128 + request.signal().as_raw()))
            && folder.has_checkpoints()
            && !folder.is_complete();
        if is_resumed {
            // The earlier output helps to explain a failure.
            let _ = fs::rename(place.log(0), place.log(0).with_extension("before"));
            *running = self.start(place, tuned)?;
            self.wait_for_begin(running, place, until)?;
        }
        Ok(injected)
    }

    /// Waits until the first generation trains. Returns false if the run ends first, or at `until`.
    fn wait_for_begin(
        &self,
        running: &mut Launchers,
        place: &Place,
        until: Instant,
    ) -> Result<bool, Failure> {
        let begun = || match self.program {
            Program::Train(_) => (0..self.nodes).any(|node| begun(&place.log(node))),
            Program::Own(_) => trace::is_complete(&place.trace(), 1),
        };
        while !begun() {
            if Instant::now() >= until || running.wait(Duration::from_millis(10))?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns the last generation in a launcher's log, which has a line for each generation after the first.
fn last_generation(log: &Path) -> u64 {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let told = text.unwrap_or_default();
    let numbers = told
        .lines()
        .filter_map(|line| line.strip_prefix("kolo: generation ")?.split(' ').next()?.parse().ok());
    numbers.max().unwrap_or(1)
}

/// True if rank 0 of the first generation has printed the number of workers.
fn begun(log: &Path) -> bool {
    fs::read_to_string(log).is_ok_and(|text| text.contains(" workers over "))
}
