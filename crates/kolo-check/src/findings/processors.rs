//! Processors of several kinds.

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check = Check {
    name: "processors",
    about: "workers that compute on another kind of processor than the first",
    find,
};

fn find(facts: &Facts) -> Option<Found> {
    let mut workers = facts.workers();
    let (_, first) = workers.next()?;
    let (rank, other) = workers.find(|(_, other)| other.processor != first.processor)?;
    Some((
        Severity::Warning,
        format!("rank 0 computes on {}, {} on {}", first.processor, facts.name(rank), other.processor),
        "Burn's own kernels, such as its products of matrices, round differently on another kind: if the model calls \
         them, the bits depend on who has which shards (docs/exact.md)."
            .into(),
        "Take processors of one kind where bits count. Where they do not: --straggler rebalance evens out what they differ \
         in speed."
            .into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::probes::Processor;

    #[test]
    fn servers_may_have_another_kind() {
        let mut facts = example::hosts(3);
        facts.ranks[2].processor = Processor::of("Intel Xeon");
        assert!(find(&facts).unwrap().1.ends_with("rank 2 on c on Intel Xeon"));
        facts.ranks[2].is_server = true;
        assert_eq!(find(&facts), None);
    }
}
