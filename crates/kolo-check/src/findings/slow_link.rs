//! A link that is slower than the others, or in one direction.

use kolo_report::units::{rate, seconds};

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check = Check {
    name: "slow link",
    about: "a link, or one direction of it, with less than half of the others' rate",
    find,
};

/// Ratio to the other links' rate below which a link is slow.
const SLOW: f64 = 0.5;

/// Minimum share of a step's computing that the difference takes: on fast links small messages differ by
/// chance.
const LEAST_PART: f64 = 0.05;

/// One direction of a link: from, to, bytes per second.
type Way = (usize, usize, f64);

fn find(facts: &Facts) -> Option<Found> {
    let mut ways: Vec<Way> = facts
        .links
        .iter()
        .flat_map(|link| [(link.from, link.to, link.there), (link.to, link.from, link.back)])
        .collect();
    ways.sort_by(|a, b| a.2.total_cmp(&b.2));
    let (slowest, usual) = (*ways.first()?, ways[ways.len() / 2].2);
    // Each link counts by itself: one that is slow by chance must not hide the rank that truly slow ones
    // share.
    let is_slow = |way: &&Way| way.2 < SLOW * usual && matters(facts, way.2, usual);
    let slow: Vec<&Way> = ways.iter().filter(is_slow).collect();
    if slow.is_empty() {
        return None;
    }
    let (from, to, carried) = slowest;
    let common = culprit(&slow).map_or(String::new(), |rank| {
        let (sends, receives) = (slow.iter().any(|way| way.0 == rank), slow.iter().any(|way| way.1 == rank));
        let how = match (sends, receives) {
            (true, true) => "sends and receives",
            (true, false) => "sends",
            _ => "receives",
        };
        format!(" All {} slow ones are those over which {} {how}.", slow.len(), facts.name(rank))
    });
    let reverse = ways.iter().find(|way| way.0 == to && way.1 == from).map_or(0.0, |way| way.2);
    Some((
        Severity::Warning,
        format!("{} sends to {} at {}, where {} is usual", facts.name(from), facts.name(to), rate(carried), rate(usual)),
        format!(
            "The other way it is {}.{common} Each step waits for its slowest link.{}",
            rate(reverse),
            facts.model().map_or(String::new(), |model| {
                let time = |rate: f64| seconds(model.gradient_bytes as f64 / rate);
                format!(" The gradient takes {} over this one, {} over the others.", time(carried), time(usual))
            })
        ),
        "Look at that host's network: the speed its card has agreed on (ethtool), a full or limited interface (tc qdisc), what \
         else goes over it; KOLO_IFACE chooses another one. `kolo bench all-reduce` measures what the collectives make of it."
            .into(),
    ))
}

/// Returns true if the gradient takes noticeably longer over the slow link, compared to the computing of a
/// step.
fn matters(facts: &Facts, slow: f64, usual: f64) -> bool {
    let (Some(model), Some(step)) = (facts.model(), facts.step_seconds()) else { return true };
    model.gradient_bytes as f64 * (1.0 / slow - 1.0 / usual) > LEAST_PART * step
}

/// Returns the rank that all slow directions have in common, if there are several.
fn culprit(slow: &[&Way]) -> Option<usize> {
    let first = slow.first().filter(|_| slow.len() > 1)?;
    [first.0, first.1].into_iter().find(|rank| slow.iter().all(|way| way.0 == *rank || way.1 == *rank))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    /// Jobs of `count` hosts whose rank 1 sends at 100 Mbit/s.
    fn throttled(count: usize) -> Facts {
        let mut facts = example::hosts(count);
        for link in &mut facts.links {
            if link.from == 1 {
                link.there = 12.5e6;
            } else if link.to == 1 {
                link.back = 12.5e6;
            }
        }
        facts
    }

    #[test]
    fn one_direction_is_reported_with_the_other() {
        let (_, what, why, _) = find(&throttled(2)).unwrap();
        assert_eq!(what, "rank 1 on b sends to rank 0 on a at 100 Mbit/s, where 8.8 Gbit/s is usual");
        assert!(why.starts_with("The other way it is 8.8 Gbit/s. Each step"), "{why}");
    }

    #[test]
    fn the_rank_that_all_slow_ones_have_in_common_is_named() {
        let (_, _, why, _) = find(&throttled(4)).unwrap();
        assert!(why.contains("All 3 slow ones are those over which rank 1 on b sends."), "{why}");
    }

    #[test]
    fn a_link_that_is_slow_by_chance_hides_no_culprit() {
        let mut facts = throttled(4);
        // The gradient takes 0.35 ms longer over it, in a step of 8 ms.
        let noisy = facts.links.iter_mut().find(|link| link.from != 1 && link.to != 1).unwrap();
        noisy.there = 0.5e9;
        let (_, _, why, _) = find(&facts).unwrap();
        assert!(why.contains("All 3 slow ones are those over which rank 1 on b sends."), "{why}");
    }

    #[test]
    fn a_negligible_difference_is_no_finding() {
        let mut facts = example::hosts(2);
        facts.links[0].there = 0.5e9;
        assert_eq!(find(&facts), None, "a gradient of 310 kB");
        example::trial(&mut facts, 0).gradient_bytes = 46_800_000;
        assert!(find(&facts).is_some());
    }
}
