//! A batch that grows in the course of a run (Smith et al. 2018, "Don't decay the learning rate, increase
//! the batch size", [arXiv:1711.00489](https://arxiv.org/abs/1711.00489)). Where a schedule would cut the
//! learning rate, the batch becomes larger instead, which lowers the noise of a step as much and takes fewer
//! steps.
//!
//! The number of samples of every shard grows. The number of a step's shards does not change, nor does their
//! distribution, nor the order in which their gradients are added.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// After `epochs` epochs the batch becomes `factor` times as large. Written `epochs:factor`, as `30:2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BatchGrowth {
    /// Number of epochs before it, at least 1.
    pub epochs: usize,
    /// At least 2.
    pub factor: usize,
}

impl fmt::Display for BatchGrowth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.epochs, self.factor)
    }
}

impl From<BatchGrowth> for String {
    fn from(growth: BatchGrowth) -> Self {
        growth.to_string()
    }
}

impl FromStr for BatchGrowth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text.split_once(':').and_then(|(epochs, factor)| {
            Some(BatchGrowth { epochs: epochs.trim().parse().ok()?, factor: factor.trim().parse().ok()? })
        });
        let form = "it must be EPOCHS:FACTOR, two whole numbers, as 30:2 for twice the batch after 30 epochs";
        numbers.ok_or_else(|| format!("`{text}` says no growth of the batch; {form}"))
    }
}

impl TryFrom<String> for BatchGrowth {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// Epochs in which all full steps have the same number of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) first_epoch: usize,
    /// Steps of the whole run before it.
    pub(crate) first_step: u64,
    /// Samples a shard.
    pub(crate) batch: usize,
    /// Steps of each epoch.
    pub(crate) steps: usize,
}

/// Steps of the whole run after `epochs` epochs of `steps` steps each; saturates.
pub(crate) fn steps_after(before: u64, epochs: usize, steps: usize) -> u64 {
    before.saturating_add((epochs as u64).saturating_mul(steps as u64))
}

/// Returns the run's segments, of which the last has no end; an invalid growth is an error, as a message.
pub(crate) fn segments(
    samples: usize,
    batch: usize,
    growth: &[BatchGrowth],
    shards: usize,
) -> Result<Vec<Segment>, String> {
    let too_large = |batch: usize, factor: usize| {
        format!("{batch} samples a shard × {factor} on {shards} shards: a batch that large cannot be counted")
    };
    let global = batch.checked_mul(shards).ok_or_else(|| too_large(batch, 1))?;
    let first = Segment { first_epoch: 0, first_step: 0, batch, steps: samples.div_ceil(global) };
    let mut segments = vec![first];
    for growth in growth {
        let &Segment { first_epoch, first_step, batch, steps } = segments.last().unwrap_or(&first);
        let BatchGrowth { epochs, factor } = *growth;
        if factor < 2 {
            return Err(format!("batch growth {growth}: the factor must be at least 2"));
        }
        if epochs <= first_epoch {
            let rule = "each growth must come after the one before it, and after at least 1 epoch";
            return Err(format!("batch growth {growth}: {rule}"));
        }
        let grown = batch.checked_mul(factor).ok_or_else(|| too_large(batch, factor))?;
        let global = grown.checked_mul(shards).ok_or_else(|| too_large(batch, factor))?;
        segments.push(Segment {
            first_epoch: epochs,
            first_step: steps_after(first_step, epochs - first_epoch, steps),
            batch: grown,
            steps: samples.div_ceil(global),
        });
    }
    Ok(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_it_is_read() {
        let growth: BatchGrowth = "30:5".parse().unwrap();
        assert_eq!((growth, growth.to_string()), (BatchGrowth { epochs: 30, factor: 5 }, "30:5".into()));
        for wrong in ["30", "30:", "a:2", "30:2.5", "-1:2", "30:2:2"] {
            let error = wrong.parse::<BatchGrowth>().unwrap_err();
            assert!(error.contains(&format!("`{wrong}`")) && error.contains("EPOCHS:FACTOR"), "{error}");
        }
    }

    #[test]
    fn the_papers_schedule_takes_as_many_updates_as_it_says() {
        // Smith et al. 2018, section 5.1: batches of 128 of CIFAR-10's 50,000 images, five times as large
        // after 60, 120 and 160 of 200 epochs.
        let growth = [60, 120, 160].map(|epochs| BatchGrowth { epochs, factor: 5 });
        let found = segments(50_000, 32, &growth, 4).unwrap();
        let sizes: Vec<usize> = found.iter().map(|segment| 4 * segment.batch).collect();
        assert_eq!(sizes, [128, 640, 3200, 16_000]);
        let steps: Vec<usize> = found.iter().map(|segment| segment.steps).collect();
        assert_eq!(steps, [391, 79, 16, 4]);
        let updates = found[3].first_step + 40 * 4;
        // The paper counts about 29,000 of them, and about 80,000 if the learning rate decays instead.
        assert_eq!((updates, 200 * 391), (29_000, 78_200));
    }

    #[test]
    fn invalid_growths_are_reported() {
        let error = |batch, growth: &[(usize, usize)]| {
            let growth: Vec<BatchGrowth> =
                growth.iter().map(|&(epochs, factor)| BatchGrowth { epochs, factor }).collect();
            segments(100, batch, &growth, 4).unwrap_err()
        };
        assert!(error(8, &[(0, 2)]).contains("growth 0:2: each growth must come after"));
        assert!(error(8, &[(3, 2), (3, 2)]).contains("growth 3:2: each growth must come after"));
        assert!(error(8, &[(3, 1)]).contains("growth 3:1: the factor must be at least 2"));
        assert!(error(8, &[(3, 9), (4, usize::MAX)]).contains("cannot be counted"));
        assert!(error(usize::MAX, &[]).contains("cannot be counted"));
    }
}
