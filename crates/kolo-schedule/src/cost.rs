//! The cost of a collective is counted on its schedules: no algorithm states its own.
//!
//! As in the literature, counts are those of the critical path: messages that wait for each other, elements
//! that pass one link one after another, and additions. Each count is the duration of a
//! [simulation](crate::simulate()) in which nothing else takes time. In large worlds a sample represents all
//! ranks.

use crate::algorithm::Algorithm;
use crate::algorithms::LINE;
use crate::messages::Messages;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::rank::Rank;
use crate::sample::Sample;
use crate::simulate::{LinkTimes, Simulation, Times, Usage};
use crate::topology::Topology;

/// Numbers of segments for which schedules are built. A long collective is a pipeline of segments: it takes
/// the first segment through all stages, and every further segment through the slowest stage. The cost of
/// an element is therefore a + b/m for m segments. Two schedules, of `FEW` and of `MANY` segments,
/// determine a and b; longer schedules need not be built.
const FEW: usize = 6;
const MANY: usize = 12;

/// Messages and elements over one kind of link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// Number of messages that wait for each other. A range counts as one message, however it is segmented.
    pub messages: f64,
    /// Number of messages that the busiest rank sends and receives, counted in the same way.
    pub handled: f64,
    /// Number of elements that pass the busiest link in both directions at once, per direction. A link is a
    /// rank's within a node, and a node's between nodes.
    pub exchanged: f64,
    /// Number of elements that pass links in one direction, one after another.
    pub one_way: f64,
    /// Average share of the links that are busy while elements go one way.
    pub busy: f64,
    /// Number of these elements that are added in place in shared memory: reading is part of the addition.
    pub read_in_place: f64,
}

impl Default for Traffic {
    fn default() -> Self {
        Traffic { messages: 0.0, handled: 0.0, exchanged: 0.0, one_way: 0.0, busy: 1.0, read_in_place: 0.0 }
    }
}

/// Cost of an algorithm on a problem.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Traffic between ranks that share memory.
    pub near: Traffic,
    /// Traffic between nodes; the ranks of a node share one link.
    pub far: Traffic,
    /// Number of elements added to others, one after another.
    pub added: f64,
}

impl Cost {
    /// Returns the cost of an algorithm on a problem. The result is the same on all ranks, unless only the
    /// rank itself knows its messages (see [`Problem::seen_by`]).
    ///
    /// # Errors
    ///
    /// The algorithm's reason if it has no schedule for the problem.
    pub fn of(algorithm: &Algorithm, problem: &Problem<'_>) -> Result<Cost, &'static str> {
        let reference = problem.operation.root().unwrap_or(Rank(0));
        let problem = &problem.seen_by(reference).unwrap_or_else(|| problem.clone());
        let (sample, whole) = Sample::of(algorithm, problem)?;
        let (lines, world) = (LINE * problem.world(), problem.world());
        // The lengths of blocks are those of the operation.
        let in_blocks = matches!(problem.operation, Operation::ReduceToReaders(_));
        let is_measured = whole.participants.len() == world || problem.len >= lines;
        if is_measured || in_blocks || !problem.operation.adds() {
            return Self::of_sample(algorithm, problem, &sample, &whole);
        }
        // In a buffer this short most ranks own nothing, and the few owners do not represent the rest. A
        // longer buffer gives the cost per element.
        let longer = &Problem { len: lines, segment: lines, ..problem.clone() };
        let (sample, whole) = Sample::of(algorithm, longer)?;
        let cost = Self::of_sample(algorithm, longer, &sample, &whole)?;
        Ok(cost.of_elements(problem.len as f64 / lines as f64))
    }

    /// Returns the cost of the same messages with `times` as many elements.
    fn of_elements(self, times: f64) -> Self {
        let traffic = |traffic: Traffic| Traffic {
            exchanged: traffic.exchanged * times,
            one_way: traffic.one_way * times,
            read_in_place: traffic.read_in_place * times,
            ..traffic
        };
        Cost { near: traffic(self.near), far: traffic(self.far), added: self.added * times }
    }

    /// Returns the cost that the ranks of a sample have; `whole` holds their messages without segmentation.
    pub(crate) fn of_sample(
        algorithm: &Algorithm,
        problem: &Problem<'_>,
        sample: &Sample,
        whole: &Messages,
    ) -> Result<Cost, &'static str> {
        let cut = |segment: usize| -> Result<Volume, &'static str> {
            Ok(Volume::of(&sample.messages(algorithm, problem, segment)?, problem.topology))
        };
        let volume = match problem.len.div_ceil(problem.segment.max(1)) {
            0 | 1 => Volume::of(whole, problem.topology),
            2..=MANY => cut(problem.segment)?,
            _ => {
                let (few, many) = (cut(problem.len.div_ceil(FEW))?, cut(problem.len.div_ceil(MANY))?);
                let (at_few, at_many) = (1.0 / FEW as f64, 1.0 / MANY as f64);
                let at = problem.segment as f64 / problem.len as f64;
                Volume::between(many, few, (at - at_many) / (at_few - at_many))
            }
        };
        let (near, far) = messages_on_path(whole, problem.topology);
        Ok(Cost {
            near: traffic(near, whole.handled(false), volume.near),
            far: traffic(far, whole.handled(true), volume.far),
            added: volume.added,
        })
    }
}

/// Elements that pass one kind of link.
#[derive(Clone, Copy, Debug, Default)]
struct Passed {
    /// Number of all elements, one after another.
    total: f64,
    /// The same without the elements that are added in place.
    copied: f64,
    /// Number of all elements that pass while the busiest link is used in both directions.
    both: f64,
    /// Number of elements that pass while a link is used in one direction, on average.
    one_way: f64,
}

/// Elements that are moved and added one after another.
#[derive(Clone, Copy, Debug)]
struct Volume {
    near: Passed,
    far: Passed,
    added: f64,
}

impl Volume {
    fn of(messages: &Messages, topology: &Topology) -> Self {
        let passed = |far: bool| {
            let used = LinkTimes { latency: 0.0, per_element: 1.0 };
            let (near, far_used) =
                if far { (LinkTimes::default(), used) } else { (used, LinkTimes::default()) };
            let times = Times { near, far: far_used, add_per_element: 0.0 };
            let run = Simulation::run(messages, topology, &times, |message| message.len);
            let copied = match far {
                true => run.end,
                false => Simulation::run(messages, topology, &times, |message| message.copied).end,
            };
            let Usage { both, one_way } = run.usage(far);
            Passed { total: run.end, copied, both, one_way }
        };
        let add = Times { add_per_element: 1.0, ..Times::default() };
        let added = Simulation::run(messages, topology, &add, |_| 0).end;
        let far = if topology.nodes().len() > 1 { passed(true) } else { Passed::default() };
        Volume { near: passed(false), far, added }
    }

    /// Interpolates linearly between the volumes `from` at 0 and `to` at 1, at `position`.
    fn between(from: Self, to: Self, position: f64) -> Self {
        let at = |from: f64, to: f64| from + (to - from) * position;
        let passed = |from: Passed, to: Passed| Passed {
            total: at(from.total, to.total),
            copied: at(from.copied, to.copied),
            both: at(from.both, to.both),
            one_way: at(from.one_way, to.one_way),
        };
        Volume {
            near: passed(from.near, to.near),
            far: passed(from.far, to.far),
            added: at(from.added, to.added),
        }
    }
}

/// Returns the messages (near, far) on the path with the most messages between nodes, and among such paths
/// with the most within nodes.
fn messages_on_path(whole: &Messages, topology: &Topology) -> (f64, f64) {
    // Small enough that no number of messages within nodes counts as much as one between nodes.
    const LITTLE: f64 = 1.0 / (1u64 << 24) as f64;
    let latency = |latency| LinkTimes { latency, per_element: 0.0 };
    let times = Times { near: latency(LITTLE), far: latency(1.0), add_per_element: 0.0 };
    let end = Simulation::run(whole, topology, &times, |_| 0).end;
    (end.fract() / LITTLE, end.trunc())
}

fn traffic(messages: f64, handled: usize, passed: Passed) -> Traffic {
    let one_way = passed.total - passed.both;
    Traffic {
        messages,
        handled: handled as f64,
        exchanged: passed.both,
        one_way,
        busy: if one_way > 0.0 { (passed.one_way / one_way).min(1.0) } else { 1.0 },
        read_in_place: passed.total - passed.copied,
    }
}
