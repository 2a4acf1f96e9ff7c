//! Data that differs between ranks.

use kolo_report::units::{count, plural};

use super::{Check, Found, Severity};
use crate::facts::Facts;
use crate::probes::DataFacts;

pub(super) const CHECK: Check =
    Check { name: "data differs", about: "a rank that reads other samples than rank 0", find };

fn find(facts: &Facts) -> Option<Found> {
    let mut read =
        facts.ranks.iter().enumerate().filter_map(|(rank, found)| Some((rank, found.data.as_ref().ok()?)));
    let (first, own) = read.next()?;
    // Ranks may have had time for different numbers of files.
    let (rank, other) = read.find(|(_, other)| DataFacts { read: own.read, ..(*other).clone() } != *own)?;
    let how = match (own.samples, own.test_samples) == (other.samples, other.test_samples) {
        true => {
            format!("{} to train on, but others: their hashes differ", plural(other.samples, "sample"))
        }
        false => format!(
            "{} to train and {} to test on, {} {} and {}",
            plural(other.samples, "sample"),
            count(other.test_samples),
            facts.name(first),
            count(own.samples),
            count(own.test_samples)
        ),
    };
    Some((
        Severity::Error,
        format!("{} has {how}", facts.name(rank)),
        "Who works on a shard must not matter: with other samples the weights depend on it, they are not the same on any number of \
         workers, and nothing in the run would tell."
            .into(),
        "Copy the same files to every node; `sha256sum` tells which one differs.".into(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;
    use crate::probes::SamplesRead;

    #[test]
    fn counts_are_reported_before_hashes() {
        let mut facts = example::hosts(2);
        facts.ranks[1].data.as_mut().unwrap().fingerprint = Some("cd".into());
        assert_eq!(
            find(&facts).unwrap().1,
            "rank 1 on b has 10,000 samples to train on, but others: their hashes differ"
        );
        facts.ranks[1].data.as_mut().unwrap().samples = 9_000;
        assert!(find(&facts).unwrap().1.contains("9,000 samples to train and 2,000"));
        let mut slower = example::hosts(2);
        slower.ranks[1].data.as_mut().unwrap().read = SamplesRead { read: 3, of: 12_000 };
        assert_eq!(find(&slower), None);
    }
}
