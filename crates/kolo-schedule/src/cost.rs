//! The cost of a collective is counted on its schedules: no algorithm states its own.
//!
//! Counts are those of the critical path, as in the literature: messages that wait for each other, elements
//! that pass one link one after another, additions. They are what the [simulation](crate::simulate()) takes
//! where nothing else takes time. In large worlds some ranks may stand for all.

use crate::algorithm::Algorithm;
use crate::algorithms::LINE;
use crate::messages::Messages;
use crate::problem::Problem;
use crate::rank::Rank;
use crate::sample::Sample;
use crate::simulate::{LinkTimes, Simulation, Times, Usage};
use crate::topology::Topology;

/// A long collective is a pipeline of segments: it takes the first one through all stages, and every further
/// one through the slowest stage. The cost of an element is therefore a + b/m for m segments, and a and b
/// follow from two schedules of so many segments. Longer schedules need not be built.
const FEW: usize = 6;
const MANY: usize = 12;

/// Messages and elements over one kind of link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// Messages that wait for each other. A long range counts as one message, in however many segments it
    /// travels.
    pub messages: f64,
    /// Messages that the busiest rank sends and receives, counted in the same way.
    pub handled: f64,
    /// Elements that pass the busiest link both ways at once, as many in each direction: a rank's link within
    /// a node, a node's between nodes.
    pub exchanged: f64,
    /// Elements that pass links one way, one after another.
    pub one_way: f64,
    /// The share of the links that are busy while elements go one way, on average.
    pub busy: f64,
    /// Those of all of them that are added where they lie, if memory is shared: reading them is part of
    /// adding.
    pub read_in_place: f64,
}

impl Default for Traffic {
    /// Nothing is sent.
    fn default() -> Self {
        Traffic { messages: 0.0, handled: 0.0, exchanged: 0.0, one_way: 0.0, busy: 1.0, read_in_place: 0.0 }
    }
}

/// What an algorithm costs on a problem.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Between ranks that share memory.
    pub near: Traffic,
    /// Between nodes; the ranks of a node share one link.
    pub far: Traffic,
    /// Elements added to others one after another.
    pub added: f64,
}

impl Cost {
    /// The cost of an algorithm on a problem. All ranks get the same, unless only the rank itself knows what
    /// it sends (see [`Problem::seen_by`]).
    ///
    /// # Errors
    ///
    /// The algorithm's reason if it has no schedule for the problem.
    pub fn of(algorithm: &Algorithm, problem: &Problem<'_>) -> Result<Cost, &'static str> {
        let reference = problem.operation.root().unwrap_or(Rank(0));
        let problem = &problem.seen_by(reference).unwrap_or_else(|| problem.clone());
        let (sample, whole) = Sample::of(algorithm, problem)?;
        let (lines, world) = (LINE * problem.world(), problem.world());
        if whole.participants.len() == world || !problem.operation.adds() || problem.len >= lines {
            return Self::of_sample(algorithm, problem, &sample, &whole);
        }
        // Of so short a buffer most ranks own nothing, and those that do cannot stand for them: a longer one
        // says what each element costs.
        let longer = &Problem { len: lines, segment: lines, ..problem.clone() };
        let (sample, whole) = Sample::of(algorithm, longer)?;
        let cost = Self::of_sample(algorithm, longer, &sample, &whole)?;
        Ok(cost.of_elements(problem.len as f64 / lines as f64))
    }

    /// The same messages with so many times the elements.
    fn of_elements(self, times: f64) -> Self {
        let traffic = |traffic: Traffic| Traffic {
            exchanged: traffic.exchanged * times,
            one_way: traffic.one_way * times,
            read_in_place: traffic.read_in_place * times,
            ..traffic
        };
        Cost { near: traffic(self.near), far: traffic(self.far), added: self.added * times }
    }

    /// The cost as the ranks of a sample show it; `whole` are their messages if none is cut into segments.
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

/// What passes one kind of link, in elements.
#[derive(Clone, Copy, Debug, Default)]
struct Passed {
    /// One after another in all.
    total: f64,
    /// What remains of it when nothing counts that is added where it lies.
    copied: f64,
    /// Of all, while the busiest link is used both ways.
    both: f64,
    /// While a link is used one way, on average.
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

    /// What grows evenly from one volume at 0 to another one at 1, at `position`.
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

/// The messages on the path with the most messages between nodes, and among such paths with the most within
/// nodes: (near, far).
fn messages_on_path(whole: &Messages, topology: &Topology) -> (f64, f64) {
    // So little that no number of messages within nodes counts as one between nodes.
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
