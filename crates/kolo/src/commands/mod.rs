//! The subcommands.

mod bench;
mod chaos;
mod chaos_jobs;
mod check;
mod checkpoint;
mod command_line;
mod completions;
mod evaluate;
mod export;
mod find_lr;
mod generate;
mod invalid_value;
mod launch;
mod of_run;
mod plan;
mod predict;
mod report;
mod train;
mod verify;
mod version;

use clap::{CommandFactory, Parser, Subcommand};

use kolo::Failure;
use kolo_program::output;

/// Train one neural network on many workers as if on one.
#[derive(Parser)]
#[command(version = version::short(), long_version = version::long(), propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Command,
    /// True if the user wants JSON, also of errors.
    #[arg(skip)]
    prints_json: bool,
}

#[derive(Subcommand)]
enum Command {
    Train(Box<train::Train>),
    Check(check::Check),
    Launch(launch::Launch),
    Verify(verify::Verify),
    Chaos(chaos::Chaos),
    Bench(bench::Bench),
    Plan(plan::Plan),
    Report(report::Report),
    Checkpoint(checkpoint::Checkpoint),
    Evaluate(evaluate::Evaluate),
    Predict(predict::Predict),
    Generate(generate::Generate),
    Export(export::Export),
    Completions(completions::Completions),
    Man(completions::Man),
}

impl Cli {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let prints_json = self.prints_json;
        self.run_command().map_err(|failure| if prints_json { failure.in_json() } else { failure })
    }

    fn run_command(self) -> Result<(), Failure> {
        // Most commands print their result, so a failed output fails them. A job's result is its run folder,
        // and its exit code does not depend on a reader.
        let is_job = matches!(self.command, Command::Train(_) | Command::Launch(_));
        match self.command {
            Command::Train(train) => train.run(),
            Command::Check(check) => check.run(),
            Command::Launch(launch) => launch.run(),
            Command::Verify(verify) => verify.run(),
            Command::Chaos(chaos) => chaos.run(),
            Command::Bench(bench) => bench.run(),
            Command::Plan(plan) => plan.run(),
            Command::Report(report) => report.run(),
            Command::Checkpoint(checkpoint) => checkpoint.run(),
            Command::Evaluate(evaluate) => evaluate.run(),
            Command::Predict(predict) => predict.run(),
            Command::Generate(generate) => generate.run(),
            Command::Export(export) => export.run(),
            Command::Completions(completions) => completions.run(Cli::command()),
            Command::Man(man) => man.run(Cli::command()),
        }?;
        if is_job { Ok(()) } else { output::check() }
    }
}
