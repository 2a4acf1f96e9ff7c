//! The command-line program: one file a subcommand.

mod backends;
mod bench;
mod chaos;
mod commands;
mod fail;
mod options;
mod running;
mod start_workers;
mod verify;

use std::process::ExitCode;

use clap::Parser;

// Burn allocates and frees a tensor for every operation: with the system's allocator it takes more than twice
// the time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn"))
        .format_timestamp(None)
        .init();
    fail::report_panics();
    match commands::Cli::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.end(),
    }
}
