//! A test program that starts itself again under the mpirun of its MPI library, once for each case and
//! number of ranks: `PROGRAM --case NAME`. Without that mpirun its tests are ignored.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::harness::{Trial, run_one_by_one, test_where};
use crate::jobs::{JobCommand, find};

/// Common work of some ranks.
pub struct Case {
    /// Name of the case on the command line.
    pub name: &'static str,
    /// World sizes to try; 0 is the program alone, without mpirun.
    pub worlds: &'static [usize],
    /// Work of each rank.
    pub work: fn(),
    /// Environment variables in addition to `KOLO_BACKEND=mpi`.
    pub variables: &'static [(&'static str, &'static str)],
    /// Texts that a failing job must print; empty if the job must succeed.
    pub fails_with: &'static [&'static str],
}

kolo_comm::opaque_debug!(Case { name });

impl Case {
    /// Creates a case that must succeed.
    pub const fn new(name: &'static str, worlds: &'static [usize], work: fn()) -> Case {
        Case { name, worlds, work, variables: &[], fails_with: &[] }
    }
}

/// Runs one case, if this process is a worker of it; else all of them as tests.
pub fn main(cases: &'static [Case], library: &str) -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("--case") {
        let name = arguments.next();
        let case = cases.iter().find(|case| Some(case.name) == name.as_deref());
        (case.expect("a case of this program").work)();
        return ExitCode::SUCCESS;
    }
    // Debian installs several side by side.
    let named = if library.contains("Open MPI") { "mpirun.openmpi" } else { "mpirun.mpich" };
    let mpirun = find(named).or_else(|| find("mpirun"));
    println!("{}", library.lines().next().unwrap_or_default());
    let tests = cases.iter().flat_map(|case| case.worlds.iter().map(|world| test(&mpirun, case, *world)));
    run_one_by_one(tests.collect())
}

fn test(mpirun: &Option<PathBuf>, case: &'static Case, world: usize) -> Trial {
    let mpirun = mpirun.clone();
    test_where(&format!("{} of {world}", case.name), move || {
        let mpirun = mpirun.ok_or("mpirun is not installed")?;
        let (well, output) = start(&mpirun, case, world).run();
        assert_eq!(well, case.fails_with.is_empty(), "it said:\n{output}");
        let missing = case.fails_with.iter().find(|part| !output.contains(**part));
        assert_eq!(missing, None, "it said:\n{output}");
        Ok(())
    })
}

fn start(mpirun: &Path, case: &Case, world: usize) -> JobCommand {
    let program = std::env::current_exe().unwrap();
    let number = world.to_string();
    let own = ["--case", case.name];
    let job = match world {
        0 => JobCommand::new(case.name, &program, &own),
        _ => {
            let arguments = [&["-n", &number, program.to_str().unwrap()], &own[..]].concat();
            JobCommand::new(case.name, mpirun, &arguments)
        }
    };
    let job = job.env("KOLO_BACKEND", "mpi");
    case.variables.iter().fold(job, |job, (name, value)| job.env(name, value))
}
