//! `kolo check`: the workers that would run a job look for its problems before it runs.

use std::path::PathBuf;

use clap::Args;
use kolo::Failure;
use kolo_check::{CHECKS, Report, Verdict};
use kolo_comm::Op;
use kolo_comm::env::is_worker;
use kolo_data::Part;
use kolo_launch::Messages;
use kolo_program::check_lone_worker;
use kolo_program::output::print;
use kolo_recipe::{Recipe, RunFolder};

use super::train::Train;
use crate::check::{CheckRequest, TRIAL, gather, try_as_told};
use crate::start_workers::start_workers;

/// Check a job before it runs: its hosts, network, disk, data and settings.
///
/// Give it the options of `kolo train`, and start it the same way: alone, by `kolo launch` on each node, by
/// torchrun, mpirun or Slurm. It does not train and leaves no files. The exit code is 0 if Kolo finds no
/// problem, 3 for warnings and 4 for errors.
#[derive(Args)]
#[command(after_help = checks(), mut_arg("json", |arg| arg.help("Print JSON: findings and all facts")))]
pub(crate) struct Check {
    #[command(flatten)]
    train: Box<Train>,
}

/// Environment variable with the file for rank 0's verdict, set if `kolo check` itself started the workers.
const VERDICT: &str = "KOLO_CHECK_VERDICT";

fn checks() -> String {
    let line = |check: &kolo_check::Check| format!("  {:24} {}\n", check.name, check.about);
    format!("Looked for:\n{}", CHECKS.iter().map(line).collect::<String>())
}

impl Check {
    pub(crate) fn run(self) -> Result<(), Failure> {
        if std::env::var_os(TRIAL).is_some() {
            return try_as_told();
        }
        if is_worker() {
            check_lone_worker(self.train.nproc)?;
            return self.work();
        }
        let recipe = self.train.configuration()?;
        self.train.refuse(&recipe)?;
        // Unreadable data is a finding, which the workers report.
        if let Ok(images) = recipe.open_data() {
            self.train.refuse_images(&recipe, &*images)?;
            recipe.plan(images.samples(Part::Train))?;
        }
        let told = tempfile::NamedTempFile::new()
            .map_err(|e| Failure::work(format!("cannot make a temporary file: {e}")))?;
        let mut env = self.train.environment();
        env.push((VERDICT.into(), told.path().as_os_str().to_owned()));
        let (port, bind) = (self.train.master_port, self.train.communication.bind());
        start_workers(recipe.nproc, port, env, &self.train.elastic, bind, Messages::Text, None)?;
        let verdict = Verdict::read(told.path()).map_err(Failure::work)?;
        print(&verdict.words)?;
        drop(told);
        end(&verdict)
    }

    fn work(&self) -> Result<(), Failure> {
        let mut recipe = self.train.configuration()?;
        self.train.refuse(&recipe)?;
        let group = self.train.communication.group(self.train.algorithm.as_deref())?;
        let mut servers = [i32::from(group.is_server())];
        group.all_reduce(&mut servers, Op::Sum)?;
        self.train.fit(&mut recipe, group.world_size().saturating_sub(servers[0] as usize))?;
        let is_elastic = self.train.communication.is_elastic() && recipe.needs_all_workers().is_none();
        let folder = self.folder(&recipe)?;
        let request = CheckRequest {
            recipe: &recipe,
            may_continue: self.train.may_continue(),
            resumes: self.train.resumes(&RunFolder::at(folder.clone())),
            folder,
            take_over: self.train.take_over,
            accept_changed_data: self.train.accept_changed_data,
            is_elastic,
            slowdowns: &self.train.slow,
        };
        let verdict =
            Verdict::of(&Report::of(gather(&group, &request)?), self.train.json).map_err(Failure::work)?;
        let file = std::env::var_os(VERDICT).map(PathBuf::from);
        if group.rank().0 == 0 {
            match &file {
                Some(file) => verdict.write(file).map_err(Failure::work)?,
                None => print(&verdict.words)?,
            }
        }
        // Rank 0 has reported the verdict before any worker ends.
        group.barrier()?;
        drop(group);
        if file.is_some() { Ok(()) } else { end(&verdict) }
    }

    fn folder(&self, recipe: &Recipe) -> Result<PathBuf, Failure> {
        match self.train.resume.clone().or(self.train.out.clone()) {
            Some(folder) => Ok(folder),
            None => Ok(RunFolder::next_numbered(recipe)?),
        }
    }
}

/// Ends the program with the verdict's exit code. The verdict has been printed already.
fn end(verdict: &Verdict) -> Result<(), Failure> {
    if verdict.exit_code() == 0 {
        return Ok(());
    }
    // Without a launcher the report fails, and nothing needs it.
    let _ = kolo_launch::report_failure(&format!("kolo check has found {}", verdict.summary), None);
    std::process::exit(verdict.exit_code().into())
}
