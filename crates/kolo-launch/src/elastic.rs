//! Goes on when workers die: tells the coordinator who has ended, ends those that hang, and starts others in their place.
//!
//! All of it concerns workers that are members of an elastic job (see [`kolo_comm::elastic`]). Where no generation has been
//! formed, because the program knows nothing of it or a worker failed before, a failure ends the job as ever.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use kolo_comm::elastic::{Coordinator, Departure, Order, Rules};
use kolo_comm::{Options, Token};

use crate::error::LaunchError;
use crate::job::Job;
use crate::token::JobToken;
use crate::workers::Workers;

/// How long after a death another worker is started. When a mistake of the program ends all workers at once, none is.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a worker may be stopped by a signal. The kernel says so for certain, so no time that work takes has to be guessed.
const STOPPED: Duration = Duration::from_secs(5);
/// How long the first generation waits for workers that have been started.
const START: Duration = Duration::from_secs(300);

/// See the module's text.
pub(crate) struct Elastic {
    coordinator: Coordinator,
    orders: Receiver<Order>,
    min: usize,
    restarts: usize,
    /// Whose place is to be taken, and when.
    vacant: Vec<(Instant, usize)>,
    /// Members have been told to give up.
    ending: bool,
}

impl Elastic {
    /// A coordinator for this node's workers. `None` for a job of several nodes.
    pub fn start(job: &Job, token: &JobToken) -> Result<Option<Elastic>, LaunchError> {
        if job.nnodes > 1 {
            return Ok(None);
        }
        let fail = |error: kolo_comm::Error| {
            LaunchError::system("cannot start the coordinator", std::io::Error::other(error.to_string()))
        };
        let token = match token {
            JobToken::Made(text) => Token::new(text).map(Some),
            JobToken::File(path) => Token::from_file(path).map(Some),
            JobToken::Inherited => Token::from_env(),
        };
        let token = token.map_err(fail)?;
        let options = Options { token, ..Options::default() };
        let rules = Rules { min: job.min, start: START, patience: job.patience, wait: job.wait };
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (coordinator, orders) =
            Coordinator::start(address, job.nproc + job.restarts, rules, &options).map_err(fail)?;
        let (vacant, ending) = (Vec::new(), false);
        let (min, restarts) = (job.min, job.restarts);
        Ok(Some(Elastic { coordinator, orders, min, restarts, vacant, ending }))
    }

    /// Where members find the coordinator.
    pub fn address(&self) -> SocketAddr {
        self.coordinator.address()
    }

    /// A worker is about to be started, or has been.
    pub fn expect(&self, member: &str) {
        self.coordinator.expect(member);
    }

    /// Passes on what is new. Gives the places for which a worker is to be started now.
    pub fn look(&mut self, workers: &mut Workers) -> Vec<usize> {
        for order in self.orders.try_iter().collect::<Vec<_>>() {
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
                    self.ending = true;
                }
            }
        }
        if self.coordinator.generation() > 0 {
            for member in workers.evict_stopped(STOPPED) {
                eprintln!("kolo: worker {member} has been stopped for {} s and is ended", STOPPED.as_secs());
            }
        }
        let alive = workers.list.iter().filter(|worker| worker.end().is_none()).count();
        let formed = self.coordinator.generation() > 0;
        for worker in workers.list.iter_mut().filter(|worker| !worker.told) {
            let Some(end) = worker.end() else { continue };
            worker.told = true;
            let departure = if end.failed() { Departure::Failed(end.to_string()) } else { Departure::Well };
            self.coordinator.gone(&worker.member, &departure);
            let enough = alive > 0 && alive + self.vacant.len() + self.restarts >= self.min;
            // Whoever comes when the work is done is not needed, however it ends.
            let over = self.coordinator.is_over();
            if end.failed() && formed && (enough || over) && !self.ending {
                worker.survived = true;
                if self.restarts > 0 && !over {
                    self.restarts -= 1;
                    self.vacant.push((Instant::now() + PAUSE, worker.local));
                }
            }
        }
        let now = Instant::now();
        if alive == 0 || self.ending {
            self.vacant.clear();
        }
        let due = self.vacant.iter().filter(|(at, _)| *at <= now).map(|(_, local)| *local).collect();
        self.vacant.retain(|(at, _)| *at > now);
        due
    }
}
