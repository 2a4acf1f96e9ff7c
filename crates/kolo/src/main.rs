//! The command-line program: one file for each subcommand.

mod backends;
mod bench;
mod check;
mod commands;
mod options;
mod start_workers;

use std::process::ExitCode;

use kolo_program::home;

// Burn allocates and frees a tensor for every operation, which takes more than twice the time with the
// system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    kolo_values::freed_memory::set_give_back(|| mi_collect(true));
    kolo_values::address_space::use_one_arena();
    let args = home::expanded(std::env::args_os(), std::env::var_os("HOME"));
    kolo::main(|| commands::Cli::of(args)?.run())
}

unsafe extern "C" {
    /// Gives freed memory back to the operating system; see mimalloc.h.
    safe fn mi_collect(force: bool);
}
