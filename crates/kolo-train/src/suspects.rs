//! Detection of a step that ends worker after worker, such as a poisoned sample's, to stop trying it.

use std::collections::BTreeSet;
use std::ops::Range;

use kolo_comm::schedule::words::first_names;
use kolo_data::{DataSet, Part};
use kolo_ddp::Sampler;
use kolo_elastic::WRONG_INPUT;
use serde::{Deserialize, Serialize};

/// Names the training samples of a shard for people: by their files, or else by the numbers that errors of
/// the data have.
pub(crate) fn listed<D: DataSet + ?Sized>(data: &D, samples: &[usize]) -> String {
    let name = |index: &usize| {
        let number = || data.origin(Part::Train, *index).1.to_string();
        data.sample_name(Part::Train, *index).unwrap_or_else(number)
    };
    first_names(samples.iter().map(name), LISTED)
}

/// Number of failed workers that condemn a step.
const ENOUGH: usize = 2;
/// Most samples of a shard to list.
const LISTED: usize = 100;
/// Signals that result from a process's own fault; others come from outside.
const OWN_SIGNALS: [&str; 6] = ["SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP"];

/// The workers that have failed in the present step, as far as one rank knows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Suspects {
    step: u64,
    /// The end of each failed worker.
    failures: Vec<String>,
    /// Shards that all of them had, as far as known.
    shards: Option<BTreeSet<usize>>,
}

impl Suspects {
    /// Records that a worker with these shards failed in a step, from 0; `how` is the launcher's message. A
    /// worker that was ended from outside proves nothing against the step.
    pub(crate) fn note(&mut self, step: u64, how: &str, shards: Option<Range<usize>>) {
        let is_own =
            how.contains("exited with code") || OWN_SIGNALS.iter().any(|signal| how.contains(signal));
        if !is_own {
            return;
        }
        if self.step != step {
            *self = Suspects { step, ..Suspects::default() };
        }
        self.failures.push(how.into());
        let new: Option<BTreeSet<usize>> = shards.map(Iterator::collect);
        self.shards = match (self.shards.take(), new) {
            (Some(before), Some(new)) => Some(&before & &new),
            (before, new) => before.or(new),
        };
    }

    /// Selects the most complete knowledge of several ranks.
    pub(crate) fn best(all: impl IntoIterator<Item = Suspects>) -> Suspects {
        all.into_iter().max_by_key(|one| (one.step, one.failures.len())).unwrap_or_default()
    }

    /// Returns the reason not to try the step again, once enough workers have failed over its samples.
    pub(crate) fn verdict<D: DataSet + ?Sized>(
        &self,
        step: u64,
        sampler: &Sampler,
        data: &D,
    ) -> Option<String> {
        let is_input = self.failures.iter().any(|how| how.ends_with(WRONG_INPUT));
        let is_poisoned = self.step == step && (is_input || self.failures.len() >= ENOUGH);
        if !is_poisoned || self.shards.as_ref().is_some_and(BTreeSet::is_empty) {
            return None;
        }
        let (epoch, step_in_epoch) = sampler.position(step);
        let order = sampler.epoch(epoch);
        let samples = self
            .shards
            .iter()
            .flatten()
            .map(|shard| format!("shard {shard}: {}", listed(data, &order.shard(step_in_epoch, *shard))));
        let samples = samples.collect::<Vec<_>>().join("; ");
        let about =
            if samples.is_empty() { String::new() } else { format!("; the samples in question: {samples}") };
        Some(format!(
            "step {step} (epoch {}, step {step_in_epoch} of it, counted from 0) has ended {} ({}){about}",
            epoch + 1,
            if self.failures.len() == 1 { "a worker" } else { "one worker after another" },
            self.failures.join("; "),
        ))
    }
}

#[cfg(test)]
mod tests {
    use kolo_data::{ItemSet, Split};

    use super::*;

    const PANIC: &str = "rank 1 (node0/1.0) exited with code 101";

    fn sampler() -> Sampler {
        Sampler::new(40, 2, 4, 7).unwrap()
    }

    fn data() -> ItemSet<(), ()> {
        ItemSet::new(|_| ()).with(Part::Train, 40, |_| Some(()))
    }

    #[test]
    fn two_failures_over_the_same_samples_name_them() {
        let mut suspects = Suspects::default();
        suspects.note(8, PANIC, Some(1..3));
        assert_eq!(suspects.verdict(8, &sampler(), &data()), None);
        suspects.note(8, "rank 0 (node0/0.0) was killed by SIGSEGV", Some(2..4));
        assert_eq!(suspects.verdict(9, &sampler(), &data()), None, "the step has been done");
        let words = suspects.verdict(8, &sampler(), &data()).unwrap();
        // Five steps in an epoch.
        let samples = sampler().epoch(1).shard(3, 2).to_vec();
        assert!(words.starts_with("step 8 (epoch 2, step 3 of it, counted from 0)"), "{words}");
        assert!(
            words.ends_with(&format!("samples in question: shard 2: {}, {}", samples[0], samples[1])),
            "{words}"
        );
        assert!(words.contains(PANIC) && words.contains("SIGSEGV"), "{words}");
    }

    /// An error of the data set, which knows nothing of the split, has the same numbers.
    #[test]
    fn samples_have_the_numbers_before_a_split() {
        let split = Split::new(data().into(), 0.5, 3).unwrap();
        let samples: Vec<usize> = (0..split.samples(Part::Train)).collect();
        let numbers: Vec<String> =
            samples.iter().map(|index| split.origin(Part::Train, *index).1.to_string()).collect();
        assert_eq!(listed(&split, &samples), numbers.join(", "));
        assert_ne!(listed(&split, &samples), listed(&data(), &samples));
    }

    #[test]
    fn wrong_input_needs_no_second_failure() {
        let mut suspects = Suspects::default();
        suspects.note(8, "rank 1 (node0/1.0) exited with code 2, wrong input", Some(1..2));
        let words = suspects.verdict(8, &sampler(), &data()).unwrap();
        assert!(words.contains("has ended a worker (rank 1 (node0/1.0) exited with code 2"), "{words}");
        assert!(words.contains("samples in question: shard 1: "), "{words}");
    }

    #[test]
    fn what_comes_from_outside_or_concerns_other_samples_proves_nothing() {
        let mut killed = Suspects::default();
        for _ in 0..9 {
            killed.note(8, "rank 1 (node0/1.0) was killed by SIGKILL", Some(0..4));
        }
        assert_eq!(killed, Suspects::default());
        let mut others = Suspects::default();
        others.note(8, PANIC, Some(0..1));
        others.note(8, PANIC, Some(1..2));
        assert_eq!(others.verdict(8, &sampler(), &data()), None);
        let mut later = Suspects::default();
        later.note(7, PANIC, Some(0..1));
        later.note(8, PANIC, Some(0..1));
        assert_eq!(later.verdict(8, &sampler(), &data()), None);
        // A newcomer knows of no failure.
        assert_eq!(Suspects::best([Suspects::default(), later.clone()]), later);
    }

    #[test]
    fn where_nobody_knows_whose_shards_they_were_the_step_is_named() {
        let mut suspects = Suspects::default();
        (0..2).for_each(|_| suspects.note(8, PANIC, None));
        let words = suspects.verdict(8, &sampler(), &data()).unwrap();
        assert!(words.starts_with("step 8 ") && !words.contains("samples"), "{words}");
    }
}
