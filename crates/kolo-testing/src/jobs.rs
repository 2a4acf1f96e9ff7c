//! Programs started by tests, with a time limit and complete cleanup.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Exceeded only by a hang, even on the busiest machine.
const HANG: Duration = Duration::from_secs(120);

/// The same for a whole training.
const JOB_HANG: Duration = Duration::from_secs(400);

/// Time that a launcher has to end its workers on request.
const ENDING: Duration = Duration::from_secs(2);

/// Variables of a launcher around this test, which the workers would mistake for their own.
const OUTER: [&str; 7] =
    ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_STEP_ID"];

/// A process group that does not outlive its test.
#[derive(Debug)]
pub struct Job {
    child: Child,
    output: PathBuf,
}

impl Job {
    /// Waits for the end. Returns true if the job ended well, and its whole output.
    pub fn end(mut self) -> (bool, String) {
        let status = self.within(HANG);
        let text = String::from_utf8_lossy(&std::fs::read(&self.output).unwrap()).into_owned();
        let Some(status) = status else { panic!("it hangs: {text}") };
        // Open MPI may have removed it, or still be doing so.
        let _ = std::fs::remove_dir_all(folder_of(&self.output));
        std::fs::remove_file(&self.output).unwrap();
        (status.success(), text)
    }

    /// Returns the exit status, if the job ends within that time.
    fn within(&mut self, limit: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + limit;
        loop {
            match self.child.try_wait().unwrap() {
                None if Instant::now() < until => std::thread::sleep(Duration::from_millis(10)),
                status => return status,
            }
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let group = Pid::from_child(&self.child);
            // On SIGTERM, a launcher ends its workers. If it ends at this very moment, no process receives
            // it.
            let _ = kill_process_group(group, Signal::TERM);
            self.within(ENDING);
            let _ = kill_process_group(group, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// Open MPI's own folder of a job with this output. Names of jobs may differ after a dot only, so that the end
/// is added to all of the name.
fn folder_of(output: &Path) -> PathBuf {
    output.with_added_extension("ompi")
}

/// A command with its output in a file: workers may outlive the launcher whose pipe they inherited.
pub struct JobCommand {
    command: Command,
    output: PathBuf,
}

kolo_comm::opaque_debug!(JobCommand { output });

impl JobCommand {
    /// A program with these arguments; `name` distinguishes it from other jobs of the same test.
    pub fn new(name: &str, program: &Path, args: &[&str]) -> JobCommand {
        let output = std::env::temp_dir().join(format!("kolo-started-{}-{name}", std::process::id()));
        let file = std::fs::File::create(&output).unwrap();
        // Open MPI's own folder, because several mpiruns that start at once interfere in a common one.
        let folder = folder_of(&output);
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
        JobCommand { command, output }
    }

    /// Sets a variable.
    pub fn env(mut self, name: &str, value: &str) -> JobCommand {
        self.command.env(name, value);
        self
    }

    /// Starts the command.
    pub fn start(mut self) -> Job {
        Job { child: self.command.spawn().unwrap(), output: self.output }
    }

    /// Starts the command and waits for its end, like [`Job::end`].
    pub fn run(self) -> (bool, String) {
        self.start().end()
    }
}

/// A program with its error output in a file; killed on drop.
#[derive(Debug)]
pub struct Logged {
    /// The process.
    pub process: Child,
    words: PathBuf,
}

impl Logged {
    /// Starts a command, with its error output in this file, and its output nowhere.
    pub fn start(command: &mut Command, words: PathBuf) -> Logged {
        let file = std::fs::File::create(&words).unwrap();
        Logged { process: command.stdout(Stdio::null()).stderr(file).spawn().unwrap(), words }
    }

    /// Returns the error output so far.
    pub fn error_output(&self) -> String {
        std::fs::read_to_string(&self.words).unwrap()
    }

    /// Waits until `holds` is true of the error output. Returns false if the program ends first.
    pub fn wait(&mut self, otherwise: &str, mut holds: impl FnMut(&str) -> bool) -> bool {
        let until = Instant::now() + JOB_HANG;
        while Instant::now() < until {
            let has_ended = self.process.try_wait().unwrap().is_some();
            if holds(&self.error_output()) {
                return true;
            } else if has_ended {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{otherwise}: {}", self.error_output());
    }

    /// Waits until the error output contains a text. Returns false if the program ends first.
    pub fn has_said(&mut self, text: &str) -> bool {
        self.wait(&format!("it has not said `{text}`"), |said| said.contains(text))
    }

    /// Waits for the end. Returns the status and the error output.
    pub fn end(&mut self) -> (ExitStatus, String) {
        self.wait("it does not end", |_| false);
        (self.process.wait().unwrap(), self.error_output())
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        // Fails if the process has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Finds a program in `PATH`, or in the folder into which `bench/peers` installs PyTorch.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/peers/.venv/bin");
    std::env::split_paths(&path).chain([peers]).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Returns the path of an example of the package under test, which `cargo test` builds beside the tests.
pub fn example(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(built.exists(), "{} is missing: build it with `cargo build --examples`", built.display());
    built
}
