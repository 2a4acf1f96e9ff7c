//! Result of tuning.

use std::fmt;

use serde::Serialize;

use super::{Trial, TunedSetting};
use kolo_comm::schedule::seconds::Seconds;

/// The kept setting, and its gain. The same on all ranks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tuning {
    /// The setting of steps from now on.
    pub kept: TunedSetting,
    /// The setting with which tuning began.
    pub begun_with: TunedSetting,
    /// The slowest rank's seconds of a step with the kept setting; the median of the last comparison.
    pub seconds: f64,
    /// Those of a step with the first setting, measured just before.
    pub seconds_before: f64,
    /// Steps in which settings were tried.
    pub steps: u64,
    /// The tried settings, in this order.
    pub tried: Vec<Trial>,
    /// Bytes a second that the link of each rank carries, in rank order, if measured.
    pub link_rates: Option<Vec<f64>>,
    /// If it was not the first tuning: seconds of a step after the previous tuning, and when this one began.
    pub changed: Option<(f64, f64)>,
}

impl Tuning {
    /// Share of a step's time that is saved: 0.2 for a fifth.
    pub fn gain(&self) -> f64 {
        1.0 - self.seconds / self.seconds_before
    }
}

/// Formats it as `tuned in 41 steps: buckets of 1 MiB take 0.812 s a step, 12.3 % less than buckets of 4 MiB
/// (0.926 s)`.
impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tuning { kept, begun_with, steps, tried, .. } = self;
        let (seconds, seconds_before) = (Seconds(self.seconds), Seconds(self.seconds_before));
        if let Some((usual, now)) = self.changed {
            write!(f, "steps had come to take {} instead of {}; ", Seconds(now), Seconds(usual))?;
        }
        write!(f, "tuned in {steps} steps: ")?;
        match kept == begun_with {
            true => {
                write!(f, "{kept} stay, {seconds} a step; {} others are not better", tried.len() - 1)
            }
            false => {
                let gain = 100.0 * self.gain();
                write!(f, "{kept} take {seconds} a step, {gain:.1} % less than {begun_with} ")?;
                write!(f, "({seconds_before})")
            }
        }
    }
}
