//! The subcommands.

mod bench;
mod chaos;
mod checkpoint;
mod elastic;
mod launch;
mod table_options;
pub(crate) mod talk;
mod train;
mod verify;

use std::time::Duration;

use clap::{Parser, Subcommand};

use elastic::Elastic;

use crate::fail::Failure;

/// Train one neural network on many workers as if on one.
#[derive(Parser)]
#[command(version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Train(Box<train::Train>),
    Launch(launch::Launch),
    Verify(verify::Verify),
    Chaos(chaos::Chaos),
    Bench(bench::Bench),
    Checkpoint(checkpoint::Checkpoint),
}

impl Cli {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::Train(train) => train.run(),
            Command::Launch(launch) => launch.run(),
            Command::Verify(verify) => verify.run(),
            Command::Chaos(chaos) => chaos.run(),
            Command::Bench(bench) => bench.run(),
            Command::Checkpoint(checkpoint) => checkpoint.run(),
        }
    }
}

/// Runs this very command again as `nproc` workers; rank 0 speaks to the user.
fn run_again(
    nproc: usize,
    master_port: Option<u16>,
    env: Vec<(String, std::ffi::OsString)>,
    elastic: &Elastic,
) -> Result<(), Failure> {
    let program =
        std::env::current_exe().map_err(|e| Failure::work(format!("cannot find this program: {e}")))?;
    let command = std::iter::once(program.into_os_string()).chain(std::env::args_os().skip(1));
    let mut job = kolo_launch::Job::new(command, nproc);
    job.master_port = master_port;
    job.env = env;
    for (name, value) in ALLOCATOR {
        if std::env::var_os(name).is_none() {
            job.env.push((name.into(), value.into()));
        }
    }
    job.output = kolo_launch::Output::RankZero;
    job.grace = GRACE;
    elastic.apply(&mut job);
    Ok(kolo_launch::run(&job)?)
}

/// Workers of a training that are asked to end finish their step and write a checkpoint: as long as job managers usually wait.
const GRACE: Duration = Duration::from_secs(30);

/// Training allocates the same tensors in every step. A worker that gives freed pages back to the system gets them anew, cleared,
/// page by page: about a tenth of a step on small machines. So mimalloc keeps them, in large pages where it may.
const ALLOCATOR: [(&str, &str); 2] = [("MIMALLOC_PURGE_DELAY", "-1"), ("MIMALLOC_ALLOW_LARGE_OS_PAGES", "1")];
