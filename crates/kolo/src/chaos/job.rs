//! Runs of the job: the undisturbed one, and those that are hit.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::check::{self, Ended};
use super::deal::{Dealt, Target};
use super::plan::{Hit, MOST};
use super::workers::living;
use crate::fail::Failure;
use crate::running::{Running, last_error};

/// What is run.
pub(crate) struct Job {
    /// Options of `kolo train`.
    pub(crate) options: Vec<OsString>,
    /// Workers.
    pub(crate) nproc: usize,
    /// How long a run may take.
    pub(crate) limit: Duration,
}

/// How a run that was hit has ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    /// In the bits of the undisturbed one, with every step told once.
    Same,
    /// Well, but something is missing or other than it should be.
    Lost(String),
    /// With an error.
    Failed(String),
    /// It has not.
    Hung,
}

/// What has become of a run that was hit.
pub(super) struct Run {
    pub(super) hits: Vec<Dealt>,
    /// The number of the last generation that has come to a step.
    pub(super) generations: u64,
    pub(super) seconds: f64,
    pub(super) verdict: Verdict,
}

impl Job {
    /// Makes the run that the others are compared with.
    pub(super) fn undisturbed(&self, place: &Path) -> Result<Ended, Failure> {
        let mut running = self.start(place)?;
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
        Ended::of(&folder(place)).map_err(|lost| Failure::work(format!("the undisturbed run: {lost}")))
    }

    /// Makes a run and hits it, where an undisturbed one would take `length` seconds.
    pub(super) fn disturbed(
        &self,
        hits: &[Hit],
        place: &Path,
        undisturbed: &Ended,
        length: f64,
    ) -> Result<Run, Failure> {
        let until = Instant::now() + self.limit;
        let mut running = self.start(place)?;
        let mut hits = self.hit(hits, &mut running, place, length, until)?;
        let status = running.wait(until.saturating_duration_since(Instant::now()))?;
        let seconds = (self.limit - until.saturating_duration_since(Instant::now())).as_secs_f64();
        drop(running);
        let ended = || Ended::of(&folder(place)).and_then(|ended| ended.compare(undisturbed));
        let verdict = match status {
            None => Verdict::Hung,
            Some(status) if !status.success() => {
                Verdict::Failed(format!("{status}{}", last_error(&log(place))))
            }
            Some(_) => ended().map_or_else(Verdict::Lost, |()| Verdict::Same),
        };
        // None can be told where the folder holds nothing.
        let rows = check::generations(&folder(place)).unwrap_or_default();
        for hit in hits.iter_mut().filter(|hit| hit.missed.is_none() && hit.hit.deed.removes()) {
            hit.recovery_seconds = check::recovery(hit.unix, &rows);
        }
        let generations = rows.iter().map(|row| row.generation).max().unwrap_or(0);
        Ok(Run { hits, generations, seconds, verdict })
    }

    /// Deals the hits at their times, as long as the run goes on.
    fn hit(
        &self,
        hits: &[Hit],
        running: &mut Running,
        place: &Path,
        length: f64,
        until: Instant,
    ) -> Result<Vec<Dealt>, Failure> {
        let (launcher, mut dealt) = (running.0.id(), Vec::new());
        // Before that a failure ends the job, as it should.
        while !begun(place) {
            if Instant::now() >= until || running.wait(Duration::from_millis(10))?.is_some() {
                return Ok(dealt);
            }
        }
        let (began, originals) = (Instant::now(), living(launcher));
        let folder = folder(place);
        let target = Target { launcher, originals: &originals, folder: &folder };
        for hit in hits {
            let at = began + Duration::from_secs_f64(hit.at * length);
            if running.wait(at.saturating_duration_since(Instant::now()))?.is_some() {
                break;
            }
            let mut over = || {
                Instant::now() >= until || running.wait(Duration::ZERO).is_ok_and(|status| status.is_some())
            };
            dealt.push(target.deal(hit, &mut over));
        }
        Ok(dealt)
    }

    fn start(&self, place: &Path) -> Result<Running, Failure> {
        let log = log(place);
        let output = File::create(&log).and_then(|file| Ok((file.try_clone()?, file)));
        let (out, err) = output.map_err(|e| Failure::work(format!("{}: {e}", log.display())))?;
        let program = std::env::current_exe();
        let program = program.map_err(|e| Failure::work(format!("cannot find this program: {e}")))?;
        let mut command = Command::new(program);
        command.arg("train").args(&self.options).arg("--out").arg(folder(place));
        command.args(["--nproc", &self.nproc.to_string(), "--max-restarts", &MOST.to_string()]);
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let child = command.spawn().map_err(|e| Failure::work(format!("cannot start a run: {e}")))?;
        Ok(Running(child))
    }
}

/// A run's folder, and the file of what it says.
fn folder(place: &Path) -> PathBuf {
    place.join("run")
}

fn log(place: &Path) -> PathBuf {
    place.join("output")
}

/// Whether rank 0 of the first generation has told who is there.
fn begun(place: &Path) -> bool {
    fs::read_to_string(log(place)).is_ok_and(|text| text.contains(" workers over "))
}
