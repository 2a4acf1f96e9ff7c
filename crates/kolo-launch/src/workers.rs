//! The processes of a job on this node: started together, and never left behind.
//!
//! Every worker heads a process group, whose number is its own process id. A dead worker is reaped only when
//! the job is over, or when the job has survived it and its group has been killed. Until then the kernel
//! does not reuse its number, so that a signal to its group cannot hit another process.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use kolo_elastic::{MemberRanks, member_name, note_of};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, test_kill_process_group};
use tempfile::TempDir;

use crate::bind;
use crate::die_with_parent::die_with_launcher;
use crate::environment::{Rendezvous, variables};
use crate::error::LaunchError;
use crate::error_file;
use crate::job::{Job, Output};
use crate::program::{Program, cannot_start};
use crate::reaper::Reaper;
use crate::saving::Savers;
use crate::stopped_time::StoppedTime;
use crate::worker_exit::{ExitStatus, TERMINATED, WorkerExit, worker_name};
use crate::worker_process::{WorkerProcess, signal_group};

/// Time limit of the wait for killed groups. It expires only if the kernel does not release a process, or
/// init does not reap orphans.
const KILL_TIMEOUT: Duration = Duration::from_millis(500);

/// Number of survived workers to remember. If all workers have died, the job's error describes them.
const REMEMBERED: usize = 32;

/// The exits of a job's workers on this node.
pub(crate) struct Exits {
    /// Those that the job has not survived, or, without such, those that it has.
    pub last: Vec<WorkerExit>,
    /// Deaths in the last three generations that the job seemed to survive, with the ranks there.
    pub earlier: Vec<WorkerExit>,
}

/// Workers that a signal has stopped for too long.
pub(crate) struct Stopped {
    /// Names of those that were killed.
    pub killed: Vec<String>,
    /// Names of those that have been stopped since the last call, or have continued, which is `false`.
    pub changes: Vec<(String, bool)>,
    /// True once when all that have the job's state are stopped, so that none of them was killed.
    pub is_suspended: bool,
}

/// All workers of this node. Dropping it kills the remaining ones.
#[derive(Debug)]
pub(crate) struct Workers {
    pub list: Vec<WorkerProcess>,
    /// Exits of the last workers that the job has survived.
    survived: VecDeque<WorkerExit>,
    starts: Vec<usize>,
    /// Cores of each worker by its local rank, if they are bound.
    cores: Option<Vec<Vec<usize>>>,
    started: Instant,
    /// True after the workers were asked to end: later exits count as caused by the launcher.
    terminating: bool,
    /// True if all were killed and reaped: other processes may have their ids now.
    over: bool,
    program: Program,
    reaper: Option<Reaper>,
    error_files: TempDir,
    ranks: MemberRanks,
    /// The time for which all that have the job's state have been stopped.
    all_stopped: StoppedTime,
}

impl Workers {
    /// Starts all workers, or leaves none. `ranks` provides their ranks in generations.
    ///
    /// They live no longer than the calling thread.
    pub fn start(job: &Job, rendezvous: &Rendezvous, ranks: MemberRanks) -> Result<Workers, LaunchError> {
        let error_files = temporary_folder()?;
        let cores = job
            .bind
            .cores(job.processes())
            .map_err(|cause| LaunchError::system("cannot learn which cores the launcher may use", cause))?;
        if let Some(cores) = &cores {
            job.messages.print(&bind::describe(cores));
        }
        let mut workers = Workers {
            list: Vec::with_capacity(job.processes()),
            survived: VecDeque::new(),
            starts: vec![0; job.processes()],
            cores,
            started: Instant::now(),
            terminating: false,
            over: false,
            program: Program::find(job),
            reaper: Reaper::start(error_files.path()),
            error_files,
            ranks,
            all_stopped: StoppedTime::default(),
        };
        for local_rank in 0..job.processes() {
            workers.start_one(job, rendezvous, local_rank)?;
        }
        Ok(workers)
    }

    /// Starts the worker of a local rank, or a replacement for it.
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
        let cores = self.cores.as_ref().map(|cores| bind::set_of(&cores[local_rank]));
        die_with_launcher(&mut command, socket, cores);
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
            broke_off: false,
            evicted: None,
            stopped: false,
            reported_stopped: false,
            stopped_time: StoppedTime::default(),
        });
        Ok(self.list.last_mut().expect("just pushed"))
    }

    /// Kills a member that hangs. The reason completes a sentence that begins with its name.
    pub fn evict(&mut self, member: &str, reason: &str) {
        let hangs = |worker: &&mut WorkerProcess| worker.member == member && worker.exit.is_none();
        self.list.iter_mut().filter(hangs).for_each(|worker| worker.evict(reason.into()));
    }

    /// Returns `rank 1 (node0/1.0)` with the last rank of the member, or `worker node0/1.0`.
    pub fn name(&self, member: &str) -> String {
        match self.ranks.last(member) {
            Some(rank) => format!("{rank} ({member})"),
            None => worker_name(None, member),
        }
    }

    /// Kills workers that have been stopped (SIGSTOP) for `limit`.
    ///
    /// Kills none if all that have the job's state (before the first generation: all) are stopped: somebody
    /// has stopped the job and will continue it, and without them the state would be lost. Newcomers and
    /// servers, which have none of it, may run. A job whose other workers have ended well waits for nobody.
    pub fn evict_stopped(&mut self, limit: Duration) -> Stopped {
        let (now, mut killed, mut changes) = (Instant::now(), Vec::new(), Vec::new());
        let living = || self.list.iter().filter(|worker| worker.exit.is_none());
        let formed = self.ranks.are_known();
        let has_state = |worker: &&WorkerProcess| {
            !worker.is_server && (!formed || self.ranks.current(&worker.member).is_some())
        };
        let is_done = self.list.iter().any(|worker| matches!(worker.exit, Some((_, ExitStatus::Code(0)))));
        let all_stopped = !is_done
            && living().any(|worker| has_state(&worker))
            && living().filter(has_state).all(WorkerProcess::is_stopped);
        for worker in self.list.iter_mut().filter(|worker| worker.exit.is_none()) {
            let is_stopped = worker.is_stopped();
            if std::mem::replace(&mut worker.reported_stopped, is_stopped) != is_stopped {
                changes.push((worker.member.clone(), is_stopped));
            }
            if worker.stopped_time.observe(is_stopped && !all_stopped, now) >= limit {
                worker.evict(format!("has stood still for {} s, stopped by a signal", limit.as_secs()));
                killed.push(worker.member.clone());
            }
        }
        let before = self.all_stopped.total();
        let is_suspended = self.all_stopped.observe(all_stopped, now) >= limit && before < limit;
        Stopped { killed, changes, is_suspended }
    }

    /// Records the exits since the last call. All that are found together get the same time.
    pub fn collect(&mut self) -> Result<(), LaunchError> {
        let now = self.started.elapsed();
        for worker in self.list.iter_mut().filter(|worker| worker.exit.is_none()) {
            let status = worker.poll().map_err(|cause| {
                LaunchError::system(format!("cannot learn how {} ended", worker.rank), cause)
            })?;
            worker.broke_off =
                self.terminating && status.is_some_and(|status| status.failed() && status != TERMINATED);
            worker.exit = status.map(|status| match self.terminating {
                true => (now, ExitStatus::ByLauncher { stopped: worker.stopped }),
                false => (now, status),
            });
        }
        Ok(())
    }

    /// Releases the workers that the job has survived, so that memory stays bounded, except for the last
    /// [`REMEMBERED`] exits. Kills the rest of their groups. Returns the names of workers that are dropped.
    pub fn release_survived(&mut self) -> Vec<String> {
        let is_survived = |worker: &mut WorkerProcess| worker.survived;
        for mut worker in self.list.extract_if(.., is_survived).collect::<Vec<_>>() {
            signal_group(worker.pid, Signal::KILL);
            if let Some(reaper) = &self.reaper {
                reaper.socket.forget(worker.pid);
            }
            // The worker has ended, so this returns at once; afterwards its number may be reused.
            let _ = worker.child.wait();
            self.survived.push_back(self.exit(&worker));
            // The file exists only if the worker has reported something.
            let _ = std::fs::remove_file(&worker.error_file);
        }
        let surplus = self.survived.len().saturating_sub(REMEMBERED);
        self.survived.drain(..surplus).map(|exit| exit.member).collect()
    }

    fn exit(&self, worker: &WorkerProcess) -> WorkerExit {
        let (after, status) = worker.exit.unwrap_or((self.started.elapsed(), ExitStatus::Stuck));
        let ended = SystemTime::now() - self.started.elapsed().saturating_sub(after);
        let error = error_file::read(&worker.error_file, worker.pid.as_raw_nonzero().get(), ended);
        let (member, pid) = (worker.member.clone(), worker.pid.as_raw_nonzero().get());
        let evicted = worker.evicted.clone();
        WorkerExit { rank: Some(worker.rank), member, pid, after, status, evicted, error }
    }

    /// Returns the number of workers that save the run and make progress.
    pub fn saving(&self, savers: &mut Savers, now: Instant) -> usize {
        let running = self.list.iter().filter(|worker| worker.exit.is_none());
        let saves = |worker: &&WorkerProcess| {
            let (pid, note) = (worker.pid.as_raw_nonzero().get(), note_of(&worker.error_file));
            savers.makes_progress(pid, &note, now)
        };
        running.filter(saves).count()
    }

    /// Exit statuses of the workers that have failed by themselves, and that the others could not survive.
    pub fn failures(&self) -> impl Iterator<Item = ExitStatus> {
        let ended = self.list.iter().filter(|worker| !worker.survived);
        ended.filter_map(|worker| worker.exit.map(|(_, status)| status)).filter(|status| status.failed())
    }

    /// Returns true if all workers have ended.
    pub fn all_ended(&self) -> bool {
        self.list.iter().all(|worker| worker.exit.is_some())
    }

    /// Returns descriptors of the running workers that become readable when one ends.
    pub fn pidfds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.list.iter().filter(|worker| worker.exit.is_none()).map(|worker| worker.pidfd.as_fd())
    }

    /// Asks all remaining processes to end, including the children of workers that have ended.
    pub fn terminate(&mut self, signal: Signal) {
        for worker in self.list.iter_mut().filter(|worker| worker.exit.is_none()) {
            worker.stopped = worker.is_stopped();
        }
        self.terminating = true;
        self.signal(signal);
        // A stopped process receives the signal once it continues.
        self.signal(Signal::CONT);
    }

    /// Kills all remaining processes, including the children of workers that have ended.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Sends a signal to all groups.
    pub fn signal(&self, signal: Signal) {
        self.list.iter().for_each(|worker| signal_group(worker.pid, signal));
    }

    /// Kills the remaining processes, waits until they are gone, and returns the workers' exits.
    pub fn finish(mut self) -> Exits {
        self.end_all();
        let survived: Vec<&WorkerProcess> = self.list.iter().filter(|worker| worker.survived).collect();
        let lasting = self.list.iter().filter(|worker| !worker.survived).map(|worker| self.exit(worker));
        let mut exits: Vec<WorkerExit> = lasting.collect();
        let mut earlier: Vec<WorkerExit> = self.survived.iter().cloned().collect();
        earlier.extend(survived.into_iter().map(|worker| self.exit(worker)));
        if exits.is_empty() {
            exits.append(&mut earlier);
        }
        earlier.retain(|exit| self.ranks.was_here_lately(&exit.member));
        earlier.iter_mut().for_each(|exit| exit.rank = self.ranks.last(&exit.member));
        if self.ranks.are_known() {
            for exit in &mut exits {
                // The generation of a worker with wrong input may be over, because the others save their
                // work.
                let last = self.ranks.last(&exit.member).filter(|_| exit.has_wrong_input());
                exit.rank = self.ranks.current(&exit.member).or(last);
            }
        }
        Exits { last: exits, earlier }
    }

    /// Kills all groups, reaps their heads, and waits until nothing of them is left, except for processes
    /// that the kernel does not release.
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

/// Creates a folder for the workers' reports: in the usual place for temporary files or, if that is missing
/// or full, in one of the system's.
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
