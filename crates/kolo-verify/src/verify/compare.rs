//! The first difference between two runs.

use std::fmt;

use kolo_comm::schedule::words::counted;
use kolo_ddp::verify::trace::{Step, Trace};

use super::axes::Run;

/// A completed run.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) run: Run,
    pub(crate) trace: Trace,
    /// The first difference from the reference run; `None` if all bits are the same.
    pub(crate) difference: Option<Difference>,
}

/// The first difference of a run from the reference run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Difference {
    /// Shards of a step.
    Shards { reference: usize, own: usize },
    /// Tensors of the model.
    Tensors(String),
    /// Values before the first step.
    Start { tensor: String },
    /// Samples of a step.
    Count { step: u64, reference: f64, own: f64 },
    /// The loss of a step, before which all values were the same, and the first differing parameter after it.
    Loss { step: u64, then: Option<String> },
    /// Values after a step whose loss was the same.
    Values { step: u64, tensor: String, statistics_only: bool },
    /// Number of steps.
    Length { reference: usize, own: usize },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Shards { reference, own } => {
                write!(f, "{} a step instead of {reference}", counted(own, "shard"))
            }
            Difference::Tensors(what) => write!(f, "another model: {what}"),
            Difference::Start { tensor } => write!(f, "parameter `{tensor}` before the first step"),
            Difference::Count { step, reference, own } => {
                write!(f, "step {step}, which has {} instead of {reference}", counted(own, "sample"))
            }
            Difference::Loss { step, then: None } => write!(f, "the loss of step {step}"),
            Difference::Loss { step, then: Some(tensor) } => {
                write!(f, "the loss of step {step}, and in parameter `{tensor}` after it")
            }
            Difference::Values { step, tensor, statistics_only: false } => {
                write!(f, "parameter `{tensor}` after step {step}")
            }
            Difference::Values { step, tensor, .. } => write!(f, "statistic `{tensor}` after step {step}"),
            Difference::Length { reference, own } => {
                write!(f, "{} instead of {reference}", counted(own, "step"))
            }
        }
    }
}

/// Compares a run with the reference run, in the order of a training: model, samples, loss, weights.
pub(crate) fn difference(reference: &Trace, own: &Trace) -> Option<Difference> {
    let (first, start) = (&reference.start, &own.start);
    if first.shards != start.shards {
        return Some(Difference::Shards { reference: first.shards, own: start.shards });
    }
    let mut tensors = first.tensors.iter().zip(&start.tensors);
    if let Some((theirs, ours)) = tensors.find(|(theirs, ours)| theirs.name != ours.name) {
        return Some(Difference::Tensors(format!("tensor `{}` instead of `{}`", ours.name, theirs.name)));
    }
    if first.tensors.len() != start.tensors.len() {
        let (own, reference) = (start.tensors.len(), first.tensors.len());
        return Some(Difference::Tensors(format!("{} instead of {reference}", counted(own, "tensor"))));
    }
    let mut tensors = first.tensors.iter().zip(&start.tensors);
    if let Some((_, tensor)) = tensors.find(|(theirs, ours)| theirs.print != ours.print) {
        return Some(Difference::Start { tensor: tensor.name.clone() });
    }
    let mut steps = reference.steps.iter().zip(&own.steps);
    if let Some(found) = steps.find_map(|(theirs, ours)| in_step(reference, theirs, ours)) {
        return Some(found);
    }
    let (reference, own) = (reference.steps.len(), own.steps.len());
    (reference != own).then_some(Difference::Length { reference, own })
}

fn in_step(reference: &Trace, theirs: &Step, ours: &Step) -> Option<Difference> {
    let step = ours.step;
    if theirs.count != ours.count {
        return Some(Difference::Count { step, reference: theirs.count, own: ours.count });
    }
    let pairs = theirs.prints.iter().zip(&ours.prints).zip(&reference.start.tensors);
    let differing = || pairs.clone().filter(|((theirs, ours), _)| theirs != ours).map(|(_, tensor)| tensor);
    // Report a parameter before a statistic, which follows from parameters but not the reverse.
    let named = differing().find(|tensor| !tensor.statistic).or_else(|| differing().next());
    if theirs.loss_bits != ours.loss_bits {
        return Some(Difference::Loss { step, then: named.map(|tensor| tensor.name.clone()) });
    }
    let named = named?;
    Some(Difference::Values { step, tensor: named.name.clone(), statistics_only: named.statistic })
}

#[cfg(test)]
pub(super) mod tests {
    use kolo_ddp::verify::trace::{Bits, Start, Tensor};

    use super::*;

    /// Two steps of a model with one parameter and one statistic.
    pub(in super::super) fn trace() -> Trace {
        let tensor = |name: &str, statistic| Tensor { name: name.into(), statistic, print: Bits(5) };
        let step = |step| Step {
            step,
            loss: 1.0,
            loss_bits: Bits(7),
            count: 8.0,
            prints: vec![Bits(step + 1), Bits(step + 2)],
        };
        let tensors = vec![tensor("bn.mean", true), tensor("fc.weight", false)];
        let start = Start {
            world_size: 1,
            shards: 4,
            islands: false,
            sharded: false,
            foreign: false,
            tunable: true,
            transport: "solo".into(),
            tensors,
        };
        Trace { start, steps: vec![step(0), step(1)] }
    }

    #[test]
    fn the_first_difference_is_the_one_that_is_told() {
        let found = |change: fn(&mut Trace)| {
            let mut own = trace();
            change(&mut own);
            difference(&trace(), &own).map(|difference| difference.to_string()).unwrap_or_default()
        };
        assert_eq!(found(|_| {}), "");
        // The transport is no difference of the job.
        assert_eq!(found(|own| own.start.transport = "shm".into()), "");
        assert_eq!(found(|own| own.start.shards = 2), "2 shards a step instead of 4");
        assert_eq!(
            found(|own| own.start.tensors[1].name = "fc2".into()),
            "another model: tensor `fc2` instead of `fc.weight`"
        );
        assert_eq!(found(|own| own.start.tensors.truncate(1)), "another model: 1 tensor instead of 2");
        assert_eq!(
            found(|own| own.start.tensors[1].print = Bits(6)),
            "parameter `fc.weight` before the first step"
        );
        assert_eq!(found(|own| own.steps[1].count = 4.0), "step 1, which has 4 samples instead of 8");
        assert_eq!(found(|own| own.steps[1].loss_bits = Bits(0)), "the loss of step 1");
        assert_eq!(
            found(|own| (own.steps[0].loss_bits, own.steps[0].prints[1]) = (Bits(0), Bits(0))),
            "the loss of step 0, and in parameter `fc.weight` after it"
        );
        assert_eq!(found(|own| own.steps[0].prints[0] = Bits(0)), "statistic `bn.mean` after step 0");
        assert_eq!(
            found(|own| own.steps[1].prints = vec![Bits(0), Bits(0)]),
            "parameter `fc.weight` after step 1"
        );
        assert_eq!(found(|own| own.steps.truncate(1)), "1 step instead of 2");
        assert_eq!(
            found(|own| {
                own.steps[1].loss_bits = Bits(0);
                own.steps[0].prints[1] = Bits(0);
            }),
            "parameter `fc.weight` after step 0"
        );
    }
}
