//! A test program that starts itself again under the mpirun of the MPI it is linked to, once for each case and number of
//! ranks: `PROGRAM --case NAME`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use crate::jobs::{Trial, find, trial};

/// What some ranks do together.
pub struct Case {
    pub name: &'static str,
    /// World sizes to try; 0 is the program alone, without mpirun.
    pub worlds: &'static [usize],
    pub work: fn(),
    pub variables: &'static [(&'static str, &'static str)],
    /// Nothing if the job has to end well; else what it has to say when it ends badly.
    pub fails_with: &'static [&'static str],
}

impl Case {
    pub const fn new(name: &'static str, worlds: &'static [usize], work: fn()) -> Case {
        Case { name, worlds, work, variables: &[], fails_with: &[] }
    }
}

/// Runs one case, if this process is a worker of it; else all of them, or those whose names contain an argument.
pub fn main(cases: &[Case], library: &str) -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next().filter(|argument| !argument.starts_with("--") || argument == "--case");
    if first.as_deref() == Some("--case") {
        let name = arguments.next();
        let case = cases.iter().find(|case| Some(case.name) == name.as_deref());
        (case.expect("a case of this program").work)();
        return ExitCode::SUCCESS;
    }
    let library = library.lines().next().unwrap_or_default();
    let Some(mpirun) = mpirun(library) else { return ExitCode::SUCCESS };
    println!("{} for {library}", mpirun.display());
    let mut bad = 0;
    for case in cases.iter().filter(|case| first.as_ref().is_none_or(|wish| case.name.contains(wish))) {
        for world in case.worlds {
            let began = Instant::now();
            let (well, words) = start(&mpirun, case, *world).run();
            let silent = case.fails_with.iter().find(|part| !words.contains(**part));
            let right = well == case.fails_with.is_empty() && silent.is_none();
            let verdict = if right { "ok" } else { "FAILED" };
            println!("{}, {world} ranks: {verdict} ({:.1?})", case.name, began.elapsed());
            if !right {
                bad += 1;
                println!(
                    "it ended {}; it lacks {silent:?}; it said:\n{words}",
                    if well { "well" } else { "badly" }
                );
            }
        }
    }
    println!("{bad} failed");
    ExitCode::from(u8::from(bad > 0))
}

fn start(mpirun: &Path, case: &Case, world: usize) -> Trial {
    let program = std::env::current_exe().unwrap();
    let number = world.to_string();
    let own = ["--case", case.name];
    let trial = match world {
        0 => trial(case.name, &program, &own),
        _ => trial(case.name, mpirun, &[&["-n", &number, program.to_str().unwrap()], &own[..]].concat()),
    };
    let trial = trial.env("KOLO_BACKEND", "mpi");
    case.variables.iter().fold(trial, |trial, (name, value)| trial.env(name, value))
}

/// The mpirun that belongs to a library.
fn mpirun(library: &str) -> Option<PathBuf> {
    // Debian has several side by side.
    let named = if library.contains("Open MPI") { "mpirun.openmpi" } else { "mpirun.mpich" };
    find(named).or_else(|| find("mpirun"))
}
