//! A way to synchronize, as its table entry builds it.

use super::exclusion::JobSetting;
use super::mode::Made;
use super::traits::SyncTraits;
use crate::config::Config;
use kolo_optim::Optimizer;
use kolo_reduction::Error;

/// Function that creates a mode for a job of that number of ranks, from the program's optimizer.
pub(super) type Make = fn(&Config, usize, Box<dyn Optimizer>) -> Result<Made, Error>;

/// A way to synchronize with its settings.
pub struct Synchronization {
    /// Properties of the mode.
    pub traits: SyncTraits,
    /// Settings that it excludes, with reasons.
    pub(super) excludes: &'static [(JobSetting, &'static str)],
    /// Function that creates the mode.
    pub(super) make: Make,
}

kolo_comm::opaque_debug!(Synchronization { traits });
