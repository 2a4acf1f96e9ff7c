//! A server: one thread per worker, which takes the worker's pushes and answers them; and the state that the
//! threads share.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kolo_comm::{Group, Rank};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::message::{Answer, Pair, Push};
use super::part_state::PartState;
use kolo_reduction::Error;

/// Interval at which a thread that waits for another worker's push checks for a failure of the group.
const GLANCE: Duration = Duration::from_millis(100);

/// This rank as a server.
pub(super) struct Server {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// State that the threads of a server share with the program's thread.
struct Shared {
    group: Arc<Group>,
    /// Ranks of the workers.
    workers: Vec<Rank>,
    state: Mutex<State>,
    /// Signals a change of the state.
    changed: Condvar,
}

struct State {
    part: PartState,
    /// Number of rounds begun; `is_open` is true while the last one is open.
    rounds: u64,
    is_open: bool,
    /// Number of workers whose last push of the round has been answered.
    ended: usize,
    /// True once the program has dropped its replica: no further round begins.
    closed: bool,
    /// First error, until [`Server::end_round`] returns it.
    failure: Option<Error>,
    has_failed: bool,
}

/// Event that a thread of a server waits for, besides messages.
#[derive(Clone, Copy)]
enum WaitsFor {
    /// Next step of the program.
    Program,
    /// Next push of the slowest worker.
    Slowest,
}

impl Server {
    /// Starts one thread per worker, which waits for the first round.
    pub(super) fn start(
        group: Arc<Group>,
        workers: Vec<Rank>,
        pairs: Vec<Pair>,
        part: PartState,
    ) -> Result<Self, Error> {
        let state = State {
            part,
            rounds: 0,
            is_open: false,
            ended: 0,
            closed: false,
            failure: None,
            has_failed: false,
        };
        let shared = Arc::new(Shared { group, workers, state: Mutex::new(state), changed: Condvar::new() });
        let mut server = Server { shared: shared.clone(), threads: Vec::new() };
        for (worker, pair) in pairs.into_iter().enumerate() {
            let shared = shared.clone();
            let name = format!("kolo-serve-{}", shared.workers[worker].0);
            let thread = std::thread::Builder::new().name(name).spawn(move || shared.serve(worker, &pair));
            server.threads.push(thread.map_err(|cause| Error::Thread { cause })?);
        }
        Ok(server)
    }

    /// Begins a round after that number of steps, unless it has begun.
    pub(super) fn begin_round(&self, steps: u64) {
        let mut state = self.shared.state.lock();
        if !state.is_open {
            state.part.begin_round(steps);
            state.rounds += 1;
            (state.is_open, state.ended) = (true, 0);
            self.shared.changed.notify_all();
        }
    }

    /// Waits until every worker has received its last pull of the round, which ends after `steps` steps.
    /// Errors: a worker died, left, did not take part in time, or ends its round after another step (naming
    /// it).
    pub(super) fn end_round(&self, steps: u64) -> Result<(), Error> {
        let mut state = self.shared.state.lock();
        let workers = self.shared.workers.len();
        let waited = self.shared.wait_until(&mut state, WaitsFor::Slowest, |state| state.ended == workers);
        if let Err(error) = waited {
            return Err(state.failure.take().unwrap_or(error));
        }
        state.is_open = false;
        state.part.expect_end(steps)
    }

    /// Calls `look` on the server's part, between two rounds.
    pub(super) fn with_part<R>(&self, look: impl FnOnce(&mut PartState) -> R) -> R {
        look(&mut self.shared.state.lock().part)
    }
}

/// Waits until the threads have served the current round to its end: until the workers end it or leave.
impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.group.abandon("it panicked");
        }
        self.shared.state.lock().closed = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has reported it and ended the group.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn serve(&self, worker: usize, pair: &Pair) {
        let Err(error) = self.serve_rounds(worker, pair) else { return };
        let mut state = self.state.lock();
        // All ranks already know an error of a message.
        if self.group.liveness().failure().is_none() {
            self.group.abandon(&error.to_string());
        }
        state.has_failed = true;
        state.failure.get_or_insert(error);
        self.changed.notify_all();
    }

    /// Serves one worker, round after round.
    fn serve_rounds(&self, worker: usize, pair: &Pair) -> Result<(), Error> {
        let content = self.state.lock().part.content();
        let mut served = 0;
        loop {
            let mut state = self.state.lock();
            let begins_or_closed = |state: &State| state.closed || state.rounds > served;
            self.wait_until(&mut state, WaitsFor::Program, begins_or_closed)?;
            if state.rounds == served {
                return Ok(());
            }
            drop(state);
            served += 1;
            while !self.serve_step(worker, pair, content)? {}
            self.state.lock().ended += 1;
            self.changed.notify_all();
        }
    }

    /// Serves one push and its answer; returns true if the round ends with it for this worker.
    fn serve_step(&self, worker: usize, pair: &Pair, content: usize) -> Result<bool, Error> {
        let push = pair.receive_push(content)?;
        let ends = push.header.ends;
        pair.answer(self.take(worker, pair, push)?)?;
        Ok(ends)
    }

    /// Takes a push, and returns its answer as soon as the slowest worker has come far enough.
    fn take(&self, worker: usize, pair: &Pair, push: Push) -> Result<Answer, Error> {
        let ends = push.header.ends;
        let mut state = self.state.lock();
        state.part.take(worker, &self.workers, push)?;
        self.changed.notify_all();
        self.wait_until(&mut state, WaitsFor::Slowest, |state| state.part.may_pull(worker, ends))?;
        state.part.answer(worker, pair.group())
    }

    /// Waits until `ready` returns true; fails if the group or another thread of this server has failed.
    fn wait_until(
        &self,
        state: &mut MutexGuard<'_, State>,
        waits_for: WaitsFor,
        ready: impl Fn(&State) -> bool,
    ) -> Result<(), Error> {
        while !ready(state) {
            if let Some(error) = self.group.liveness().failure() {
                return Err(error.into());
            }
            if state.has_failed {
                return Err(Error::Lost);
            }
            // A worker whose pull takes too long blames this server, unless the server is registered as
            // waiting itself.
            let _note = match waits_for {
                WaitsFor::Program => None,
                WaitsFor::Slowest => {
                    let (own, slowest) = (self.group.rank(), self.workers[state.part.slowest()]);
                    let [own, slowest] = [own, slowest].map(|rank| self.group.members()[rank.0]);
                    let until = Instant::now() + self.group.timeout();
                    Some(self.group.liveness().begin_wait(own, slowest, until))
                }
            };
            self.changed.wait_for(state, GLANCE);
        }
        Ok(())
    }
}
