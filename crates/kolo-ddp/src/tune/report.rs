//! What tuning has come to.

use std::fmt;

use serde::Serialize;

use super::{Trial, TunedSetting};

/// What tuning has kept, and by how much it is better. The same on all ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tuning {
    /// By what steps are run from now on.
    pub kept: TunedSetting,
    /// By what they were run when it began.
    pub begun_with: TunedSetting,
    /// Seconds of a step as it is kept, the slowest rank's; the median of the last comparison.
    pub seconds: f64,
    /// The same of a step as it was, measured just before.
    pub seconds_before: f64,
    /// Steps in which settings were tried.
    pub steps: u64,
    /// What was tried, in this order.
    pub tried: Vec<Trial>,
    /// Bytes a second that the link of each rank carries, in rank order, where that was measured.
    pub link_rates: Option<Vec<f64>>,
    /// Where it was not the first tuning: seconds that a step took after the one before, and those that it
    /// took when this one began.
    pub changed: Option<(f64, f64)>,
}

impl Tuning {
    /// How much less a step takes than it did: 0.2 for a fifth.
    pub fn gain(&self) -> f64 {
        1.0 - self.seconds / self.seconds_before
    }
}

/// As
/// `tuned in 41 steps: buckets of 1 MiB take 0.812 s a step, 12.3 % less than buckets of 4 MiB (0.926 s)`.
impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tuning { kept, begun_with, seconds, seconds_before, steps, tried, .. } = self;
        if let Some((usual, now)) = self.changed {
            write!(f, "steps had come to take {now:.3} s instead of {usual:.3} s; ")?;
        }
        write!(f, "tuned in {steps} steps: ")?;
        match kept == begun_with {
            true => {
                write!(f, "{kept} stay, {seconds:.3} s a step; {} others are not better", tried.len() - 1)
            }
            false => {
                let gain = 100.0 * self.gain();
                write!(f, "{kept} take {seconds:.3} s a step, {gain:.1} % less than {begun_with} ")?;
                write!(f, "({seconds_before:.3} s)")
            }
        }
    }
}
