//! Tests that need something that a machine may lack: they are then reported as ignored, never as passed.
//! Their files have `harness = false` and end in [`run`].

use std::path::Path;
use std::process::ExitCode;

pub use libtest_mimic::{Arguments, Trial};
use libtest_mimic::{Completion, Failed};

use crate::jobs::find;

/// A test that runs everywhere.
pub fn test(name: &str, run: fn()) -> Trial {
    Trial::test(name, move || {
        run();
        Ok(())
    })
}

/// A test of a program, which is ignored if the program is not installed.
pub fn test_of(program: &'static str, name: &str, run: fn(&Path)) -> Trial {
    test_where(name, move || match find(program) {
        Some(path) => {
            run(&path);
            Ok(())
        }
        None => Err(format!("{program} is not installed")),
    })
}

/// A test that finds out by itself whether it can run; the error is the reason why not.
pub fn test_where(name: &str, run: impl FnOnce() -> Result<(), String> + Send + 'static) -> Trial {
    let completed = |ended: Result<(), String>| match ended {
        Ok(()) => Ok::<_, Failed>(Completion::Completed),
        Err(reason) => Ok(Completion::ignored_with(reason)),
    };
    Trial::ignorable_test(name, move || completed(run()))
}

/// Marks a test that only `.ci/slow` runs, as `#[ignore]` does.
pub fn slow(test: Trial) -> Trial {
    test.with_ignored_flag(true)
}

/// Runs the tests that the command line selects, two for each core unless it says otherwise: they wait more
/// than they compute.
pub fn run(tests: Vec<Trial>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    arguments.test_threads.get_or_insert(2 * cores);
    libtest_mimic::run(&arguments, tests).exit_code()
}

/// Works like [`run`], but one test after another: for jobs whose workers would compete for cores.
pub fn run_one_by_one(tests: Vec<Trial>) -> ExitCode {
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, tests).exit_code()
}
