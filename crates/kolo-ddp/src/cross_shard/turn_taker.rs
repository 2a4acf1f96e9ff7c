//! The shards of one rank in lockstep: threads of which one computes at a time.
//!
//! The first shard computes until it needs a sum, then the second one, and so on; the last one adds with the
//! other ranks, and all get the result, again in turn. So a rank computes on one thread at any time, in an
//! order that is always the same.

use std::fmt;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::exchange::Exchange;
use kolo_reduction::Error;

/// A sum that a shard needs. All shards must need the same ones in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumRequest {
    /// Kind of its numbers, for the error's text.
    pub what: &'static str,
    /// Its number among those of this kind in the shard's pass, from 0.
    pub number: usize,
    /// Number of summands of each shard.
    pub len: usize,
}

impl fmt::Display for SumRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SumRequest { what, number, len } = self;
        write!(f, "{len} numbers of {what} {number}")
    }
}

/// Lets the threads of one rank compute in turns.
pub struct TurnTaker {
    /// For each of this rank's shards: true if it runs. Runners are numbered without the others.
    shards: Vec<bool>,
    state: Mutex<State>,
    changed: Condvar,
}

kolo_comm::opaque_debug!(TurnTaker);

struct State {
    /// `None` when the step is over.
    exchange: Option<Exchange>,
    /// The runner that computes.
    turn: usize,
    /// The sum that the first runner needs; `None` if it needs no more.
    request: Option<SumRequest>,
    own: Vec<Option<Vec<f64>>>,
    sum: Vec<f64>,
    failure: Option<Error>,
}

impl TurnTaker {
    /// Prepares the turns of one step, which `exchange` has begun. `shards` is true for each of this rank's
    /// shards that has samples.
    pub fn new(exchange: Exchange, shards: Vec<bool>) -> Arc<Self> {
        let state = State {
            exchange: Some(exchange),
            turn: 0,
            request: None,
            own: vec![None; shards.len()],
            sum: Vec::new(),
            failure: None,
        };
        Arc::new(TurnTaker { shards, state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Waits for the turn of a shard that has samples, by its place among this rank's. Every such shard
    /// calls it on a thread of its own, or on the only one if there is no other.
    pub fn enter(self: &Arc<Self>, shard: usize) -> Runner {
        let number = self.shards[..shard].iter().filter(|runs| **runs).count();
        let handle = ShardHandle { turns: self.clone(), shard, number };
        handle.wait(&mut self.state.lock());
        Runner { handle, over: false }
    }

    /// Ends the step with this error, unless it has ended with another one. No thread waits any more.
    pub fn fail(&self, error: Error) {
        self.state.lock().failure.get_or_insert(error);
        self.changed.notify_all();
    }

    /// Returns true if the step has failed, so that passes need not continue.
    pub fn has_failed(&self) -> bool {
        self.state.lock().failure.is_some()
    }

    /// Ends the turns after all runners; returns the exchange.
    ///
    /// # Errors
    ///
    /// The error of the step.
    pub fn end(&self) -> Result<Exchange, Error> {
        let mut state = self.state.lock();
        let exchange = state.exchange.take();
        if let Some(error) = state.failure.take() {
            return Err(error);
        }
        let mut exchange = exchange.ok_or_else(|| Error::Setting("a step ends once".into()))?;
        exchange.end()?;
        Ok(exchange)
    }

    fn runners(&self) -> usize {
        self.shards.iter().filter(|runs| **runs).count()
    }
}

/// Handle by which a shard's pass requests sums.
#[derive(Clone)]
pub struct ShardHandle {
    turns: Arc<TurnTaker>,
    shard: usize,
    number: usize,
}

kolo_comm::opaque_debug!(ShardHandle { shard });

impl ShardHandle {
    /// The turns that it takes part in.
    pub fn turns(&self) -> &TurnTaker {
        &self.turns
    }

    /// Waits until all shards of all ranks have reached the same sum, and returns it. If the step has failed
    /// it returns `own`, so that the pass ends, and [`TurnTaker::end`] returns the error.
    pub fn sum(&self, request: SumRequest, own: Vec<f64>) -> Vec<f64> {
        let mut state = self.turns.state.lock();
        if !self.agrees(&mut state, Some(request)) {
            return own;
        }
        state.own[self.shard] = Some(own.clone());
        if self.number + 1 == self.turns.runners() {
            state.add(request.len);
            state.turn = 0;
        } else {
            state.turn = self.number + 1;
        }
        self.turns.changed.notify_all();
        self.wait(&mut state);
        if state.failure.is_some() { own } else { state.sum.clone() }
    }

    fn wait(&self, state: &mut MutexGuard<'_, State>) {
        let waits = |state: &mut State| state.turn != self.number && state.failure.is_none();
        self.turns.changed.wait_while(state, waits);
    }

    /// Returns true if this shard needs the same sum as the first one (`None`: no more); else the step
    /// fails.
    fn agrees(&self, state: &mut State, request: Option<SumRequest>) -> bool {
        if state.failure.is_some() || state.exchange.is_none() {
            return false;
        }
        if self.number == 0 {
            state.request = request;
        }
        if state.request == request {
            return true;
        }
        let needs = |request: Option<SumRequest>| {
            request.map_or("nothing more".into(), |request| request.to_string())
        };
        let (first, this) = (needs(state.request), needs(request));
        state.failure = Some(Error::Setting(format!(
            "shards in step part: one needs the sum of {first}, another needs one of {this}; every shard must take the same way \
             through the model"
        )));
        self.turns.changed.notify_all();
        false
    }
}

/// A shard that computes. If it is dropped before [`Runner::leave`], as by an error or a panic, the step
/// fails.
#[derive(Debug)]
pub struct Runner {
    handle: ShardHandle,
    over: bool,
}

impl Runner {
    /// Handle by which the shard requests sums.
    pub fn handle(&self) -> &ShardHandle {
        &self.handle
    }

    /// Ends the shard's passes: the next one's turn.
    pub fn leave(mut self) {
        self.over = true;
        let turns = &self.handle.turns;
        let mut state = turns.state.lock();
        if self.handle.agrees(&mut state, None) {
            state.turn = self.handle.number + 1;
            turns.changed.notify_all();
        }
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        if !self.over {
            self.handle.turns.fail(Error::Setting("a shard's pass has ended before its time".into()));
        }
    }
}

impl State {
    fn add(&mut self, len: usize) {
        let Some(exchange) = &mut self.exchange else { return };
        match exchange.sum(len, &self.own) {
            Ok(sum) => self.sum = sum,
            Err(error) => self.failure = Some(error),
        }
    }
}
