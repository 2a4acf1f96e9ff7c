//! `kolo checkpoint`: the contents of checkpoints, and their damage.

use std::path::{Path, PathBuf};

use clap::Args;
use kolo_comm::schedule::words::counted;
use kolo_ddp::checkpoint::{self, FileEntry, Position, Reader};
use serde::Serialize;

use kolo::Failure;
use kolo_program::output::print;

/// Show what checkpoints hold and whether they are undamaged.
#[derive(Args)]
pub(crate) struct Checkpoint {
    /// A run folder, a folder of checkpoints, or one checkpoint
    folder: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Output of `kolo checkpoint` for one checkpoint.
#[derive(Serialize)]
struct Report {
    path: PathBuf,
    /// Reason that the checkpoint cannot be used; `None` if it is good.
    problem: Option<String>,
    position: Option<Position>,
    bytes: u64,
    files: Vec<FileEntry>,
}

impl Report {
    /// Reads as much of a checkpoint as its state permits.
    fn of(path: PathBuf) -> Self {
        let problem = checkpoint::verify(&path).err().map(|error| error.to_string());
        let reader = Reader::open(&path).ok();
        let position = reader.as_ref().and_then(|reader| reader.position().ok());
        let files = reader.map(|reader| reader.manifest().files.clone()).unwrap_or_default();
        let bytes = files.iter().map(|file| file.bytes).sum();
        Report { path, problem, position, bytes, files }
    }

    fn line(&self) -> String {
        let place = match &self.position {
            Some(Position { step, epoch, step_in_epoch, .. }) => {
                format!(
                    "step {step}, epoch {epoch} + {}, {} bytes",
                    counted(step_in_epoch, "step"),
                    self.bytes
                )
            }
            None => "position unknown".into(),
        };
        match &self.problem {
            None => format!("{}: {place}, good", self.path.display()),
            Some(problem) => format!("{}: {place}, NOT GOOD: {problem}", self.path.display()),
        }
    }

    fn contents(&self) -> String {
        let mut text = String::new();
        for file in &self.files {
            text += &format!("\n{}: {} bytes, sha256 {}\n", file.name, file.bytes, file.sha256);
            for tensor in &file.tensors {
                text += &format!("  {:48} {} {:?}\n", tensor.key(), tensor.dtype, tensor.shape);
            }
        }
        text
    }
}

impl Checkpoint {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let reports: Vec<Report> = checkpoints(&self.folder)?.into_iter().map(Report::of).collect();
        let text = if self.json {
            serde_json::to_string_pretty(&reports).map_err(Failure::work)? + "\n"
        } else {
            // A run would resume from the newest good checkpoint: show its contents.
            let newest = reports.iter().rev().find(|report| report.problem.is_none());
            let lines: String = reports.iter().map(|report| report.line() + "\n").collect();
            lines + &newest.map(Report::contents).unwrap_or_default()
        };
        print(&text)?;
        let bad: Vec<&str> = reports.iter().filter_map(|report| report.problem.as_deref()).collect();
        match bad.first() {
            None => Ok(()),
            Some(first) => {
                let (bad, all) = (bad.len(), reports.len());
                let all = counted(all, "checkpoint");
                Err(Failure::work(format!("{bad} of {all} cannot be used: {first}")))
            }
        }
    }
}

/// Returns the checkpoints at `folder`, by rising step.
fn checkpoints(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !folder.is_dir() {
        return Err(Failure::input(format!("there is no folder {}", folder.display())));
    }
    for place in [folder, &folder.join("checkpoints")] {
        let list = checkpoint::list(place).map_err(Failure::input)?;
        if !list.is_empty() {
            return Ok(list.into_iter().map(|(_, path)| path).collect());
        }
    }
    if !folder.join("manifest.json").exists() && !folder.join("weights.safetensors").exists() {
        let folder = folder.display();
        return Err(Failure::input(format!(
            "{folder} is no checkpoint and holds none; give a run folder or a checkpoint in its checkpoints/"
        )));
    }
    Ok(vec![folder.to_path_buf()])
}
