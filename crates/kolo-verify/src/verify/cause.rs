//! The likely cause of differences between runs: a pure decision on the outcomes.

use std::fmt;

use super::axes::Run;
use super::compare::{Difference, Outcome};
use super::obstacle::keeps_tree;

/// A likely cause of differences between runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cause {
    /// The job does not even repeat itself.
    NotRepeatable,
    /// The global batch depends on the number of workers.
    Shards,
    /// The model is built from something that changes with the number of workers.
    Model,
    /// The algorithm, or the library, adds in another order.
    OrderOfSum(String),
    /// Each rank has running statistics of its own.
    Statistics,
    /// The step has other samples.
    Samples,
    /// The same weights give another loss.
    Forward,
    /// The same loss gives other gradients.
    Backward,
    /// The run differs after it was resumed.
    Resume,
    /// The result depends on something that Kolo alone decides, such as the bucket size.
    Kolo(&'static str),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::NotRepeatable => f.write_str(
                "the job differs from itself: something is random without a seed (weights, order, dropout), or is computed \
                 by several threads; seed it, and compute on one thread a worker",
            ),
            Cause::Shards => f.write_str(
                "the global batch follows the number of workers; fix it: `Config::shards`, or `--shards` of `kolo train`",
            ),
            Cause::Model => f.write_str(
                "the model is built from the rank, the number of workers or an unseeded generator; build it from a seed alone",
            ),
            Cause::OrderOfSum(who) => write!(
                f,
                "{who} adds gradients in an order that follows the number of workers, so that they are rounded otherwise; \
                 leave the choice to Kolo, or take an algorithm that keeps the tree (docs/collectives.md)"
            ),
            Cause::Statistics => f.write_str(
                "only running statistics differ, so each rank keeps its own; `Statistics::PerShard` (--batch-norm per-shard) \
                 makes them those of the job",
            ),
            Cause::Samples => f.write_str(
                "a step has other samples; take them from `Sampler`, by step and shard, not by rank, and drop none",
            ),
            Cause::Forward => f.write_str(
                "the same weights give another loss: the order of samples, augmentation or dropout follow the rank or a \
                 generator's state; key them by (seed, epoch, step, shard, sample) (`Sampler`, `Key`, `Dropout`)",
            ),
            Cause::Backward => f.write_str(
                "the same loss gives other gradients: what a shard computes depends on the rank, as a gradient that is \
                 changed outside of Kolo, or kernels that round differently with other threads or another processor",
            ),
            Cause::Resume => f.write_str(
                "only what is resumed from a checkpoint differs, so the checkpoint lacks something: state of an optimizer that \
                 `Optimizer::state` does not list, or what a transform or reduction of the program's own knows of earlier \
                 steps; list it, or do without it. If the program has none of its own it is a fault of Kolo; please report it",
            ),
            Cause::Kolo(what) => {
                write!(f, "it differs with the {what} alone, which must not matter: a fault of Kolo; please report it")
            }
        }
    }
}

/// Returns the likely cause of the differences among `outcomes`, of which the first is the reference; `None`
/// if all agree.
pub(crate) fn cause(outcomes: &[Outcome]) -> Option<Cause> {
    let differing: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.difference.is_some()).collect();
    let first = differing.first()?;
    if let Some(again) = differing.iter().find(|outcome| outcome.run.again) {
        return Some(match again.difference {
            Some(Difference::Shards { .. }) => Cause::Shards,
            _ => Cause::NotRepeatable,
        });
    }
    let difference = first.difference.as_ref()?;
    let is_shards = matches!(difference, Difference::Shards { .. });
    if let Some(who) = another_order(&differing).filter(|_| !is_shards) {
        return Some(Cause::OrderOfSum(who));
    }
    let common = common(outcomes);
    Some(match difference {
        Difference::Shards { .. } => Cause::Shards,
        Difference::Tensors(_) | Difference::Start { .. } => Cause::Model,
        Difference::Count { .. } | Difference::Length { .. } => Cause::Samples,
        Difference::Values { statistics_only: true, .. } => Cause::Statistics,
        Difference::Loss { .. } | Difference::Values { .. } if common == Common::Resumed => Cause::Resume,
        Difference::Loss { .. } | Difference::Values { .. } if common != Common::Workers => {
            Cause::Kolo(common.name())
        }
        Difference::Loss { .. } => Cause::Forward,
        Difference::Values { .. } => Cause::Backward,
    })
}

/// Returns the algorithm or library that adds in another order, if that explains every difference.
fn another_order(differing: &[&Outcome]) -> Option<String> {
    let who = |outcome: &Outcome| match &outcome.run.algorithm {
        Some(name) if !keeps_tree(name) => Some(format!("`{name}`")),
        _ if outcome.trace.start.transport == "mpi" => Some("MPI".to_string()),
        _ => None,
    };
    let all: Option<Vec<String>> = differing.iter().map(|outcome| who(outcome)).collect();
    all?.into_iter().next()
}

/// The choice that all differing runs have in common and no other run has.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Common {
    Workers,
    Transport,
    Algorithm,
    Buckets,
    Resumed,
    Tuned,
    Divided,
    Recomputed,
    Offloaded,
}

impl Common {
    fn name(self) -> &'static str {
        match self {
            Common::Workers => "number of workers",
            Common::Transport => "transport",
            Common::Algorithm => "algorithm",
            Common::Buckets => "size of buckets",
            Common::Resumed => "resumption",
            Common::Tuned => "tuning",
            Common::Divided => "division of state",
            Common::Recomputed => "activation checkpointing",
            Common::Offloaded => "state in a file",
        }
    }
}

fn common(outcomes: &[Outcome]) -> Common {
    let is = |property: &dyn Fn(&Run) -> bool| {
        outcomes.iter().all(|outcome| outcome.difference.is_some() == property(&outcome.run))
    };
    let differing = outcomes.iter().find(|outcome| outcome.difference.is_some()).map(|outcome| &outcome.run);
    let Some(one) = differing else { return Common::Workers };
    if is(&|run| run.workers > 1) {
        Common::Workers
    } else if differs_if_resumed(outcomes) {
        Common::Resumed
    } else if is(&|run| run.tuned) {
        Common::Tuned
    } else if is(&|run| run.divided.is_some()) {
        Common::Divided
    } else if is(&|run| run.recomputed) {
        Common::Recomputed
    } else if is(&|run| run.offloaded) {
        Common::Offloaded
    } else if is(&|run| run.cap == one.cap) {
        Common::Buckets
    } else if one.transport.is_some() && is(&|run| run.transport == one.transport) {
        Common::Transport
    } else if one.algorithm.is_some() && is(&|run| run.algorithm == one.algorithm) {
        Common::Algorithm
    } else {
        Common::Workers
    }
}

/// True if every differing run was resumed. Resumed runs that agree may have been lucky.
fn differs_if_resumed(outcomes: &[Outcome]) -> bool {
    outcomes.iter().all(|outcome| outcome.difference.is_none() || outcome.run.resumed_after.is_some())
}

#[cfg(test)]
mod tests {
    use super::super::compare::tests::trace;
    use super::*;

    fn run(workers: usize, cap: f64, transport: &str, algorithm: &str) -> Run {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_string());
        Run { transport: some(transport), algorithm: some(algorithm), ..Run::plain(workers, cap) }
    }

    /// Judges outcomes of one worker twice, of more workers, and of resumed runs; `differs` returns the
    /// difference of a run.
    fn judge(differs: impl Fn(&Run) -> Option<Difference>) -> Option<Cause> {
        let alone = run(1, 25.0, "", "");
        let runs = [
            alone.clone(),
            Run { again: true, ..alone.clone() },
            Run { resumed_after: Some(1), ..alone },
            run(1, 0.5, "", ""),
            run(2, 25.0, "shm", "direct"),
            run(2, 0.5, "tcp", ""),
            run(3, 25.0, "tcp", "direct"),
            run(3, 0.5, "shm", ""),
            run(3, 25.0, "shm", "ring"),
            Run { resumed_after: Some(1), ..run(3, 25.0, "tcp", "direct") },
        ];
        let outcome = |run: Run| Outcome { difference: differs(&run), run, trace: trace() };
        cause(&runs.map(outcome))
    }

    fn values(statistics_only: bool) -> Difference {
        Difference::Values { step: 0, tensor: "x".into(), statistics_only }
    }

    #[test]
    fn what_differs_and_where_say_why() {
        let when = |is: bool, difference: Difference| is.then_some(difference);
        assert_eq!(judge(|_| None), None);
        assert_eq!(
            judge(|run| when(run.again, Difference::Loss { step: 1, then: None })),
            Some(Cause::NotRepeatable)
        );
        let shards = |own| Difference::Shards { reference: 1, own };
        assert_eq!(judge(|run| when(run.workers > 1, shards(run.workers))), Some(Cause::Shards));
        let ring = |run: &Run| run.algorithm.as_deref() == Some("ring");
        assert_eq!(judge(|run| when(ring(run), values(false))), Some(Cause::OrderOfSum("`ring`".into())));
        assert_eq!(judge(|run| when(run.workers > 1, values(true))), Some(Cause::Statistics));
        assert_eq!(judge(|run| when(run.workers > 1, values(false))), Some(Cause::Backward));
        // Three workers only: still their number.
        assert_eq!(judge(|run| when(run.workers > 2, values(false))), Some(Cause::Backward));
        let loss = || Difference::Loss { step: 0, then: None };
        assert_eq!(judge(|run| when(run.workers > 1, loss())), Some(Cause::Forward));
        let start = || Difference::Start { tensor: "x".into() };
        assert_eq!(judge(|run| when(run.workers > 1, start())), Some(Cause::Model));
        let count = || Difference::Count { step: 0, reference: 8.0, own: 6.0 };
        assert_eq!(judge(|run| when(run.workers > 1, count())), Some(Cause::Samples));
        assert_eq!(judge(|run| when(run.cap == 0.5, values(false))), Some(Cause::Kolo("size of buckets")));
        let resumed = |run: &Run| run.resumed_after.is_some();
        assert_eq!(judge(|run| when(resumed(run), values(false))), Some(Cause::Resume));
        assert_eq!(judge(|run| when(resumed(run), loss())), Some(Cause::Resume));
        assert_eq!(judge(|run| when(resumed(run) && run.workers > 1, loss())), Some(Cause::Resume));
        let tcp = |run: &Run| run.transport.as_deref() == Some("tcp");
        assert_eq!(judge(|run| when(tcp(run), values(false))), Some(Cause::Kolo("transport")));
        let direct = |run: &Run| run.algorithm.as_deref() == Some("direct");
        assert_eq!(judge(|run| when(direct(run), loss())), Some(Cause::Kolo("algorithm")));
    }

    #[test]
    fn mpi_adds_in_its_own_order() {
        let mut outcomes = [1, 2].map(|workers| Outcome {
            run: run(workers, 25.0, "", ""),
            trace: trace(),
            difference: (workers > 1).then(|| values(false)),
        });
        outcomes[1].trace.start.transport = "mpi".into();
        assert_eq!(cause(&outcomes), Some(Cause::OrderOfSum("MPI".into())));
    }
}
