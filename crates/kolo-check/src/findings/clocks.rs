//! Clocks that differ.

use kolo_report::units::seconds;

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check =
    Check { name: "clocks", about: "a clock that is a second or more from rank 0's", find };

/// Offset from which a finding is due, in seconds.
const APART: f64 = 1.0;

fn find(facts: &Facts) -> Option<Found> {
    let certain = |rank: usize| {
        let clock = facts.ranks[rank].clock;
        clock.ahead.abs() - clock.uncertainty
    };
    let rank = (0..facts.ranks.len()).max_by(|a, b| certain(*a).total_cmp(&certain(*b)))?;
    if certain(rank) < APART {
        return None;
    }
    let ahead = facts.ranks[rank].clock.ahead;
    let how = if ahead > 0.0 { "ahead of" } else { "behind" };
    Some((
        Severity::Warning,
        format!("the clock of {} is {} {how} rank 0's", facts.name(rank), seconds(ahead.abs())),
        "Whoever is rank 0 writes times into generations.jsonl, TensorBoard and claims to the run folder: after a recovery they \
         would jump, and logs of several nodes cannot be put in order."
            .into(),
        "Keep clocks by NTP on all hosts (chrony, systemd-timesyncd).".into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::probes::Clock;

    #[test]
    fn an_offset_within_the_uncertainty_is_no_finding() {
        let mut facts = example::hosts(2);
        facts.ranks[1].clock = Clock { ahead: -3.0, uncertainty: 0.01 };
        assert_eq!(find(&facts).unwrap().1, "the clock of rank 1 on b is 3 s behind rank 0's");
        facts.ranks[1].clock.uncertainty = 2.5;
        assert_eq!(find(&facts), None);
    }
}
