//! Files of samples that there was no time to read.

use kolo_report::units::count;

use super::{Check, Found, Severity};
use crate::facts::Facts;

pub(super) const CHECK: Check =
    Check { name: "unread files", about: "files of samples that there was no time to read", find };

fn find(facts: &Facts) -> Option<Found> {
    let read = |(rank, facts): (usize, &crate::RankFacts)| Some((facts.data.as_ref().ok()?.read, rank));
    let (least, rank) = facts.workers().filter_map(read).min_by_key(|(read, _)| read.read)?;
    (least.read < least.of).then(|| {
        (
            Severity::Notice,
            format!("{} has read {} of {} samples, all good", facts.name(rank), count(least.read), count(least.of)),
            "A file that is no image ends the run when its turn comes.".into(),
            "Nothing, if you know the files. Else train with --skip-unreadable, which decodes all of them at the start."
                .into(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::probes::SamplesRead;

    #[test]
    fn the_rank_that_has_read_least_is_named() {
        let mut facts = example::one_host(3);
        for (rank, read) in [(0, 9_000), (1, 12_000), (2, 12_000)] {
            facts.ranks[rank].data.as_mut().unwrap().read = SamplesRead { read, of: 12_000 };
        }
        assert_eq!(find(&facts).unwrap().1, "rank 0 has read 9,000 of 12,000 samples, all good");
        facts.ranks[0].data.as_mut().unwrap().read = SamplesRead { read: 12_000, of: 12_000 };
        assert_eq!(find(&facts), None);
    }
}
