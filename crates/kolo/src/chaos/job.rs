//! Runs of the job: the undisturbed one, and those into which faults are injected.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kolo_ddp::verify::trace;
use kolo_train::RUN_FOLDER;
use serde::Serialize;

use super::inject::{Injected, Target};
use super::plan::{Fault, Injection, MOST};
use super::record::{self, RunRecord};
use super::workers::living_workers;
use crate::running::{Running, last_error};
use kolo::Failure;

/// The program that is run.
pub(crate) enum Program {
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
pub(crate) struct ChaosJob {
    pub(crate) program: Program,
    /// Number of workers.
    pub(crate) nproc: usize,
    /// Number of summation servers besides them; faults strike these as well.
    pub(crate) servers: usize,
    /// How long a run may take.
    pub(crate) limit: Duration,
}

/// How a run with faults has ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum RunVerdict {
    /// The run has ended in the bits of the undisturbed one, with one line for every step.
    Same,
    /// The run has ended without an error, but something is missing or differs.
    Lost(String),
    /// The run has ended with an error.
    Failed(String),
    /// The run has not ended within the limit.
    Hung,
}

/// A run with faults, and its result.
pub(super) struct Run {
    pub(super) hits: Vec<Injected>,
    /// Number of the last generation in which a step was done.
    pub(super) generations: u64,
    pub(super) seconds: f64,
    pub(super) verdict: RunVerdict,
}

impl ChaosJob {
    /// Makes the run that the others are compared with.
    pub(super) fn undisturbed(&self, place: &Path) -> Result<RunRecord, Failure> {
        let mut running = self.start(place)?;
        self.wait_for_begin(&mut running, place, Instant::now() + self.limit)?;
        let began = Instant::now();
        let Some(status) = running.wait(self.limit)? else {
            let limit = self.limit.as_secs_f64();
            return Err(Failure::work(format!(
                "the undisturbed run was not over after {limit} s; give it more with --limit, or fewer --steps{}",
                last_error(&log(place))
            )));
        };
        if !status.success() {
            let words = last_error(&log(place));
            return Err(Failure::work(format!("the undisturbed run failed: {status}{words}")));
        }
        let lost = |lost| Failure::work(format!("the undisturbed run: {lost}"));
        if self.program.is_own() && !trace_file(place).exists() {
            return Err(lost(
                "it has done no step; the program must train by Kolo's `Ddp` or `Replica`".into(),
            ));
        }
        self.record(place, began.elapsed().as_secs_f64()).map_err(lost)
    }

    /// The record of a run that has ended, `seconds` after its first generation.
    fn record(&self, place: &Path, seconds: f64) -> Result<RunRecord, String> {
        match &self.program {
            Program::Train(_) => RunRecord::of(&folder(place)),
            Program::Own(_) => RunRecord::of_trace(&trace_file(place), seconds),
        }
    }

    /// Makes a run and injects faults into it, where an undisturbed run takes `length` seconds.
    pub(super) fn disturbed(
        &self,
        hits: &[Injection],
        place: &Path,
        undisturbed: &RunRecord,
        length: f64,
    ) -> Result<Run, Failure> {
        let until = Instant::now() + self.limit;
        let mut running = self.start(place)?;
        let mut hits = self.hit(hits, &mut running, place, length, until)?;
        let status = running.wait(until.saturating_duration_since(Instant::now()))?;
        let seconds = (self.limit - until.saturating_duration_since(Instant::now())).as_secs_f64();
        drop(running);
        let ended = || self.record(place, seconds).and_then(|ended| ended.compare(undisturbed));
        let verdict = match status {
            None => RunVerdict::Hung,
            Some(status) if !status.success() => {
                RunVerdict::Failed(format!("{status}{}", last_error(&log(place))))
            }
            Some(_) => ended().map_or_else(RunVerdict::Lost, |()| RunVerdict::Same),
        };
        // A run folder without generations means that none has done a step.
        let rows = record::generations(&folder(place)).unwrap_or_default();
        for hit in hits.iter_mut().filter(|hit| hit.missed.is_none() && hit.hit.fault.removes()) {
            hit.recovery_seconds = record::recovery(hit.unix, &rows);
        }
        let generations = match self.program {
            Program::Train(_) => rows.iter().map(|row| row.generation).max().unwrap_or(0),
            Program::Own(_) => last_generation(place),
        };
        Ok(Run { hits, generations, seconds, verdict })
    }

    /// Injects each fault at its time, as long as the run goes on.
    fn hit(
        &self,
        hits: &[Injection],
        running: &mut Running,
        place: &Path,
        length: f64,
        until: Instant,
    ) -> Result<Vec<Injected>, Failure> {
        let (launcher, mut injected) = (running.0.id(), Vec::new());
        // A fault before the first generation would end the job, as it should.
        if !self.wait_for_begin(running, place, until)? {
            return Ok(injected);
        }
        let (began, originals) = (Instant::now(), living_workers(launcher));
        let folder = folder(place);
        // A user's own program has no run folder that could be taken away.
        let possible = |hit: &&Injection| !(self.program.is_own() && matches!(hit.fault, Fault::Folder(_)));
        for hit in hits.iter().filter(possible) {
            let at = began + Duration::from_secs_f64(hit.at * length);
            if running.wait(at.saturating_duration_since(Instant::now()))?.is_some() {
                break;
            }
            let mut over = || {
                Instant::now() >= until || running.wait(Duration::ZERO).is_ok_and(|status| status.is_some())
            };
            let longest_away = Duration::from_secs_f64(0.5 * (1.0 - hit.at).max(0.0) * length);
            let target = Target { launcher, originals: &originals, folder: &folder, longest_away };
            injected.push(target.inject(hit, &mut over));
        }
        Ok(injected)
    }

    /// Waits until the first generation trains; false if the run ends before, or `until` is over.
    fn wait_for_begin(&self, running: &mut Running, place: &Path, until: Instant) -> Result<bool, Failure> {
        let begun = || match self.program {
            Program::Train(_) => begun(place),
            Program::Own(_) => trace::is_complete(&trace_file(place), 1),
        };
        while !begun() {
            if Instant::now() >= until || running.wait(Duration::from_millis(10))?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn start(&self, place: &Path) -> Result<Running, Failure> {
        let log = log(place);
        let output = File::create(&log).and_then(|file| Ok((file.try_clone()?, file)));
        let (out, err) = output.map_err(|e| Failure::work(format!("{}: {e}", log.display())))?;
        let program = std::env::current_exe();
        let program = program.map_err(|e| Failure::work(format!("cannot find this program: {e}")))?;
        let mut command = Command::new(program);
        match &self.program {
            Program::Train(options) => command.arg("train").args(options).arg("--out").arg(folder(place)),
            Program::Own(_) => {
                command.arg("launch").env(trace::FILE, trace_file(place)).env(RUN_FOLDER, place.join("run"))
            }
        };
        command.args(["--nproc", &self.nproc.to_string(), "--max-restarts", &MOST.to_string()]);
        if self.servers > 0 {
            command.args(["--servers", &self.servers.to_string()]);
        }
        if let Program::Own(words) = &self.program {
            command.arg("--").args(words);
        }
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let child = command.spawn().map_err(|e| Failure::work(format!("cannot start a run: {e}")))?;
        Ok(Running(child))
    }
}

/// The run folder below a run's place; beside it, [`log`] is the file of the run's output.
fn folder(place: &Path) -> PathBuf {
    place.join("run")
}

fn trace_file(place: &Path) -> PathBuf {
    place.join("trace.jsonl")
}

fn log(place: &Path) -> PathBuf {
    place.join("output")
}

/// The last generation that the launcher has told of; it tells of the second one and those after it.
fn last_generation(place: &Path) -> u64 {
    let text = fs::read(log(place)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let told = text.unwrap_or_default();
    let numbers = told
        .lines()
        .filter_map(|line| line.strip_prefix("kolo: generation ")?.split(' ').next()?.parse().ok());
    numbers.max().unwrap_or(1)
}

/// Whether rank 0 of the first generation has printed how many workers there are.
fn begun(place: &Path) -> bool {
    fs::read_to_string(log(place)).is_ok_and(|text| text.contains(" workers over "))
}
