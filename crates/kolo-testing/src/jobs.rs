//! Programs started by tests, with a time limit, and nothing left behind.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Longer than anything takes on the busiest machine; only a hang gets there.
const HANG: Duration = Duration::from_secs(120);

/// Variables by which a launcher around this test would be taken for that of the workers.
const OUTER: [&str; 7] =
    ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_STEP_ID"];

/// A process group that does not outlive its test.
pub struct Job(Child);

impl Drop for Job {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            let group = Pid::from_child(&self.0);
            // A launcher that is asked ends its workers. It may end at this very moment: then nobody hears.
            let _ = kill_process_group(group, Signal::TERM);
            std::thread::sleep(Duration::from_secs(2));
            let _ = kill_process_group(group, Signal::KILL);
            let _ = self.0.wait();
        }
    }
}

/// A command with its output in a file, for workers may outlive the launcher that they inherited a pipe from.
pub struct Trial {
    command: Command,
    output: PathBuf,
}

pub fn trial(name: &str, program: &Path, args: &[&str]) -> Trial {
    let output = std::env::temp_dir().join(format!("kolo-started-{}-{name}", std::process::id()));
    let file = std::fs::File::create(&output).unwrap();
    // Open MPI's own folder, in which several mpiruns that start at once get in each other's way.
    let folder = output.with_extension("ompi");
    std::fs::create_dir_all(&folder).unwrap();
    let mut command = Command::new(program);
    for name in OUTER {
        command.env_remove(name);
    }
    command
        .args(args)
        .env("KOLO_TIMEOUT", "60")
        // Tests run as root in containers, on machines with fewer cores than workers.
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        .env("OMPI_MCA_orte_tmpdir_base", &folder)
        .stdin(Stdio::null())
        .stderr(file.try_clone().unwrap())
        .stdout(file);
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    Trial { command, output }
}

impl Trial {
    pub fn env(mut self, name: &str, value: &str) -> Trial {
        self.command.env(name, value);
        self
    }

    pub fn start(mut self) -> (Job, PathBuf) {
        (Job(self.command.spawn().unwrap()), self.output)
    }

    pub fn run(self) -> (bool, String) {
        end(self.start())
    }
}

/// Whether a job ended well, and all that it said.
pub fn end((mut job, output): (Job, PathBuf)) -> (bool, String) {
    let started = Instant::now();
    let status = loop {
        if let Some(status) = job.0.try_wait().unwrap() {
            break status;
        }
        assert!(started.elapsed() < HANG, "it hangs: {}", std::fs::read_to_string(&output).unwrap());
        std::thread::sleep(Duration::from_millis(10));
    };
    let words = String::from_utf8_lossy(&std::fs::read(&output).unwrap()).into_owned();
    // Open MPI may have removed it, or still be doing so.
    let _ = std::fs::remove_dir_all(output.with_extension("ompi"));
    std::fs::remove_file(output).unwrap();
    (status.success(), words)
}

/// A program of `PATH`, or of the folder into which `bench/peers` installs PyTorch.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/peers/.venv/bin");
    let found =
        std::env::split_paths(&path).chain([peers]).map(|folder| folder.join(name)).find(|f| f.is_file());
    if found.is_none() {
        println!("note: {name} is not installed, so it is not tried");
    }
    found
}
