//! The processes of a job on this node: started together, and never left behind.
//!
//! Every worker heads a process group, whose number is its own. A worker that has ended is not reaped before
//! the job is over, or others have survived it and its group has been killed: as long as the kernel keeps its
//! entry, the number belongs to nobody else, and its group can be signalled without hitting a stranger.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use kolo_comm::Rank;
use kolo_elastic::{MemberRanks, member_name};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, test_kill_process_group,
    waitid,
};
use tempfile::TempDir;

use crate::die_with_parent::die_with_launcher;
use crate::environment::{Rendezvous, variables};
use crate::error::LaunchError;
use crate::error_file;
use crate::job::{Job, Output};
use crate::program::Program;
use crate::reaper::Reaper;
use crate::stopped_time::StoppedTime;
use crate::worker_exit::{ExitStatus, WorkerExit, worker_name};

/// How long to wait for killed groups to be gone. Only a kernel that holds on to a process, or an init that
/// does not collect orphans, takes that long.
const KILL_TIMEOUT: Duration = Duration::from_millis(500);

/// How many workers that others have survived are remembered. Where all have died the job's end tells of
/// them.
const REMEMBERED: usize = 32;

/// The process of one worker.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    /// The rank with which it was started. In an elastic job it may have another one since.
    pub rank: Rank,
    pub child: Child,
    pid: Pid,
    pidfd: OwnedFd,
    error_file: PathBuf,
    exit: Option<(Duration, ExitStatus)>,
    /// Its rank among the workers of this node.
    pub local_rank: usize,
    /// Whether it is a summation server.
    pub is_server: bool,
    /// Its name as a member of an elastic job.
    pub member: String,
    /// Whether the coordinator knows that it has ended.
    pub reported: bool,
    /// Whether it failed, and the others have gone on.
    pub survived: bool,
    /// Whether it was stopped when the launcher asked it to end.
    stopped: bool,
    stopped_time: StoppedTime,
}

/// All workers of this node. Dropping it kills whatever is left of them.
#[derive(Debug)]
pub(crate) struct Workers {
    pub list: Vec<WorkerProcess>,
    /// How those have ended that others have survived: the last ones.
    survived: VecDeque<WorkerExit>,
    /// How often a worker of each local rank has been started.
    starts: Vec<usize>,
    started: Instant,
    /// Whether the workers were asked to end: from now on the launcher has ended those that end.
    terminating: bool,
    /// Whether all were killed and collected: their process ids may belong to others now.
    over: bool,
    program: Program,
    reaper: Option<Reaper>,
    error_files: TempDir,
    ranks: MemberRanks,
}

impl Workers {
    /// Starts all workers, or leaves none. `ranks` tells those that they get in generations.
    ///
    /// They live no longer than the calling thread.
    pub fn start(job: &Job, rendezvous: &Rendezvous, ranks: MemberRanks) -> Result<Workers, LaunchError> {
        let error_files = temporary_folder()?;
        let mut workers = Workers {
            list: Vec::with_capacity(job.processes()),
            survived: VecDeque::new(),
            starts: vec![0; job.processes()],
            started: Instant::now(),
            terminating: false,
            over: false,
            program: Program::find(job),
            reaper: Reaper::start(error_files.path()),
            error_files,
            ranks,
        };
        for local_rank in 0..job.processes() {
            workers.start_one(job, rendezvous, local_rank)?;
        }
        Ok(workers)
    }

    /// Starts the worker of a local rank, also in place of one that has ended.
    ///
    /// It lives no longer than the calling thread.
    pub fn start_one(
        &mut self,
        job: &Job,
        rendezvous: &Rendezvous,
        local_rank: usize,
    ) -> Result<&mut WorkerProcess, LaunchError> {
        let rank = job.rank(local_rank);
        let before = self.starts[local_rank];
        self.starts[local_rank] += 1;
        let member = member_name(job.node_rank, local_rank, before);
        let error_file = self.error_files.path().join(format!("rank-{}.{before}.json", rank.0));
        let mut command = Command::new(self.program.to_execute());
        command.arg0(self.program.name()).args(&job.command[1..]).stdin(Stdio::null()).process_group(0);
        if let Some(name) = rendezvous.token.variables().1 {
            command.env_remove(name);
        }
        let inherited = |name: &str| std::env::var_os(name).is_some();
        command.envs(variables(job, rendezvous, local_rank, before, &member, &error_file, inherited));
        if job.output == Output::Prefixed || local_rank > 0 {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        let socket = self.reaper.as_ref().map(Reaper::socket).transpose();
        let socket = socket.map_err(|cause| LaunchError::system(format!("cannot start {rank}"), cause))?;
        die_with_launcher(&mut command, socket);
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
        self.list.push(WorkerProcess {
            rank,
            child,
            pid,
            pidfd,
            error_file,
            exit: None,
            local_rank,
            is_server: job.is_server(local_rank),
            member,
            reported: false,
            survived: false,
            stopped: false,
            stopped_time: StoppedTime::default(),
        });
        Ok(self.list.last_mut().expect("just pushed"))
    }

    /// Kills a member that hangs.
    pub fn evict(&self, member: &str) {
        let hangs = |worker: &&WorkerProcess| worker.member == member && worker.exit.is_none();
        self.list.iter().filter(hangs).for_each(|worker| signal_group(worker.pid, Signal::KILL));
    }

    /// `rank 1 (node0/1.0)` by the last rank that the member has had, or `worker node0/1.0`.
    pub fn name(&self, member: &str) -> String {
        match self.ranks.last(member) {
            Some(rank) => format!("{rank} ({member})"),
            None => worker_name(None, member),
        }
    }

    /// Kills those that have been stopped (SIGSTOP) for `limit`, and gives their names. Where all are stopped
    /// somebody has stopped the job, who will let it go on: nobody waits for them, and none is killed.
    pub fn evict_stopped(&mut self, limit: Duration) -> Vec<String> {
        let (now, mut names) = (Instant::now(), Vec::new());
        let living = || self.list.iter().filter(|worker| worker.exit.is_none());
        let all_stopped = living().all(WorkerProcess::is_stopped);
        for worker in self.list.iter_mut().filter(|worker| worker.exit.is_none()) {
            let stopped = !all_stopped && worker.is_stopped();
            if worker.stopped_time.observe(stopped, now) >= limit {
                signal_group(worker.pid, Signal::KILL);
                names.push(worker.member.clone());
            }
        }
        names
    }

    /// Notes who has ended since the last call. All that are found together get the same time.
    pub fn collect(&mut self) -> Result<(), LaunchError> {
        let now = self.started.elapsed();
        for worker in self.list.iter_mut().filter(|worker| worker.exit.is_none()) {
            let status = worker.poll().map_err(|cause| {
                LaunchError::system(format!("cannot learn how {} ended", worker.rank), cause)
            })?;
            worker.exit = status.map(|status| match self.terminating {
                true => (now, ExitStatus::ByLauncher { stopped: worker.stopped }),
                false => (now, status),
            });
        }
        Ok(())
    }

    /// Lets go of those that others have survived, so that a job keeps nothing of its dead but what its end
    /// may tell of the last ones. What is left of their groups is killed. Gives the names of those of whom
    /// nothing is known any more.
    pub fn bury_survived(&mut self) -> Vec<String> {
        let is_buried = |worker: &mut WorkerProcess| worker.survived;
        for mut worker in self.list.extract_if(.., is_buried).collect::<Vec<_>>() {
            signal_group(worker.pid, Signal::KILL);
            if let Some(reaper) = &self.reaper {
                reaper.forget(worker.pid);
            }
            // It has ended, so this takes no time; from here on its number may be another one's.
            let _ = worker.child.wait();
            self.survived.push_back(self.exit(&worker));
            // There is one only if it has said something.
            let _ = std::fs::remove_file(&worker.error_file);
        }
        let surplus = self.survived.len().saturating_sub(REMEMBERED);
        self.survived.drain(..surplus).map(|exit| exit.member).collect()
    }

    /// How a worker has ended.
    fn exit(&self, worker: &WorkerProcess) -> WorkerExit {
        let (after, status) = worker.exit.unwrap_or((self.started.elapsed(), ExitStatus::Stuck));
        let ended = SystemTime::now() - self.started.elapsed().saturating_sub(after);
        let error = error_file::read(&worker.error_file, worker.pid.as_raw_nonzero().get(), ended);
        let (member, pid) = (worker.member.clone(), worker.pid.as_raw_nonzero().get());
        WorkerExit { rank: Some(worker.rank), member, pid, after, status, error }
    }

    /// Whether one has failed by itself, and the others could not go on.
    pub fn any_failed(&self) -> bool {
        self.list
            .iter()
            .any(|worker| !worker.survived && worker.exit.is_some_and(|(_, status)| status.failed()))
    }

    /// Whether all have ended.
    pub fn all_ended(&self) -> bool {
        self.list.iter().all(|worker| worker.exit.is_some())
    }

    /// What becomes readable when a worker ends, for those that have not.
    pub fn pidfds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.list.iter().filter(|worker| worker.exit.is_none()).map(|worker| worker.pidfd.as_fd())
    }

    /// Asks all that are left to end, children of workers that have ended included.
    pub fn terminate(&mut self, signal: Signal) -> Result<(), LaunchError> {
        self.collect()?;
        for worker in self.list.iter_mut().filter(|worker| worker.exit.is_none()) {
            worker.stopped = worker.is_stopped();
        }
        self.terminating = true;
        self.signal(signal);
        // A stopped process takes the signal once it goes on.
        self.signal(Signal::CONT);
        Ok(())
    }

    /// Kills all that are left, children of workers that have ended included.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Signals all groups.
    pub fn signal(&self, signal: Signal) {
        self.list.iter().for_each(|worker| signal_group(worker.pid, signal));
    }

    /// Kills what is left, waits until it is gone, and gives how each worker ended. Workers that others have
    /// survived are left out, unless there are no others.
    pub fn finish(mut self) -> Vec<WorkerExit> {
        self.end_all();
        let survived: Vec<&WorkerProcess> = self.list.iter().filter(|worker| worker.survived).collect();
        let lasting = self.list.iter().filter(|worker| !worker.survived).map(|worker| self.exit(worker));
        let mut exits: Vec<WorkerExit> = lasting.collect();
        if exits.is_empty() {
            exits.extend(self.survived.iter().cloned());
            exits.extend(survived.into_iter().map(|worker| self.exit(worker)));
        }
        if self.ranks.are_known() {
            exits.iter_mut().for_each(|exit| exit.rank = self.ranks.current(&exit.member));
        }
        exits
    }

    /// Kills all groups, reaps their heads, and waits until nothing of them is left. A process that the
    /// kernel holds on to is left to it.
    fn end_all(&mut self) {
        self.over = true;
        self.kill();
        let until = Instant::now() + KILL_TIMEOUT;
        // `try_wait` reaps: only now, after the last signal, may the groups' numbers become free.
        let gone = |worker: &mut WorkerProcess| {
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

impl WorkerProcess {
    /// How it ended, as far as is known.
    pub fn status(&self) -> Option<ExitStatus> {
        self.exit.map(|(_, status)| status)
    }

    /// The message of its error file, fit for a line that has begun.
    pub fn error_message(&self) -> Option<String> {
        let pid = self.pid.as_raw_nonzero().get();
        error_file::read(&self.error_file, pid, SystemTime::now())
            .map(|error| error.message.replace('\n', "\n    "))
    }

    /// Asks the kernel how it ended, if it has. Its entry in the kernel's table stays.
    fn poll(&self) -> io::Result<Option<ExitStatus>> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = waitid(WaitId::Pid(self.pid), options)?;
        Ok(status.and_then(|status| {
            let signal = status.terminating_signal().map(ExitStatus::Signal);
            signal.or(status.exit_status().map(ExitStatus::Code))
        }))
    }

    /// Whether a signal or a debugger has stopped it.
    fn is_stopped(&self) -> bool {
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(waitid(WaitId::Pid(self.pid), options), Ok(Some(status)) if status.stopped())
    }
}

/// Sends a signal to a group. One without members cannot be signalled, and need not be.
fn signal_group(group: Pid, signal: Signal) {
    let _ = kill_process_group(group, signal);
}

/// A folder for what workers report: where temporary files go, or, where that is away or full, where the
/// system has such folders.
fn temporary_folder() -> Result<TempDir, LaunchError> {
    let usual = std::env::temp_dir();
    let make = |folder: &Path| tempfile::Builder::new().prefix("kolo-launch-").tempdir_in(folder);
    make(&usual).or_else(|cause| {
        let others = ["/tmp", "/var/tmp", "/dev/shm"].map(Path::new).into_iter();
        others.filter(|folder| *folder != usual).find_map(|folder| make(folder).ok()).ok_or_else(|| {
            let what = format!(
                "cannot make a folder for the workers' error files in {}, nor in /tmp, /var/tmp or /dev/shm; set TMPDIR \
                 to a folder that can be written to",
                usual.display()
            );
            LaunchError::system(what, cause)
        })
    })
}

/// Why a program cannot be started, and the remedy.
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
