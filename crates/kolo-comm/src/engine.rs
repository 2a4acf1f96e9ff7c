//! What does the work of a group's collectives: builds schedules, keeps them, runs them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::call::{Call, Operation};
use crate::element::{Element, Op};
use crate::error::Error;
use crate::executor;
use crate::liveness::{Liveness, Patience};
use crate::memory::Buffer;
use crate::rank::Rank;
use crate::schedule::{self, Algorithm, Problem, Schedule};
use crate::transport::Transport;
use crate::tree::Contributions;

/// One collective, with everything but the data.
#[derive(Clone, Debug)]
pub enum Collective {
    /// Every rank ends with the sum over all ranks.
    AllReduce(Op),
    /// Every rank ends with the sum of all parts of all ranks, added in tree order (see [`crate::tree`]).
    ///
    /// Part p of a rank's buffer is its node p: elements `p·len .. (p+1)·len`. Part 0 takes the result. The buffer
    /// may be longer than its parts.
    TreeSum {
        /// Who contributes what.
        contributions: Arc<Contributions>,
        /// Elements of one part.
        len: usize,
    },
    /// Rank r ends with the sum of everybody's chunk r, in its own chunk r; the rest is unspecified.
    ReduceScatter(Op),
    /// Every rank ends with chunk r of rank r, for all r.
    AllGather,
    /// Every rank ends with the root's buffer.
    Broadcast(Rank),
}

/// When a collective ran.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// When its first step began.
    pub started: Instant,
    /// When the buffer was this rank's again.
    pub ended: Instant,
}

/// What makes two schedules equal.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    kind: (u8, usize),
    len: usize,
    contributions: Arc<Contributions>,
}

/// Schedules kept for reuse. Training repeats a few shapes; whoever calls with ever new lengths starts over.
const KEPT: usize = 1024;

/// Bytes of a segment: small enough that results are fetched from the cache they were written to, large enough
/// that its handshake does not count.
const SEGMENT: usize = 512 * 1024;

pub(crate) struct Engine {
    pub(crate) rank: Rank,
    pub(crate) world: usize,
    pub(crate) transport: Box<dyn Transport>,
    pub(crate) liveness: Arc<Liveness>,
    pub(crate) timeout: Duration,
    pub(crate) algorithm: Option<&'static Algorithm>,
    pub(crate) one_each: Arc<Contributions>,
    sequence: u32,
    schedules: HashMap<Key, Arc<Schedule>>,
}

impl Engine {
    pub(crate) fn new(
        rank: Rank,
        world: usize,
        transport: Box<dyn Transport>,
        liveness: Arc<Liveness>,
        timeout: Duration,
        algorithm: Option<&'static Algorithm>,
    ) -> Self {
        let one_each = Arc::new(Contributions::one_each(world));
        let (sequence, schedules) = (0, HashMap::new());
        Engine { rank, world, transport, liveness, timeout, algorithm, one_each, sequence, schedules }
    }

    /// Runs a collective to its end. After a failure every later one fails in the same way.
    pub(crate) fn run<T: Element>(
        &mut self,
        collective: &Collective,
        buffer: &mut Buffer<T>,
    ) -> Result<Timing, Error> {
        let started = Instant::now();
        if let Some(error) = self.liveness.failure() {
            return Err(error);
        }
        let plan = self.plan(collective, buffer)?;
        let (schedule, len, call, op) = (plan.schedule, plan.len, plan.call, plan.op);
        self.sequence = self.sequence.wrapping_add(1);
        let deadline = started + self.timeout;
        let liveness = self.liveness.clone();
        let patience =
            Patience { here: self.rank, call, timeout: self.timeout, deadline, liveness: &liveness };
        executor::run(&schedule, buffer, len, op, self.world, &mut *self.transport, &patience)?;
        Ok(Timing { started, ended: Instant::now() })
    }

    fn plan<T: Element>(&mut self, collective: &Collective, buffer: &[T]) -> Result<Plan, Error> {
        let operation = match collective {
            Collective::AllReduce(op) => Operation::AllReduce(*op),
            Collective::TreeSum { .. } => Operation::AllReduce(Op::Sum),
            Collective::ReduceScatter(op) => Operation::ReduceScatter(*op),
            Collective::AllGather => Operation::AllGather,
            Collective::Broadcast(root) => Operation::Broadcast(*root),
        };
        let (contributions, len) = match collective {
            Collective::TreeSum { contributions, len } => (contributions.clone(), *len),
            _ => (self.one_each.clone(), buffer.len()),
        };
        self.check(collective, buffer.len())?;
        let call = Call { sequence: self.sequence, operation, dtype: T::DTYPE, elements: len as u64 };
        let op = match operation {
            Operation::AllReduce(op) | Operation::ReduceScatter(op) => op,
            _ => Op::Sum,
        };
        let schedule = self.schedule(operation, len, contributions, size_of::<T>())?;
        Ok(Plan { schedule, len, call, op })
    }

    fn check(&self, collective: &Collective, elements: usize) -> Result<(), Error> {
        let (world, rank) = (self.world, self.rank);
        let problem = match collective {
            Collective::Broadcast(root) if root.0 >= world => {
                format!("broadcast from {root}, but the group has {world} ranks")
            }
            Collective::TreeSum { contributions, .. } if contributions.world() != world => {
                format!("contributions of {} ranks in a group of {world}", contributions.world())
            }
            Collective::ReduceScatter(_) | Collective::AllGather if !elements.is_multiple_of(world) => {
                format!("{elements} elements on {rank} do not divide into {world} equal chunks")
            }
            Collective::TreeSum { contributions, len } if elements < contributions.parts(rank) * len => {
                let parts = contributions.parts(rank);
                format!("{elements} elements on {rank} are less than {parts} parts of {len}")
            }
            _ => return Ok(()),
        };
        Err(Error::Invalid(problem))
    }

    fn schedule(
        &mut self,
        operation: Operation,
        len: usize,
        contributions: Arc<Contributions>,
        size: usize,
    ) -> Result<Arc<Schedule>, Error> {
        let kind = match operation {
            Operation::AllReduce(_) => (0, size),
            Operation::ReduceScatter(_) => (1, size),
            Operation::AllGather => (2, size),
            Operation::Broadcast(root) => (3, root.0),
        };
        let key = Key { kind, len, contributions };
        if let Some(schedule) = self.schedules.get(&key) {
            return Ok(schedule.clone());
        }
        let (rank, world, segment) = (self.rank, self.world, SEGMENT / size);
        let contributions = &key.contributions;
        let schedule = Arc::new(match operation {
            Operation::AllReduce(_) => {
                let algorithm = self.all_reduce_algorithm(contributions, len * size)?;
                (algorithm.build)(&Problem { rank, len, contributions, segment })
            }
            Operation::ReduceScatter(_) => schedule::reduce_scatter(rank, len, contributions, segment),
            Operation::AllGather => schedule::all_gather(rank, len, world, segment),
            Operation::Broadcast(root) => schedule::broadcast(rank, root, len, world, segment),
        });
        if self.schedules.len() >= KEPT {
            self.schedules.clear();
        }
        self.schedules.insert(key, schedule.clone());
        Ok(schedule)
    }

    fn all_reduce_algorithm(
        &self,
        contributions: &Contributions,
        bytes: usize,
    ) -> Result<&'static Algorithm, Error> {
        let shared_memory = self.transport.name() != "tcp";
        let Some(forced) = self.algorithm else {
            let (algorithm, reason) = schedule::choose(contributions, bytes, shared_memory);
            log::debug!("all-reduce of {bytes} bytes: {} ({reason})", algorithm.name);
            return Ok(algorithm);
        };
        match (forced.supports)(contributions) {
            Ok(()) => Ok(forced),
            Err(why) => Err(Error::Invalid(format!("algorithm {} cannot be used here: {why}", forced.name))),
        }
    }
}

struct Plan {
    schedule: Arc<Schedule>,
    /// Elements of one part.
    len: usize,
    call: Call,
    op: Op,
}
