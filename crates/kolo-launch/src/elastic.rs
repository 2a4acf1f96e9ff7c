//! Keeps an elastic job going when workers die: tells the coordinator which have ended, ends those that hang,
//! and starts others.
//!
//! It concerns workers that are members of an elastic job (see [`kolo_elastic`]). Where no generation has
//! been formed, because the program is not elastic or a worker failed before, a failure ends the job as ever.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use kolo_comm::{Interface, Options, Token, env};
use kolo_elastic::{Coordinator, Departure, Nodes, Order, Rules};
use signal_hook::consts::signal::SIGTERM;

use crate::error::LaunchError;
use crate::job::Job;
use crate::signals::Signals;
use crate::token::TokenSource;
use crate::worker_exit::{ExitStatus, SHELL_SIGNAL_BASE};
use crate::workers::{WorkerProcess, Workers};

/// How long after a death another worker is started. When a mistake of the program ends all workers at once,
/// none is.
const RESTART_DELAY: Duration = Duration::from_millis(500);
/// How long a worker may be stopped by a signal. The kernel knows it for certain, so no time that work takes
/// has to be guessed.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the first generation waits for workers that have been started.
const START_TIMEOUT: Duration = Duration::from_secs(300);

/// The status of a worker that was asked to end with all others, as a shell tells of a program that SIGTERM
/// has ended: none is started in its place.
const TERMINATED: ExitStatus = ExitStatus::Code(SHELL_SIGNAL_BASE + SIGTERM);

/// This launcher's part in an elastic job.
pub(crate) struct Elastic {
    coordinator: Coordinator,
    orders: Receiver<Order>,
    min: usize,
    restarts: usize,
    /// When a worker is to be started, and its local rank.
    due_restarts: Vec<(Instant, usize)>,
    /// Whether the job ends, so that no worker is started any more.
    ending: bool,
}

impl Elastic {
    /// A coordinator for this node's workers.
    pub fn start(job: &Job, token: &TokenSource) -> Result<Elastic, LaunchError> {
        let fail = |error: kolo_comm::Error| {
            LaunchError::system("cannot start the coordinator", std::io::Error::other(error.to_string()))
        };
        let options = options(job, token).map_err(fail)?;
        let rules = Rules { min: job.min, start: START_TIMEOUT, patience: job.patience, wait: job.wait };
        let size = job.nproc + job.restarts;
        let (coordinator, orders) = match job.nnodes {
            1 => Coordinator::start((Ipv4Addr::LOCALHOST, 0).into(), size, rules, &options),
            _ => Coordinator::among(nodes(job), size, rules, &options),
        }
        .map_err(fail)?;
        let (due_restarts, ending) = (Vec::new(), false);
        let (min, restarts) = (job.min, job.restarts);
        Ok(Elastic { coordinator, orders, min, restarts, due_restarts, ending })
    }

    /// Waits until a job begins whose nodes may come and go. Gives the job with this node's rank and the
    /// number of nodes.
    pub fn wait_for_node_rank(&self, job: &Job, signals: &mut Signals) -> Result<Job, LaunchError> {
        let until = Instant::now() + START_TIMEOUT;
        loop {
            if let Some((node_rank, nnodes)) = self.coordinator.place() {
                return Ok(Job { node_rank, nnodes, ..job.clone() });
            }
            for order in self.orders.try_iter() {
                if let Order::Lost { why } = order {
                    return Err(LaunchError::Launchers { why });
                }
            }
            if let Some(signal) = signals.pending().next() {
                return Err(LaunchError::Interrupted { signal });
            }
            if Instant::now() >= until {
                let min = job.nnodes_min.unwrap_or(job.nnodes);
                let why =
                    format!("it needs {min} nodes (--nnodes), and fewer have come within {START_TIMEOUT:?}");
                return Err(LaunchError::Launchers { why });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Where members find the coordinator.
    pub fn address(&self) -> SocketAddr {
        self.coordinator.address()
    }

    /// Tells the coordinator that a worker is about to be started, or has been.
    pub fn expect(&self, member: &str) {
        self.coordinator.expect(member);
    }

    /// Ends the job: members that are left need not wait for others.
    pub fn close(&mut self) {
        if !self.ending {
            self.ending = true;
            self.coordinator.close();
        }
    }

    /// Whether the launcher is needed without any worker: another one is about to be started, or launchers of
    /// other nodes are led by this one.
    pub fn needs_launcher(&self, workers: &Workers) -> bool {
        let led = || self.coordinator.generation() > 0 && self.coordinator.is_needed();
        !workers.any_failed() && (!self.due_restarts.is_empty() || led())
    }

    /// Passes on what is new between coordinator and workers. Gives the local ranks for which a worker is to
    /// be started now.
    ///
    /// # Errors
    ///
    /// The other launchers have gone on without this one: its workers must not.
    pub fn update(&mut self, workers: &mut Workers) -> Result<Vec<usize>, LaunchError> {
        for order in self.orders.try_iter().collect::<Vec<_>>() {
            self.follow(order, workers)?;
        }
        if self.coordinator.generation() > 0 {
            for member in workers.evict_stopped(STOP_TIMEOUT) {
                eprintln!(
                    "kolo: worker {member} has been stopped for {} s and is ended",
                    STOP_TIMEOUT.as_secs()
                );
            }
        }
        let here = workers.list.iter().filter(|worker| worker.status().is_none()).count();
        let alive = here + self.coordinator.elsewhere();
        self.report_exits(workers, alive);
        let now = Instant::now();
        if alive == 0 || self.ending {
            self.due_restarts.clear();
        }
        let due = self
            .due_restarts
            .iter()
            .filter(|(at, _)| *at <= now)
            .map(|(_, local_rank)| *local_rank)
            .collect();
        self.due_restarts.retain(|(at, _)| *at > now);
        let well = |worker: &WorkerProcess| worker.status().is_some_and(|status| !status.failed());
        let done = |worker: &WorkerProcess| worker.survived || well(worker);
        if workers.list.iter().any(well) && workers.list.iter().all(done) {
            self.coordinator.done();
        }
        Ok(due)
    }

    /// Tells the coordinator which workers have ended, and decides whether the job goes on without them.
    /// `alive` workers are left on all nodes.
    fn report_exits(&mut self, workers: &mut Workers, alive: usize) {
        let formed = self.coordinator.generation() > 0;
        let mut too_few = false;
        for worker in workers.list.iter_mut().filter(|worker| !worker.reported) {
            let Some(status) = worker.status() else { continue };
            worker.reported = true;
            let departure =
                if status.failed() { Departure::Failed(status.to_string()) } else { Departure::Well };
            self.coordinator.gone(&worker.member, &departure);
            // No worker is started in place of one that has ended well.
            let coming = self.due_restarts.len() + if status.failed() { self.restarts } else { 0 };
            let enough = alive > 0 && alive + coming >= self.min && status != TERMINATED;
            too_few |= formed && !enough;
            // A worker that was started when the work was done is not needed, however it ends.
            let over = self.coordinator.is_over();
            if status.failed() && formed && (enough || over) && !self.ending {
                worker.survived = true;
                if let Some(message) = worker.error_message() {
                    eprintln!("kolo: {} ({}) {status}: {message}", worker.rank, worker.member);
                }
                if self.restarts > 0 && !over {
                    self.restarts -= 1;
                    self.due_restarts.push((Instant::now() + RESTART_DELAY, worker.local_rank));
                }
            }
        }
        if too_few {
            self.close();
        }
    }

    fn follow(&mut self, order: Order, workers: &Workers) -> Result<(), LaunchError> {
        match order {
            Order::Formed { generation, members, reason } if generation > 1 => {
                eprintln!("kolo: generation {generation} of {} workers: {reason}", members.len());
            }
            Order::Formed { .. } => {}
            Order::Evict { member } => {
                eprintln!("kolo: worker {member} hangs and is ended");
                workers.evict(&member);
            }
            Order::TooFew { present } => {
                eprintln!("kolo: {present} workers are left, and no others have come: the job ends");
                self.close();
            }
            Order::Lost { why } if self.coordinator.generation() > 0 && !self.ending => {
                return Err(LaunchError::Launchers { why });
            }
            // Members are told when they come; a program that is not elastic does not need the other
            // launchers.
            Order::Lost { .. } => {}
        }
        Ok(())
    }
}

/// The coordinator's options: the token and the network interface that the workers get.
fn options(job: &Job, token: &TokenSource) -> Result<Options, kolo_comm::Error> {
    // As for the workers: what the job says wins over what is inherited.
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
    Ok(Options { token, interface, ..Options::default() })
}

/// Where the launchers of a job of several nodes find each other, and how many they are.
fn nodes(job: &Job) -> Nodes {
    // The job has been checked: there is a port.
    let first = (job.master_addr.clone(), job.master_port.unwrap_or(0));
    Nodes {
        masters: std::iter::once(first).chain(job.masters.iter().cloned()).collect(),
        node: job.nnodes_min.is_none().then_some(job.node_rank),
        min: job.nnodes_min.unwrap_or(job.nnodes),
        max: job.nnodes,
        workers: job.nproc,
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
}
