//! The processes of a job on this node: started together, and never left behind.
//!
//! Every worker heads a process group, whose number is its own. A worker that has ended is not reaped before
//! the job is over: as long as the kernel keeps its entry, the number belongs to nobody else, and its group
//! can be signalled without hitting a stranger.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kolo_comm::Rank;
use kolo_elastic::member_name;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, test_kill_process_group,
    waitid,
};
use tempfile::TempDir;

use crate::die_with_parent::die_with_parent;
use crate::environment::{Meeting, variables};
use crate::error::LaunchError;
use crate::exit::{End, Exit};
use crate::job::{Job, Output};
use crate::report;
use crate::stillness::Stillness;
use crate::warden::Warden;

/// How long to wait for killed groups to be gone. Only a kernel that holds on to a process, or an init that
/// does not collect orphans, takes that long.
const GONE: Duration = Duration::from_millis(500);

/// One worker.
#[derive(Debug)]
pub(crate) struct Worker {
    pub rank: Rank,
    pub child: Child,
    pid: Pid,
    pidfd: OwnedFd,
    error_file: PathBuf,
    end: Option<(Duration, End)>,
    /// Its place on this node, and its name as a member.
    pub local: usize,
    pub member: String,
    /// The coordinator knows of its end.
    pub told: bool,
    /// It failed, and the others have gone on.
    pub survived: bool,
    /// It stood still when the launcher asked it to end.
    stopped: bool,
    stillness: Stillness,
}

/// All workers of this node. Dropping it kills whatever is left of them.
#[derive(Debug)]
pub(crate) struct Workers {
    pub list: Vec<Worker>,
    started: Instant,
    /// Workers were asked to end: from now on their ends are the launcher's doing.
    asked: bool,
    /// All were killed and reaped: their numbers may belong to others now.
    over: bool,
    warden: Option<Warden>,
    error_files: TempDir,
}

impl Workers {
    /// Starts all workers, or leaves none.
    ///
    /// They live no longer than the calling thread.
    pub fn start(job: &Job, meeting: &Meeting) -> Result<Workers, LaunchError> {
        let error_files = tempfile::Builder::new().prefix("kolo-launch-").tempdir().map_err(|cause| {
            LaunchError::system("cannot make a folder for the workers' error files", cause)
        })?;
        let mut workers = Workers {
            list: Vec::with_capacity(job.nproc),
            started: Instant::now(),
            asked: false,
            over: false,
            warden: Warden::start(error_files.path()),
            error_files,
        };
        for local in 0..job.nproc {
            workers.start_one(job, meeting, local)?;
        }
        Ok(workers)
    }

    /// Starts a worker at a place of this node, also in place of one that has ended.
    ///
    /// It lives no longer than the calling thread.
    pub fn start_one(
        &mut self,
        job: &Job,
        meeting: &Meeting,
        local: usize,
    ) -> Result<&mut Worker, LaunchError> {
        let rank = job.rank(local);
        let before = self.list.iter().filter(|worker| worker.local == local).count();
        let member = member_name(job.node_rank, local, before);
        let error_file = self.error_files.path().join(format!("rank-{}.{before}.json", rank.0));
        let mut command = Command::new(&job.command[0]);
        command.args(&job.command[1..]).stdin(Stdio::null()).process_group(0);
        if let Some(name) = meeting.token.variables().1 {
            command.env_remove(name);
        }
        let inherited = |name: &str| std::env::var_os(name).is_some();
        command.envs(variables(job, meeting, local, &member, &error_file, inherited));
        if job.output == Output::Prefixed || local > 0 {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let line = self.warden.as_ref().map(Warden::line).transpose();
        let line = line.map_err(|cause| LaunchError::system(format!("cannot start {rank}"), cause))?;
        die_with_parent(&mut command, line);
        let mut child = command.spawn().map_err(|cause| cannot_start(&job.command[0], cause))?;
        let pid = Pid::from_child(&child);
        let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(cause) => {
                signal_group(pid, Signal::KILL);
                let _ = child.wait();
                return Err(LaunchError::system(format!("cannot watch {rank}"), cause));
            }
        };
        self.list.push(Worker {
            rank,
            child,
            pid,
            pidfd,
            error_file,
            end: None,
            local,
            member,
            told: false,
            survived: false,
            stopped: false,
            stillness: Stillness::default(),
        });
        Ok(self.list.last_mut().expect("just pushed"))
    }

    /// Kills a member that hangs.
    pub fn evict(&self, member: &str) {
        let hangs = |worker: &&Worker| worker.member == member && worker.end.is_none();
        self.list.iter().filter(hangs).for_each(|worker| signal_group(worker.pid, Signal::KILL));
    }

    /// Kills those that have been stopped (SIGSTOP) for `limit`, and gives their names.
    pub fn evict_stopped(&mut self, limit: Duration) -> Vec<String> {
        let (now, mut names) = (Instant::now(), Vec::new());
        for worker in self.list.iter_mut().filter(|worker| worker.end.is_none()) {
            let still = worker.stands_still();
            if worker.stillness.look(still, now) >= limit {
                signal_group(worker.pid, Signal::KILL);
                names.push(worker.member.clone());
            }
        }
        names
    }

    /// Notes who has ended since the last call. All that are found together get the same time.
    pub fn collect(&mut self) -> Result<(), LaunchError> {
        let now = self.started.elapsed();
        for worker in self.list.iter_mut().filter(|worker| worker.end.is_none()) {
            let end = worker.look().map_err(|cause| {
                LaunchError::system(format!("cannot learn how {} ended", worker.rank), cause)
            })?;
            worker.end = end
                .map(|end| (now, if self.asked { End::ByLauncher { stopped: worker.stopped } } else { end }));
        }
        Ok(())
    }

    /// Whether one has failed by itself, and the others could not go on.
    pub fn any_failed(&self) -> bool {
        self.list.iter().any(|worker| !worker.survived && worker.end.is_some_and(|(_, end)| end.failed()))
    }

    pub fn all_ended(&self) -> bool {
        self.list.iter().all(|worker| worker.end.is_some())
    }

    /// What becomes readable when a worker ends, for those that have not.
    pub fn pidfds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.list.iter().filter(|worker| worker.end.is_none()).map(|worker| worker.pidfd.as_fd())
    }

    /// Asks all that are left to end, children of workers that have ended included.
    pub fn ask(&mut self, signal: Signal) -> Result<(), LaunchError> {
        self.collect()?;
        for worker in self.list.iter_mut().filter(|worker| worker.end.is_none()) {
            worker.stopped = worker.stands_still();
        }
        self.asked = true;
        self.signal(signal);
        // A process that stands still heeds the signal once it goes on.
        self.signal(Signal::CONT);
        Ok(())
    }

    /// Kills all that are left, children of workers that have ended included.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    fn signal(&self, signal: Signal) {
        self.list.iter().for_each(|worker| signal_group(worker.pid, signal));
    }

    /// Kills what is left, waits until it is gone, and says how each worker ended; of those that others have survived only if
    /// nobody else is left to tell of.
    pub fn finish(mut self) -> Vec<Exit> {
        self.end_all();
        let exit = |worker: &Worker| {
            let (after, end) = worker.end.unwrap_or((self.started.elapsed(), End::Stuck));
            let failure = report::read(&worker.error_file);
            Exit { rank: worker.rank, pid: worker.pid.as_raw_nonzero().get(), after, end, failure }
        };
        let lasting: Vec<Exit> = self.list.iter().filter(|worker| !worker.survived).map(exit).collect();
        if lasting.is_empty() { self.list.iter().map(exit).collect() } else { lasting }
    }

    /// Kills all groups, reaps their heads, and waits until nothing of them is left. A process that the kernel
    /// holds on to is left to it.
    fn end_all(&mut self) {
        self.over = true;
        self.kill();
        let until = Instant::now() + GONE;
        // `try_wait` reaps: only now, after the last signal, may the groups' numbers become free.
        let gone = |worker: &mut Worker| {
            !matches!(worker.child.try_wait(), Ok(None)) && test_kill_process_group(worker.pid).is_err()
        };
        while !self.list.iter_mut().all(gone) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        if !self.over {
            self.end_all();
        }
    }
}

impl Worker {
    /// How it ended, as far as is known.
    pub fn end(&self) -> Option<End> {
        self.end.map(|(_, end)| end)
    }

    /// What it has said of its failure.
    pub fn words(&self) -> Option<String> {
        report::read(&self.error_file).map(|failure| failure.message.replace('\n', "\n    "))
    }

    /// How it ended, if it has. Its entry in the kernel's table stays.
    fn look(&self) -> io::Result<Option<End>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.pid), options)?;
        Ok(status.and_then(|status| {
            let signal = status.terminating_signal().map(End::Signal);
            signal.or(status.exit_status().map(End::Code))
        }))
    }

    fn stands_still(&self) -> bool {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(waitid(WaitId::Pid(self.pid), options), Ok(Some(status)) if status.stopped())
    }
}

/// A group without members cannot be signalled, and need not be.
fn signal_group(group: Pid, signal: Signal) {
    let _ = kill_process_group(group, signal);
}

fn cannot_start(program: &OsStr, cause: io::Error) -> LaunchError {
    let path = Path::new(program);
    let hint = match cause.kind() {
        ErrorKind::NotFound if path.is_file() => {
            "the interpreter or loader that the file asks for does not exist (see its first line)".into()
        }
        ErrorKind::NotFound if path.components().count() > 1 => "there is no such file".into(),
        ErrorKind::NotFound => {
            "there is no such program in PATH; for a file write its path, as in ./name".into()
        }
        ErrorKind::PermissionDenied if path.is_dir() => "it is a folder".into(),
        ErrorKind::PermissionDenied => "it is not executable; `chmod +x` makes it so".into(),
        _ => cause.to_string(),
    };
    LaunchError::Program { program: program.into(), hint, cause }
}
