//! A network that is too slow for the job.

use kolo_report::units::{bytes, number, rate, seconds};

use super::{Check, Found, Severity};
use crate::facts::Facts;
use crate::settings::Exchange;

pub(super) const CHECK: Check =
    Check { name: "network", about: "gradients that take longer on the wire than a step computes", find };

fn find(facts: &Facts) -> Option<Found> {
    // A collective uses both directions of a link at once.
    let carried =
        facts.links.iter().map(|link| link.both.min(link.there).min(link.back)).min_by(f64::total_cmp)?;
    let (model, step) = (facts.model()?, facts.step_seconds()?);
    if facts.settings.exchange == Exchange::Less {
        return None;
    }
    // Minimum number of bytes that each node sends and receives (Patarasu & Yuan 2009, theorem 1).
    let nodes = facts.nodes as f64;
    let sent = 2.0 * (nodes - 1.0) / nodes * model.gradient_bytes as f64;
    let wire = sent / carried;
    if wire < step {
        return None;
    }
    Some((
        Severity::Warning,
        format!(
            "the gradient takes at least {} on the wire each step, in which workers compute for {}",
            seconds(wire),
            seconds(step)
        ),
        format!(
            "Each of {} nodes sends {} a step over links of {}. Communication hides behind computing, and there is not enough of it: \
             a step takes {} times as long as its computing.",
            facts.nodes,
            bytes(sent),
            rate(carried),
            number(wire / step)
        ),
        "Let workers compute more between two sums (more or larger shards: --shards, --batch-size), send less (--reduction bf16, \
         powersgd:rank=4), synchronize rarely (--sync diloco:H=50), or take fewer nodes: with the same --shards the bits stay the \
         same."
            .into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn the_wire_is_compared_with_the_computing() {
        let mut facts = example::hosts(2);
        facts.links[0].both = 10e6;
        let (_, what, why, _) = find(&facts).unwrap();
        assert_eq!(
            what,
            "the gradient takes at least 31 ms on the wire each step, in which workers compute for 8.2 ms"
        );
        assert!(why.contains("3.78 times as long"), "{why}");
        facts.settings.shares = vec![8, 8];
        assert_eq!(find(&facts), None, "eight shards in turn hide it");
    }
}
