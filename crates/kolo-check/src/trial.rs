//! One shard's step, which a rank has tried in a process of its own.

use serde::{Deserialize, Serialize};

/// Ratio of the slowest rank's time to the fastest one's from which both try again: less than that of a
/// reported slow worker.
const CLEARLY: f64 = 1.2;
/// Seconds of a shard from which a short disturbance of its host changes little.
const UNDISTURBED: f64 = 3.0;

/// Result of one shard's step in a process of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Trial {
    /// The step succeeded.
    Taken(TrialStep),
    /// The process failed.
    Failed {
        /// Exit status as text.
        how: String,
        /// True if a signal ended it, as when the system runs out of memory.
        was_killed: bool,
        /// Last line of its error output.
        words: String,
    },
    /// No step was tried: the rank is a server and has no shards, or there is no data.
    NotTaken,
}

/// Cost of one shard's step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialStep {
    /// Bytes of the gradient.
    pub gradient_bytes: u64,
    /// Bytes of a checkpoint.
    pub checkpoint_bytes: u64,
    /// Seconds of a shard's forward and backward pass, data included.
    pub shard_seconds: f64,
    /// Median of the same, of which `shard_seconds` is the fastest: their difference is the noise of the
    /// host.
    pub usual_shard_seconds: f64,
    /// Seconds of the optimizer's update.
    pub update_seconds: f64,
    /// Peak memory of the process, in bytes.
    pub peak_bytes: u64,
}

impl Trial {
    /// Merges two trials of a rank: a failure stands, else the shorter times and the larger noise.
    pub fn best_of(self, now: Trial) -> Trial {
        match (self, now) {
            (Trial::Taken(before), Trial::Taken(now)) => Trial::Taken(TrialStep {
                shard_seconds: before.shard_seconds.min(now.shard_seconds),
                usual_shard_seconds: before.usual_shard_seconds.max(now.usual_shard_seconds),
                update_seconds: before.update_seconds.min(now.update_seconds),
                ..now
            }),
            (failed @ Trial::Failed { .. }, _) => failed,
            (_, now) => now,
        }
    }

    /// Returns true if some rank's shard takes clearly longer than another's, and so little time that a short
    /// disturbance of its host may be the cause.
    pub fn may_be_disturbed(trials: &[Trial]) -> bool {
        let times = trials.iter().filter_map(|trial| match trial {
            Trial::Taken(step) => Some(step.shard_seconds),
            _ => None,
        });
        let (least, most) =
            times.fold((f64::INFINITY, 0.0), |(least, most), time| (time.min(least), time.max(most)));
        most > CLEARLY * least && most < UNDISTURBED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_that_differ_are_repeated_and_the_fastest_counts() {
        let taken = |shard_seconds: f64| {
            let step = TrialStep {
                gradient_bytes: 4,
                checkpoint_bytes: 8,
                shard_seconds,
                usual_shard_seconds: shard_seconds,
                update_seconds: 0.1,
                peak_bytes: 1,
            };
            Trial::Taken(step)
        };
        let failed = || Trial::Failed { how: "has failed".into(), was_killed: false, words: String::new() };
        assert!(Trial::may_be_disturbed(&[taken(1.0), Trial::NotTaken, taken(1.3)]));
        for same in [&[taken(1.0), failed(), taken(1.1)][..], &[], &[taken(4.0), taken(5.2)]] {
            assert!(!Trial::may_be_disturbed(same), "{same:?}");
        }
        let Trial::Taken(merged) = taken(1.3).best_of(taken(1.1)) else { panic!("both were taken") };
        assert_eq!((merged.shard_seconds, merged.usual_shard_seconds), (1.1, 1.3));
        assert_eq!(Trial::NotTaken.best_of(taken(1.1)), taken(1.1));
        assert_eq!([failed().best_of(taken(1.1)), taken(1.1).best_of(failed())], [failed(), failed()]);
    }
}
