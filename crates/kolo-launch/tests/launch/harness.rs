//! Starts a job in its own process and observes it from outside.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kolo_elastic::Arbiter;
use kolo_launch::{Bind, Job, Output, run};
use kolo_testing::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Longer than any test takes on the busiest machine; only a hang takes as long.
const HANG: Duration = Duration::from_secs(120);
/// Promised time from the death of a worker to the end of the job, with nothing left behind.
pub const PROMISED: Duration = Duration::from_secs(5);

const JOB: &str = "KOLO_TEST_JOB";
pub const CULPRIT: &str = "KOLO_TEST_CULPRIT";
/// The test program prints its own lines before this one.
const BEGIN: &str = "@begin@\n";

/// Shell functions: `note NAME TEXT` creates a file atomically; `wait_for NAME` waits for one.
const PRELUDE: &str = r#"
note() { echo "$2" > "$DIR/.$1" && mv "$DIR/.$1" "$DIR/$1"; }
wait_for() { while [ ! -e "$DIR/$1" ]; do sleep 0.02; done; }
"#;

/// A job to be started.
pub struct Trial {
    folder: TempDir,
    job: Value,
    shell: Option<String>,
}

/// A running job.
pub struct Running {
    trial: Trial,
    launcher: Child,
}

/// A job that is over, with its results.
pub struct Ended {
    /// Exit code of the launcher, or −signal.
    pub code: i32,
    pub out: String,
    pub err: String,
    folder: TempDir,
}

impl Trial {
    /// Creates a job of `nproc` workers that run a shell script.
    pub fn new(nproc: usize, script: &str) -> Trial {
        Trial::of(nproc, &["sh", "-c", &format!("{PRELUDE}\n{script}")])
    }

    /// Creates a job of `nproc` workers that run a command.
    pub fn of(nproc: usize, command: &[&str]) -> Trial {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("tmp")).unwrap();
        Trial { folder, job: json!({"command": command, "nproc": nproc}), shell: None }
    }

    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Trial {
        self.job[key] = value.into();
        self
    }

    /// Starts the launcher from a shell that first runs these commands.
    pub fn after(mut self, shell: &str) -> Trial {
        self.shell = Some(shell.into());
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn start(self) -> Running {
        let program = std::env::current_exe().unwrap();
        let mut command = match &self.shell {
            None => Command::new(program),
            Some(first) => {
                let mut command = Command::new("sh");
                command.args(["-c", &format!("{first}; exec \"$0\" \"$@\"")]).arg(program);
                command
            }
        };
        let launcher = command
            .args(["--exact", "role_launcher", "--nocapture", "--test-threads=1"])
            .env(JOB, self.job.to_string())
            .env("DIR", self.folder.path())
            .env("TMPDIR", self.path("tmp"))
            .env_remove("OMP_NUM_THREADS")
            .env_remove("KOLO_TOKEN")
            .env_remove("KOLO_TOKEN_FILE")
            .stdin(Stdio::null())
            .stdout(fs::File::create(self.path("out")).unwrap())
            .stderr(fs::File::create(self.path("err")).unwrap())
            .spawn()
            .unwrap();
        Running { trial: self, launcher }
    }

    pub fn run(self) -> Ended {
        self.start().end()
    }

    pub fn ends_with(self, code: i32) -> Ended {
        self.start().ends_with(code)
    }
}

impl Running {
    /// Waits for a worker's file of this name, which may still be empty.
    pub fn noted(&self, name: &str) {
        let file = self.trial.path(name);
        wait_until(&format!("no worker noted {name}"), || file.exists());
    }

    /// Waits for the process id that a worker writes to the file of this name.
    pub fn noted_pid(&self, name: &str) -> i32 {
        let file = self.trial.path(name);
        let mut pid = None;
        wait_until(&format!("no worker noted {name}"), || {
            pid = fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
            pid.is_some()
        });
        pid.unwrap()
    }

    /// Waits for the process ids that all `nproc` workers write to `pid.RANK`.
    pub fn pids(&self, nproc: usize) -> Vec<i32> {
        (0..nproc).map(|rank| self.noted_pid(&format!("pid.{rank}"))).collect()
    }

    pub fn note(&self, name: &str) {
        fs::write(self.trial.path(name), "").unwrap();
    }

    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal);
    }

    /// Waits until the launcher has printed a text.
    pub fn wait_for_output(&self, text: &str) {
        let file = self.trial.path("err");
        wait_until(&format!("it does not say `{text}`"), || {
            fs::read_to_string(&file).unwrap().contains(text)
        });
    }

    /// Returns the launcher's process id.
    pub fn pid(&self) -> i32 {
        self.launcher.id() as i32
    }

    /// Waits for the launcher's end, which must have this exit code.
    pub fn ends_with(self, code: i32) -> Ended {
        let ended = self.end();
        assert_eq!(ended.code, code, "{}", ended.err);
        ended
    }

    /// Waits for the launcher's end.
    pub fn end(mut self) -> Ended {
        let mut status = None;
        wait_until("the launcher hangs", || {
            status = self.launcher.try_wait().unwrap();
            status.is_some()
        });
        let read = |name| fs::read(self.trial.path(name)).unwrap();
        let out = String::from_utf8_lossy(&read("out")).into_owned();
        Ended {
            code: status.map_or(-1, |status| status.code().or(status.signal().map(|s| -s)).unwrap_or(-1)),
            out: out.split_once(BEGIN).map(|(_, out)| out.to_owned()).unwrap_or_default(),
            err: String::from_utf8_lossy(&read("err")).into_owned(),
            folder: self.trial.folder,
        }
    }
}

impl Ended {
    pub fn lines(&self) -> Vec<&str> {
        let mut lines: Vec<&str> = self.out.lines().collect();
        lines.sort_unstable();
        lines
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the first line of the launcher's own error.
    pub fn error(&self) -> &str {
        self.err.lines().find_map(|line| line.strip_prefix("error: ")).unwrap_or("")
    }

    /// Checks that none of these processes is left, none with this trial's environment, and no file.
    pub fn left_nothing(&self, pids: &[i32]) {
        for pid in pids {
            wait_until(&format!("process {pid} is left; the launcher said {}", self.err), || !alive(*pid));
        }
        let mark = format!("DIR={}\0", self.folder.path().display());
        wait_until("a process with the trial's environment is left", || !inherited_by_any(mark.as_bytes()));
        let tmp = self.path("tmp");
        wait_until("temporary files are left", || fs::read_dir(&tmp).unwrap().next().is_none());
    }
}

pub fn kill(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// Waits until a process is in this state of `/proc`.
pub fn wait_for_state(pid: i32, state: char) {
    let is_there = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(state))
    };
    wait_until(&format!("process {pid} does not come to state {state}"), is_there);
}

pub fn alive(pid: i32) -> bool {
    kolo_testing::alive(pid as u32)
}

/// Returns true if any process has these bytes in its environment.
fn inherited_by_any(mark: &[u8]) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let mut environments = processes.filter_map(|process| fs::read(process.path().join("environ")).ok());
    environments.any(|environment| environment.windows(mark.len()).any(|bytes| bytes == mark))
}

/// Runs the launcher if the environment describes a job.
pub fn launch_if_asked() {
    let Ok(text) = std::env::var(JOB) else { return };
    let spec: Value = serde_json::from_str(&text).unwrap();
    let command = spec["command"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
    let number = |name: &str| spec[name].as_u64();
    let mut job = Job::new(command, number("nproc").unwrap() as usize);
    job.nnodes = number("nnodes").unwrap_or(1) as usize;
    job.node_rank = number("node_rank").unwrap_or(0) as usize;
    job.master_port = number("port").map(|port| port as u16);
    job.grace = number("grace_ms").map(Duration::from_millis);
    job.min = number("min").map_or(job.min, |min| min as usize);
    job.restarts = number("restarts").map_or(job.restarts, |restarts| restarts as usize);
    job.patience = number("patience_ms").map_or(job.patience, Duration::from_millis);
    job.group_restarts = number("group_restarts").unwrap_or(0) as usize;
    if let Some(arbiter) = spec["arbiter"].as_str() {
        job.arbiter = Arbiter::parse(arbiter).unwrap();
    }
    job.token_file = spec["token_file"].as_str().map(Into::into);
    if let Some(host) = spec["master_addr"].as_str() {
        job.master_addr = host.into();
    }
    if spec["output"] == "rank-zero" {
        job.output = Output::RankZero;
    }
    if spec["bind"] == "core" {
        job.bind = Bind::Core;
    }
    print!("{BEGIN}");
    // The command line sets the master in the same way.
    let master = spec["master"].as_str().map_or(Ok(()), |master| job.set_master(Some(master), None, None));
    let code = match master.and_then(|()| run(&job)) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("error: {error}");
            error.exit_code().into()
        }
    };
    if spec["linger"] == true {
        fs::write(Path::new(&std::env::var_os("DIR").unwrap()).join("lingering"), "").unwrap();
        std::thread::sleep(HANG);
    }
    std::process::exit(code);
}

/// Creates a file for a job and returns its path.
pub fn file(folder: &Path, name: &str, content: &str, executable: bool) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join(name);
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(if executable { 0o700 } else { 0o600 })).unwrap();
    path.to_str().unwrap().to_owned()
}
