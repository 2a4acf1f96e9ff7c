//! Keeps a job alive when its workers die: reports starts and exits to the coordinator, kills workers that
//! hang, and starts replacements. This applies to members of an elastic job (see [`kolo_elastic`], which
//! decides on generations). If no generation has formed, because the program is not elastic or a worker
//! failed earlier, a failure ends the job.

mod exits;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use kolo_comm::schedule::words::counted;
use kolo_comm::{Interface, Options, Token, env, host_timeout};
use kolo_elastic::{Coordinator, CoordinatorEvent, EndCause, MembershipPolicy, NodeConfig};
use signal_hook::consts::signal::SIGTSTP;
use signal_hook::low_level::emulate_default_handler;

use crate::error::LaunchError;
use crate::job::{Job, Messages};
use crate::signals::Signals;
use crate::token::TokenSource;
use crate::workers::Workers;

/// Time after which a worker that a signal has stopped is killed. The kernel reports reliably that it is
/// stopped, so no work time has to be guessed.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of the first generation's wait for workers that have been started.
const START_TIMEOUT: Duration = Duration::from_secs(300);
const WITHOUT_THREADS: &str = "this launcher cannot start threads for its workers; raise `ulimit -v` or `ulimit -u`, or \
                               start fewer workers";
/// Pause between two checks for enough nodes.
const NODES_POLL: Duration = Duration::from_millis(20);

/// The coordinator of this node, and the replacements of its workers.
pub(crate) struct Elastic {
    pub coordinator: Coordinator,
    events: Receiver<CoordinatorEvent>,
    messages: Messages,
    min_members: usize,
    /// Workers of all nodes, if their number is given.
    all_members: Option<usize>,
    restarts_left: usize,
    /// Time of each due restart, and local rank of the dead worker.
    due_restarts: Vec<(Instant, usize)>,
    /// True once the job ends: no worker is started any more.
    closed: bool,
    /// True if this launcher has joined a job that another node's launcher leads.
    has_joined: bool,
    /// True if the job does not begin, because a worker cannot.
    does_not_begin: bool,
}

impl Elastic {
    /// Starts a coordinator for this node's workers.
    pub fn start(job: &Job, token: &TokenSource) -> Result<Elastic, LaunchError> {
        let fail = |error: kolo_comm::Error| {
            LaunchError::system("cannot start the coordinator", std::io::Error::other(error.to_string()))
        };
        let options = options(job, token).map_err(LaunchError::Variable)?;
        let policy = MembershipPolicy {
            min_members: job.min,
            start_timeout: START_TIMEOUT,
            rejoin_timeout: job.patience,
            too_few_timeout: job.wait,
        };
        let size = job.processes() + job.restarts;
        let (coordinator, events) = match job.nnodes {
            1 => Coordinator::single_node((Ipv4Addr::LOCALHOST, 0).into(), size, policy, &options),
            _ => Coordinator::multi_node(node_config(job, options.arrival()), size, policy, &options),
        }
        .map_err(fail)?;
        Ok(Elastic {
            coordinator,
            events,
            messages: job.messages,
            min_members: job.min,
            all_members: job.nnodes_min.is_none().then_some(job.world_size()),
            restarts_left: job.restarts,
            due_restarts: Vec::new(),
            closed: false,
            has_joined: false,
            does_not_begin: false,
        })
    }

    /// Reports that the work of a node is done, which shows nothing else of it: other nodes print the
    /// results.
    pub fn report_done(&self, job: &Job) {
        if self.has_joined {
            let workers = counted(job.nproc, "worker");
            self.messages
                .print(&format!("node {} with {workers} has done its part of the job", job.node_rank));
        }
    }

    /// Reports that the job does not end with this node, whose launcher was asked to end.
    pub fn report_left(&self) {
        let remote = self.coordinator.remote_members();
        if self.has_formed() && remote > 0 {
            self.messages.print(&format!(
                "this node leaves the job; other nodes continue it with {}, unless they were asked to end, too",
                counted(remote, "worker")
            ));
        }
    }

    /// Waits until a job with a variable number of nodes begins, or the coordinator gives up. Returns the
    /// job with this node's rank and the number of nodes.
    pub fn wait_for_node_rank(&mut self, job: &Job, signals: &mut Signals) -> Result<Job, LaunchError> {
        loop {
            if let Some((node_rank, nnodes)) = self.coordinator.node_rank_and_count() {
                return Ok(Job { node_rank, nnodes, ..job.clone() });
            }
            for event in self.events.try_iter().collect::<Vec<_>>() {
                match event {
                    CoordinatorEvent::Joined { node_rank, leader } => self.report_joined(node_rank, leader),
                    CoordinatorEvent::Detached { reason, .. } => {
                        return Err(LaunchError::Launchers { why: reason });
                    }
                    CoordinatorEvent::LauncherRefused { host } => self.report_refused(host),
                    CoordinatorEvent::Warning { text } => self.messages.print(&text),
                    _ => {}
                }
            }
            for signal in signals.pending() {
                if signal == SIGTSTP {
                    // No worker has been started yet.
                    let _ = emulate_default_handler(signal);
                    continue;
                }
                return Err(LaunchError::Interrupted { signal, reports: Vec::new(), kind: None });
            }
            std::thread::sleep(NODES_POLL);
        }
    }

    /// Returns true if a generation has formed, which shows that the program is elastic.
    pub fn has_formed(&self) -> bool {
        self.coordinator.generation() > 0
    }

    /// Returns true if workers may hold state that they save when they are asked to end.
    pub fn has_begun(&self) -> bool {
        self.has_formed() && !self.does_not_begin
    }

    /// Ends the job: the remaining members need not wait for others. The first cause counts.
    pub fn close(&mut self, cause: EndCause) {
        if !self.closed {
            self.closed = true;
            self.coordinator.close(cause);
        }
    }

    /// Returns true if the launcher must stay even without workers: a worker is about to be started, or
    /// launchers of other nodes follow this one.
    pub fn needs_launcher(&self, workers: &Workers) -> bool {
        let leads = || self.coordinator.generation() > 0 && self.coordinator.has_followers();
        workers.failures().next().is_none() && (!self.due_restarts.is_empty() || leads())
    }

    /// Processes the coordinator's events and reports exits to it. Returns the local ranks of the workers to
    /// start now.
    ///
    /// # Errors
    ///
    /// The other launchers have continued without this one, or the job does not begin: its workers must end.
    pub fn update(&mut self, workers: &mut Workers) -> Result<Vec<usize>, LaunchError> {
        for event in self.events.try_iter().collect::<Vec<_>>() {
            self.handle(event, workers)?;
        }
        // A worker that waits for its assignment shows that the program is elastic.
        if self.has_formed() || self.coordinator.has_waiting_members() {
            let stopped = workers.evict_stopped(STOP_TIMEOUT);
            for (member, is_stopped) in &stopped.changes {
                self.coordinator.member_stopped(member, *is_stopped);
            }
            if stopped.is_suspended {
                let (here, others) = match self.coordinator.remote_members() {
                    0 => ("", ""),
                    _ => (" here", ", or until other nodes go on without them"),
                };
                self.messages.print(&format!(
                    "all workers{here} with the state of the job stand still, stopped by a signal; the job waits \
                     until they continue (SIGCONT){others}"
                ));
            }
            for member in stopped.killed {
                let name = workers.name(&member);
                self.messages
                    .print(&format!("{name} has stood still for {} s; Kolo ends it", STOP_TIMEOUT.as_secs()));
            }
        }
        let alive = self.alive(workers);
        self.report_exits(workers, alive);
        if Self::workers_are_done(workers) {
            self.coordinator.work_done();
        }
        if alive == 0 || self.closed {
            self.due_restarts.clear();
        }
        Ok(self.take_due_restarts())
    }

    fn handle(&mut self, event: CoordinatorEvent, workers: &mut Workers) -> Result<(), LaunchError> {
        match event {
            CoordinatorEvent::GenerationFormed { generation, members, reason } if generation > 1 => {
                let members = counted(members.len(), "worker");
                let ends = if self.closed { "the job ends with " } else { "" };
                self.messages.print(&format!("{ends}generation {generation} of {members}: {reason}"));
            }
            CoordinatorEvent::GenerationFormed { members, .. } => {
                if let Some(all) = self.all_members.filter(|all| members.len() < *all) {
                    let all = counted(all, "worker");
                    self.messages.print(&format!("the job begins with {} of {all}", members.len()));
                }
            }
            CoordinatorEvent::Joined { node_rank, leader } => self.report_joined(node_rank, leader),
            CoordinatorEvent::MemberHung { member, reason } => {
                self.messages.print(&format!("{} hangs; Kolo ends it: it {reason}", workers.name(&member)));
                workers.evict(&member, &reason);
            }
            CoordinatorEvent::TooFewMembers { present } => {
                let (left, are) = (counted(present, "worker"), if present == 1 { "is" } else { "are" });
                self.messages.print(&format!("{left} {are} left, and no others have come: the job ends"));
                self.close(EndCause::TooFew);
            }
            // The members that wait report it.
            CoordinatorEvent::StateLost => self.close(EndCause::Failed),
            // A worker of this node reports the obstacle, or has failed before.
            CoordinatorEvent::CannotBegin(_) if self.closed => self.does_not_begin = true,
            CoordinatorEvent::CannotBegin(obstacle) => return Err(LaunchError::CannotBegin { obstacle }),
            CoordinatorEvent::Superseded { reason } => return Err(LaunchError::Superseded { why: reason }),
            CoordinatorEvent::Detached { reason, ends_job }
                if (ends_job || self.coordinator.generation() > 0) && !self.closed =>
            {
                return Err(LaunchError::Launchers { why: reason });
            }
            // Members receive the reason when they request their job. A program that is not elastic does not
            // need the other launchers.
            CoordinatorEvent::Detached { reason, .. } if !self.closed => {
                self.messages.print(&format!("this node's launcher takes no part in the job: {reason}"));
            }
            CoordinatorEvent::Detached { .. } => {}
            CoordinatorEvent::LauncherRefused { host } => self.report_refused(host),
            CoordinatorEvent::WithoutThreads { cause } => {
                return Err(LaunchError::system(WITHOUT_THREADS, std::io::Error::other(cause)));
            }
            CoordinatorEvent::Warning { text } => self.messages.print(&text),
        }
        Ok(())
    }

    fn report_joined(&mut self, node_rank: usize, leader: Option<(usize, SocketAddr)>) {
        self.has_joined = true;
        let of = leader.map(|(rank, address)| format!(" of node {rank} at {address}")).unwrap_or_default();
        self.messages.print(&format!("node {node_rank} has joined the job{of}"));
    }

    fn report_refused(&self, host: IpAddr) {
        let reason = "because its token differs from this node's";
        self.messages.print(&format!("this node refused a node at {host}, {reason}"));
    }
}

/// Returns the coordinator's options: token, interface and timeout, the same as the workers'.
fn options(job: &Job, token: &TokenSource) -> Result<Options, kolo_comm::Error> {
    // A variable of the job overrides an inherited one, as for the workers.
    let given = |name: &str| job.env.iter().rev().find(|(n, _)| n == name).map(|(_, value)| value.clone());
    let variable =
        |name: &str| given(name).or_else(|| std::env::var_os(name)).filter(|value| !value.is_empty());
    let token = match token {
        TokenSource::Generated(text) => Some(Token::new(text)?),
        TokenSource::File(path) => Some(Token::from_file(path)?),
        TokenSource::Inherited => Token::from_lookup(variable)?,
    };
    let interface = match variable(env::IFACE).filter(|_| job.nnodes > 1) {
        Some(name) => Some(Interface::named(&name.to_string_lossy())?),
        None => None,
    };
    host_timeout()?;
    let timeout =
        variable(env::TIMEOUT).map(|text| Options::read_timeout(&text.to_string_lossy())).transpose()?;
    Ok(Options { token, interface, timeout, ..Options::default() })
}

/// Describes the nodes of a multi-node job that begins within `start_timeout` for the coordinator.
fn node_config(job: &Job, start_timeout: Duration) -> NodeConfig {
    // The job has been checked, so there is a port.
    let first = (job.master_addr.clone(), job.master_port.unwrap_or(0));
    NodeConfig {
        masters: std::iter::once(first).chain(job.masters.iter().cloned()).collect(),
        node_rank: job.nnodes_min.is_none().then_some(job.node_rank),
        min_nodes: job.nnodes_min.unwrap_or(job.nnodes),
        max_nodes: job.nnodes,
        local_workers: job.processes(),
        start_timeout,
        arbiter: job.arbiter.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_among_the_jobs_variables_is_the_coordinators_too() {
        let mut job = Job::new(["true"], 1);
        job.env = vec![(env::TOKEN.into(), "too short".into())];
        let error = options(&job, &TokenSource::Inherited).unwrap_err().to_string();
        assert!(error.contains("KOLO_TOKEN") && error.contains("9 characters"), "{error}");
        job.env.push((env::TOKEN.into(), "long enough for a token".into()));
        assert!(options(&job, &TokenSource::Inherited).unwrap().token.is_some(), "the last one counts");
    }

    #[test]
    fn a_wrong_variable_is_wrong_input() {
        for (name, value) in [(env::TIMEOUT, "silly"), (env::TIMEOUT, "-1"), (env::TOKEN, "short")] {
            let mut job = Job::new(["true"], 1);
            job.env = vec![(name.into(), value.into())];
            let error = Elastic::start(&job, &TokenSource::Inherited).err().unwrap();
            assert_eq!(error.exit_code(), 2, "{error}");
            assert!(error.to_string().starts_with(&format!("the environment variable {name} ")), "{error}");
        }
    }
}
