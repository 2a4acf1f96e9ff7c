//! One run of the job, as a process of its own, for as many steps as are compared.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kolo_comm::env;
use kolo_comm::schedule::words::counted;
use kolo_ddp::verify::trace::{self, Trace};
use kolo_program::Failure;
use kolo_train::RUN_FOLDER;

use super::axes::Run;
use super::plan::cut_after;
use super::report::describe;
use crate::running::{Running, last_error};

/// The program of the job.
#[derive(Debug)]
pub enum Program {
    /// `kolo train` with this configuration.
    Train(PathBuf),
    /// The user's own program, started by `kolo launch`.
    Own(Vec<OsString>),
}

/// The job that all runs repeat, and the time limit of a run.
#[derive(Debug)]
pub struct VerifyJob {
    /// The program.
    pub program: Program,
    /// Steps to compare.
    pub steps: u64,
    /// Time after which a run is given up.
    pub limit: Duration,
    /// Further options that `train` and `launch` both accept.
    pub options: Vec<OsString>,
    /// True to print a JSON object for each run in place of a table.
    pub json: bool,
}

impl VerifyJob {
    /// Makes a run in a new folder and returns its trace. Errors: the run did not begin, failed, or took too
    /// long; the error names the run and the last error of its workers.
    pub(crate) fn trace(&self, run: &Run, folder: &Path) -> Result<Trace, Failure> {
        fs::create_dir(folder).map_err(|e| Failure::work(format!("{}: {e}", folder.display())))?;
        let (file, log) = (folder.join("trace.jsonl"), folder.join("output"));
        let mut child = Running(self.start(run, folder, &file, &log)?);
        let is_complete = || trace::is_complete(&file, self.steps);
        let status = child.wait_unless(self.limit, is_complete)?;
        // The program does not end by itself; its workers end with their launcher.
        drop(child);
        if is_complete() {
            return Ok(trace::read(&file)?);
        }
        let words = || last_error(&log);
        let Some(status) = status else {
            let limit = self.limit.as_secs_f64();
            return Err(Failure::work(format!(
                "{} was not over after {limit} s; give it more with --limit, or fewer --steps{}",
                describe(run),
                words()
            )));
        };
        if !file.exists() {
            return Err(Failure::work(format!(
                "{} ended without a step: {status}; the program must train by Kolo's `Ddp` or `Replica`, or by \
                 `kolo.torch.DistributedDataParallel`{}",
                describe(run),
                words()
            )));
        }
        let found = trace::read(&file)?;
        // A program with fewer steps is compared as far as it goes.
        match status.success() {
            true => Ok(found),
            false => Err(Failure::work(format!(
                "{} failed after {}{}",
                describe(run),
                counted(found.steps.len(), "step"),
                words()
            ))),
        }
    }

    fn start(&self, run: &Run, folder: &Path, trace: &Path, log: &Path) -> Result<Child, Failure> {
        let program =
            std::env::current_exe().map_err(|e| Failure::work(format!("cannot find this program: {e}")))?;
        let mut command = Command::new(program);
        match &self.program {
            Program::Train(config) => {
                command.arg("train").arg("--config").arg(config).arg("--out").arg(folder.join("run"))
            }
            Program::Own(_) => command.arg("launch"),
        };
        command.args(["--nproc", &run.workers.to_string()]).args(&self.options);
        if run.servers > 0 {
            command.args(["--servers", &run.servers.to_string()]);
        }
        if let Some(state) = run.divided {
            command.args(["--shard", state]);
            // Of an even number of workers each divided parameter has one owner, and one copy for all workers
            // needs none.
            let has_one = state == "host" || state == "parameters" && run.workers.is_multiple_of(2);
            if !has_one {
                command.args(["--redundancy", "2"]);
            }
        }
        if run.recomputed {
            command.arg("--activation-checkpointing");
        }
        if run.offloaded {
            command.arg("--offload").arg(folder);
        }
        for (name, value) in [("--transport", &run.transport), ("--algorithm", &run.algorithm)] {
            if let Some(value) = value {
                command.args([name, value]);
            }
        }
        if let Program::Own(own) = &self.program {
            command.arg("--").args(own);
        }
        let output = File::create(log).and_then(|file| Ok((file.try_clone()?, file)));
        let (out, err) = output.map_err(|e| Failure::work(format!("{}: {e}", log.display())))?;
        if let Some(steps) = run.resumed_after {
            command.env(trace::RESUME, steps.to_string());
        }
        if run.tuned {
            // Tuning needs several streams to try.
            command.env(trace::TUNE, "1").env(env::STREAMS, "2");
        }
        if let Some(steps) = cut_after(self.steps) {
            command.env(trace::END_ROUND, steps.to_string());
        }
        command
            .env(trace::FILE, trace)
            .env(trace::STEPS, self.steps.to_string())
            .env(trace::BUCKET_CAP_MB, run.cap.to_string())
            // Each run starts anew, also in a program that has a run folder of its own.
            .env(RUN_FOLDER, folder.join("run"))
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err);
        command.spawn().map_err(|e| Failure::work(format!("cannot start {}: {e}", describe(run))))
    }
}
