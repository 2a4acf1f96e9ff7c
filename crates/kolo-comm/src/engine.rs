//! The native backend: builds schedules, caches them, and runs them over a transport.

mod windows;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use crate::backend::{Backend, NewWindow, OpenedWindow};
use crate::collective::Collective;
use crate::deadline::Deadline;
use crate::executor;
use crate::pace::Pace;
use kolo_rendezvous::{Error, Liveness};
use kolo_schedule::tree::Contributions;
use kolo_schedule::{
    ALGORITHMS, Algorithm, Choice, DType, Network, Op, Operation, Problem, Rank, Schedule, Topology, choose,
};
use kolo_transport::CollectiveKind;
use kolo_transport::{Call, Distance, Fingerprint, LINGER, Memory, Routes, WaitContext, WaitMode};

/// Properties that determine a schedule.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    operation: Operation,
    len: usize,
    dtype: DType,
    contributions: Arc<Contributions>,
}

/// A schedule and the algorithm that built it.
#[derive(Clone)]
struct Plan {
    schedule: Arc<Schedule>,
    /// Index in [`ALGORITHMS`].
    algorithm: usize,
}

/// A checked collective with its plan. Most calls repeat one of the last few, and a short collective
/// takes a tenth of a microsecond: comparing is faster than checking and planning again.
struct Prepared {
    collective: Collective,
    elements: usize,
    dtype: DType,
    plan: Plan,
    call: Fingerprint,
}

/// Number of recent calls that a new call is compared with.
const RECENT: usize = 4;

/// The last few different calls.
#[derive(Default)]
struct RecentCalls {
    calls: Vec<Prepared>,
    /// Index of the one that the next call replaces.
    oldest: usize,
}

impl RecentCalls {
    /// Keeps a call in place of the oldest one, and returns its index.
    fn keep(&mut self, prepared: Prepared) -> usize {
        if self.calls.len() < RECENT {
            self.calls.push(prepared);
            return self.calls.len() - 1;
        }
        let index = self.oldest;
        self.calls[index] = prepared;
        self.oldest = (index + 1) % RECENT;
        index
    }
}

/// Number of cached schedules. Training repeats a few shapes; ever new lengths clear the cache.
const KEPT: usize = 1024;

/// Number of elements from which a sum is long for [`Backend::prefer`]. The time of shorter sums is all
/// latency, which the model predicts well.
const LONG: usize = 16 * 1024;

/// Kolo's own backend.
pub(crate) struct Engine {
    rank: Rank,
    /// The job's rank of each rank of the group.
    members: Arc<[Rank]>,
    topology: Arc<Topology>,
    routes: Routes,
    liveness: Arc<Liveness>,
    deadline: Deadline,
    algorithm: Option<&'static Algorithm>,
    /// False if sums that the forced algorithm cannot add are refused.
    is_optional: bool,
    warned: Cell<bool>,
    preferred: Option<&'static Algorithm>,
    network: Network,
    one_each: Arc<Contributions>,
    sequence: u32,
    plans: HashMap<Key, Plan>,
    recent: RecentCalls,
}

impl Engine {
    pub(crate) fn new(
        rank: Rank,
        members: Arc<[Rank]>,
        topology: Arc<Topology>,
        routes: Routes,
        liveness: Arc<Liveness>,
        deadline: Deadline,
    ) -> Self {
        let one_each = Arc::new(Contributions::one_each(members.len()));
        let (network, plans) = (Network::default(), HashMap::new());
        let (algorithm, is_optional, warned) = (None, false, Cell::new(false));
        let (preferred, sequence) = (None, 0);
        Engine {
            rank,
            members,
            topology,
            routes,
            liveness,
            deadline,
            algorithm,
            is_optional,
            warned,
            preferred,
            network,
            one_each,
            sequence,
            plans,
            recent: RecentCalls::default(),
        }
    }

    fn forget_plans(&mut self) {
        self.plans.clear();
        self.recent = RecentCalls::default();
    }

    /// Lets sums that the forced algorithm cannot add take another one.
    pub(crate) fn make_optional(&mut self) {
        self.is_optional = true;
    }

    /// Returns the forced algorithm, if it implements the operation. The user forces one for all-reduces;
    /// other operations use it where they can.
    fn forced(&self, problem: &Problem<'_>) -> Option<&'static Algorithm> {
        let forced = self.algorithm?;
        let is_sum = *problem.operation == Operation::AllReduce;
        let problem = (forced.build)(problem).err().filter(|_| self.is_optional || !is_sum);
        let warns = is_sum && self.rank == Rank(0);
        if let Some(reason) = problem.filter(|_| warns && !self.warned.replace(true)) {
            log::warn!("algorithm {} cannot be used here: {reason}; Kolo chooses another one", forced.name);
        }
        problem.is_none().then_some(forced)
    }

    /// Returns the preferred algorithm, if the choice for a long sum may fall on it.
    fn preferred(&self, problem: &Problem<'_>, choice: &Choice) -> Option<&'static Algorithm> {
        let is_long_sum = problem.operation.adds() && problem.len >= LONG;
        let may_be_picked =
            |algorithm: &&Algorithm| choice.predicted.iter().any(|(name, _)| *name == algorithm.name);
        self.preferred.filter(|_| is_long_sum).filter(may_be_picked)
    }

    fn contributions<'a>(&'a self, collective: &'a Collective) -> &'a Arc<Contributions> {
        match collective {
            Collective::TreeSum { contributions, .. } => contributions,
            _ => &self.one_each,
        }
    }

    fn problem<'a>(
        &'a self,
        operation: &'a Operation,
        len: usize,
        contributions: &'a Contributions,
        dtype: DType,
    ) -> Problem<'a> {
        let segment = self.network.longest_message(&self.topology) / dtype.size();
        Problem { operation, rank: self.rank, len, contributions, topology: &self.topology, segment }
    }

    fn build(algorithm: &Algorithm, problem: &Problem<'_>) -> Result<Schedule, Error> {
        let unusable = |why: &str| {
            let (algorithm, reason) = (algorithm.name.into(), why.into());
            Error::AlgorithmUnusable { algorithm, reason }
        };
        (algorithm.build)(problem).map_err(unusable)
    }

    /// Returns the index of the recent call that this one repeats; prepares and stores a new call.
    #[inline]
    fn find(&mut self, collective: &Collective, memory: &Memory<'_>) -> Result<usize, Error> {
        let same = |call: &Prepared| {
            call.elements == memory.elements && call.dtype == memory.dtype && call.collective == *collective
        };
        if let Some(index) = self.recent.calls.iter().position(same) {
            return Ok(index);
        }
        let prepared = self.prepare(collective, memory)?;
        Ok(self.recent.keep(prepared))
    }

    /// Checks a call and finds its plan.
    fn prepare(&mut self, collective: &Collective, memory: &Memory<'_>) -> Result<Prepared, Error> {
        let (rank, world, dtype) = (self.rank, self.members.len(), memory.dtype);
        let elements = memory.elements;
        collective.check(rank, world, elements)?;
        let len = match collective {
            Collective::TreeSum { len, .. } => *len,
            _ => elements,
        };
        let plan = self.look_up(collective, len, dtype)?;
        let kind = collective.kind();
        let call = Fingerprint::new(&Call {
            kind,
            op: if kind == CollectiveKind::Exchange { Op::Sum } else { collective.op() },
            root: collective.root(),
            readers: collective.readers_checksum(),
            dtype,
            elements: collective.agreed_len(rank, world, elements) as u64,
            algorithm: plan.algorithm as u8,
        });
        Ok(Prepared { collective: collective.clone(), elements, dtype, plan, call })
    }

    fn look_up(&mut self, collective: &Collective, len: usize, dtype: DType) -> Result<Plan, Error> {
        let (operation, contributions) = (collective.operation(), self.contributions(collective).clone());
        let key = Key { operation, len, dtype, contributions };
        if let Some(plan) = self.plans.get(&key) {
            return Ok(plan.clone());
        }
        let plan = self.plan(collective, &key)?;
        if self.plans.len() >= KEPT {
            self.plans.clear();
        }
        self.plans.insert(key, plan.clone());
        Ok(plan)
    }

    fn plan(&self, collective: &Collective, key: &Key) -> Result<Plan, Error> {
        let (len, dtype) = (key.len, key.dtype);
        let problem = self.problem(&key.operation, len, &key.contributions, dtype);
        let algorithm = match self.forced(&problem) {
            Some(forced) => forced,
            None => {
                let choice = choose(&problem, dtype, &self.network);
                let (preferred, why) = (self.preferred(&problem, &choice), choice.reason());
                let picked = preferred.unwrap_or(choice.algorithm);
                log::debug!("{} of {len} {dtype}: {} ({why})", collective.name(), picked.name);
                picked
            }
        };
        let schedule = Arc::new(Self::build(algorithm, &problem)?);
        let algorithm = ALGORITHMS.iter().position(|entry| std::ptr::eq(entry, algorithm)).unwrap_or(0);
        Ok(Plan { schedule, algorithm })
    }
}

impl Backend for Engine {
    fn run(&mut self, collective: &Collective, memory: &Memory<'_>, mode: WaitMode) -> Result<(), Error> {
        let index = self.find(collective, memory)?;
        let Prepared { plan, call, .. } = &self.recent.calls[index];
        let sequence = match collective {
            Collective::Exchange { .. } => 0,
            _ => {
                let next = self.sequence.wrapping_add(1);
                std::mem::replace(&mut self.sequence, next)
            }
        };
        let (call, timeout) = (call.after(sequence), self.deadline.limit());
        let wait = WaitContext::new(self.rank, &self.members, call, mode, timeout, &self.liveness);
        let result = executor::run(&plan.schedule, memory, collective.op(), &mut self.routes, &wait);
        self.deadline.over(wait.began.get(), &result);
        result
    }

    fn name(&self) -> &'static str {
        self.routes.name()
    }

    fn reach(&self) -> Distance {
        self.routes.reach()
    }

    fn runs_on(&mut self, collective: &Collective, memory: &Memory<'_>) -> Result<bool, Error> {
        let Some((_, range)) = memory.result() else { return Ok(true) };
        let index = self.find(collective, memory)?;
        Ok(self.recent.calls[index].plan.schedule.writes_only(range))
    }

    fn opens_windows(&mut self) -> bool {
        self.algorithm.is_none() && self.routes.in_place().is_some()
    }

    fn open_windows(
        &mut self,
        windows: &[NewWindow<'_>],
        mode: WaitMode,
    ) -> Result<Vec<OpenedWindow>, Error> {
        self.open(windows, mode)
    }

    fn finish(&mut self) {
        let gone =
            |peer: Rank| self.liveness.failure().is_some() || self.liveness.has_left(self.members[peer.0]);
        self.routes.drain(&gone, Instant::now() + LINGER);
    }

    fn explain(&mut self, collective: &Collective, elements: usize, dtype: DType) -> Option<Choice> {
        let operation = collective.operation();
        let contributions = self.contributions(collective);
        let problem = self.problem(&operation, elements, contributions, dtype);
        let choice = choose(&problem, dtype, &self.network);
        let chosen = self.forced(&problem).or_else(|| self.preferred(&problem, &choice));
        Some(Choice { algorithm: chosen.unwrap_or(choice.algorithm), ..choice })
    }

    fn force(&mut self, algorithm: Option<&'static Algorithm>) -> Result<(), Error> {
        if let Some(forced) = algorithm.filter(|_| !self.is_optional) {
            let contributions = self.one_each.clone();
            Self::build(forced, &self.problem(&Operation::AllReduce, 1, &contributions, DType::F32))?;
        }
        self.algorithm = algorithm;
        self.forget_plans();
        Ok(())
    }

    fn prefer(&mut self, algorithm: Option<&'static Algorithm>) {
        self.preferred = algorithm;
        self.forget_plans();
    }

    fn streams(&self) -> (usize, usize) {
        self.routes.streams()
    }

    fn use_streams(&mut self, count: usize) {
        self.routes.use_streams(count);
    }

    fn network(&self) -> Network {
        self.network.clone()
    }

    fn learn(&mut self, network: Network) {
        self.network = network;
        self.forget_plans();
    }

    fn follow(&mut self, pace: Arc<Pace>) {
        self.deadline.follow(pace);
    }

    fn pace(&self) -> Option<Arc<Pace>> {
        self.deadline.pace()
    }
}
