//! A way to synchronize, as its line of the table makes it.

use super::exclusion::JobSetting;
use super::mode::Made;
use super::traits::SyncTraits;
use crate::config::Config;
use crate::error::Error;
use kolo_optim::Optimizer;

/// Makes a mode for a job of so many ranks, whose program has given an optimizer.
pub(super) type Make = fn(&Config, usize, Box<dyn Optimizer>) -> Result<Made, Error>;

/// A way to synchronize with its settings.
pub struct Synchronization {
    /// Its properties.
    pub traits: SyncTraits,
    /// The settings that it excludes, and why.
    pub(super) excludes: &'static [(JobSetting, &'static str)],
    /// Makes it for a job of so many ranks, whose program has given an optimizer.
    pub(super) make: Make,
}
