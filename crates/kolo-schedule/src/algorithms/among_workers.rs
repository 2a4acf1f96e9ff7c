//! Runs a reduction among the workers, for algorithms that do not support servers. The workers proceed as
//! if they were alone, and servers do nothing.

use crate::algorithm::Build;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::rank::Rank;
use crate::schedule::{Schedule, Source, Step};
use crate::topology::Topology;

/// Builds the schedule of one rank; if some ranks are servers, with `build` among the workers.
pub(super) fn among_workers(problem: &Problem<'_>, build: Build) -> Result<Schedule, &'static str> {
    if !problem.contributions.has_servers() {
        return build(problem);
    }
    if let Operation::ReduceToReaders(_) = problem.operation {
        return Err("it sums for readers only in groups without servers");
    }
    let workers: Vec<Rank> = problem.contributions.workers().collect();
    let (contributions, nodes): (_, Vec<usize>) = (
        &problem.contributions.of_workers(),
        workers.iter().map(|worker| problem.topology.node_of(*worker)).collect(),
    );
    let topology = &Topology::of_names(&nodes);
    let place = workers.iter().position(|worker| *worker == problem.rank);
    // A server builds the first worker's schedule, so that either all ranks have a schedule or none has.
    let rank = Rank(place.unwrap_or(0));
    let schedule = build(&Problem { rank, contributions, topology, ..problem.clone() })?;
    let named = |step: Step| renamed(step, &workers);
    let steps = if place.is_some() { schedule.steps.into_iter().map(named).collect() } else { Vec::new() };
    Ok(Schedule { steps })
}

/// Converts the ranks in a step from worker numbers to ranks of the whole group.
fn renamed(step: Step, workers: &[Rank]) -> Step {
    match step {
        Step::Send { to, range, copied } => Step::Send { to: workers[to.0], range, copied },
        Step::Receive { from, range } => Step::Receive { from: workers[from.0], range },
        Step::Reduce { range, sources, program, complete } => {
            let source = |source: &Source| match source {
                Source::Own(offset) => Source::Own(*offset),
                Source::From(from) => Source::From(workers[from.0]),
            };
            let sources = sources.iter().map(source).collect();
            Step::Reduce { range, sources, program, complete }
        }
        step @ Step::Copy { .. } => step,
    }
}
