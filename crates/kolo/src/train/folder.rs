//! The run folder: what a run leaves behind, in files that others can open.
//!
//! `config.toml` (all that is needed to repeat it), `metrics.csv` (a row an epoch), `steps.jsonl` (a line a step),
//! `buckets.csv`, `checkpoints/`, `summary.json`. Only rank 0 writes.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use kolo_ddp::checkpoint::{self, Found, Position};
use serde::Serialize;

use super::config::TrainConfig;
use super::lines::Lines;
use super::meter::BucketRow;
use crate::fail::Failure;

const CONFIG: &str = "config.toml";
const METRICS: &str = "metrics.csv";
const STEPS: &str = "steps.jsonl";
const BUCKETS: &str = "buckets.csv";
const SUMMARY: &str = "summary.json";
const GENERATIONS: &str = "generations.jsonl";

const METRICS_HEADER: &str = "epoch,seconds_per_step,images_per_second,comm_fraction,exposed_comm_fraction,\
                              train_loss,test_accuracy,learning_rate";

/// How long whoever begins to write waits for a folder that is away.
const AWAY: Duration = Duration::from_secs(10);

/// See the module's text.
#[derive(Clone, Debug)]
pub(crate) struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    /// A folder that is there already.
    pub(crate) fn at(path: PathBuf) -> Self {
        RunFolder { path }
    }

    /// A new folder with the configuration in it.
    pub(crate) fn create(path: PathBuf, config: &TrainConfig) -> Result<Self, Failure> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|e| failure(parent, &e))?;
        }
        fs::create_dir(&path).map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => Failure::input(format!(
                "the run folder {0} exists; choose another --out, or continue it with --resume {0}",
                path.display()
            )),
            _ => failure(&path, &e),
        })?;
        let folder = RunFolder { path };
        folder.write(CONFIG, config.to_toml()?.as_bytes())?;
        Ok(folder)
    }

    /// `runs/<number>-<model>-<data>`, with the first free number.
    pub(crate) fn create_numbered(config: &TrainConfig) -> Result<Self, Failure> {
        let runs = Path::new("runs");
        fs::create_dir_all(runs).map_err(|e| failure(runs, &e))?;
        let number = |name: &str| name.split('-').next().and_then(|number| number.parse::<u32>().ok());
        let entries = fs::read_dir(runs).map_err(|e| failure(runs, &e))?;
        let taken = entries.filter_map(|entry| number(entry.ok()?.file_name().to_str()?));
        let mut next = taken.max().unwrap_or(0) + 1;
        let data = config.data.split(':').next().unwrap_or_default();
        loop {
            let path = runs.join(format!("{next:04}-{}-{data}", config.model));
            // Another run may have taken the number meanwhile.
            if !path.exists() {
                return Self::create(path, config);
            }
            next += 1;
        }
    }

    /// Removes the folder of a run that failed before it began: it holds the configuration and nothing else.
    pub(crate) fn discard_unused(&self) {
        if !self.path.join(STEPS).exists() && fs::remove_file(self.path.join(CONFIG)).is_ok() {
            // Refused if there is anything else in it, as it should be.
            let _ = fs::remove_dir(&self.path);
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    pub(crate) fn config(&self) -> Result<TrainConfig, Failure> {
        if !self.path.is_dir() {
            return Err(Failure::input(format!("there is no run folder {}", self.path.display())));
        }
        TrainConfig::read(&self.path.join(CONFIG))
    }

    /// The checkpoint to continue from: the newest that is whole and undamaged.
    pub(crate) fn newest_checkpoint(&self) -> Result<Found, Failure> {
        let folder = self.checkpoints();
        let found = checkpoint::newest(&folder).map_err(Failure::input)?;
        found.ok_or_else(|| {
            let folder = folder.display();
            Failure::input(format!("{folder} holds no checkpoint to continue from; start a new run"))
        })
    }

    /// Waits for a folder that is away for a moment, as a disk that is mounted anew. Whoever begins to write must know what is
    /// there already.
    pub(crate) fn await_there(&self) -> Result<(), Failure> {
        let until = Instant::now() + AWAY;
        while !self.path.is_dir() {
            if Instant::now() >= until {
                let (path, seconds) = (self.path.display(), AWAY.as_secs());
                return Err(Failure::work(format!(
                    "the run folder {path} has been away for {seconds} s; bring it back and --resume it"
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Forgets what a run wrote after the checkpoint from which it continues.
    pub(crate) fn rewind(&self, position: &Position) -> Result<(), Failure> {
        self.keep_lines(STEPS, |line| {
            let row: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            row["step"].as_u64().is_some_and(|step| step < position.step)
        })?;
        self.keep_lines(METRICS, |line| {
            let epoch = line.split(',').next().and_then(|epoch| epoch.parse::<usize>().ok());
            epoch.is_none_or(|epoch| epoch <= position.epoch)
        })
    }

    /// The last step of which there is a line.
    pub(crate) fn last_step(&self) -> Result<Option<u64>, Failure> {
        let path = self.path.join(STEPS);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failure(&path, &e)),
        };
        let row = |line: &str| serde_json::from_str::<serde_json::Value>(line).ok()?["step"].as_u64();
        Ok(text.lines().rev().find_map(row))
    }

    fn keep_lines(&self, name: &str, keep: impl Fn(&str) -> bool) -> Result<(), Failure> {
        let path = self.path.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => {
                let kept: String =
                    text.lines().filter(|line| keep(line)).flat_map(|line| [line, "\n"]).collect();
                self.write(name, kept.as_bytes())
            }
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            Err(e) => Err(failure(&path, &e)),
        }
    }

    /// A line a step.
    pub(crate) fn step_log(&self) -> Result<Lines, Failure> {
        Lines::open(self.path.join(STEPS), "")
    }

    /// A line an epoch.
    pub(crate) fn epoch_log(&self) -> Result<Lines, Failure> {
        Lines::open(self.path.join(METRICS), METRICS_HEADER)
    }

    /// A line a generation, of an elastic job.
    pub(crate) fn generation_log(&self) -> Lines {
        Lines::later(self.path.join(GENERATIONS), "")
    }

    pub(crate) fn write_buckets(&self, rows: &[BucketRow]) -> Result<(), Failure> {
        let mut text = String::from("bucket,bytes,p50_us,p95_us,p99_us\n");
        for row in rows {
            text += &format!(
                "{},{},{:.1},{:.1},{:.1}\n",
                row.bucket, row.bytes, row.p50_us, row.p95_us, row.p99_us
            );
        }
        self.write(BUCKETS, text.as_bytes())
    }

    pub(crate) fn write_summary(&self, summary: &impl Serialize) -> Result<PathBuf, Failure> {
        let text = serde_json::to_string_pretty(summary)
            .map_err(|e| failure(&self.path.join(SUMMARY), &e.into()))?;
        self.write(SUMMARY, (text + "\n").as_bytes())?;
        Ok(self.path.join(SUMMARY))
    }

    /// Whole or not at all: under a temporary name first.
    fn write(&self, name: &str, data: &[u8]) -> Result<(), Failure> {
        let (path, draft) = (self.path.join(name), self.path.join(format!(".{name}.part")));
        let result = File::create(&draft).and_then(|mut file| {
            file.write_all(data)?;
            file.sync_all()
        });
        result.and_then(|()| fs::rename(&draft, &path)).map_err(|e| failure(&path, &e))
    }
}

fn failure(path: &Path, cause: &std::io::Error) -> Failure {
    Failure::work(format!("{}: {cause}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_away_is_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(place.path().join("run"));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| folder.await_there());
            std::thread::sleep(Duration::from_millis(30));
            fs::create_dir(folder.path()).unwrap();
            waiting.join().unwrap().unwrap();
        });
    }
}
