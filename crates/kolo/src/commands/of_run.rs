//! The options that choose a checkpoint of a run.

use clap::Args;
use kolo_weights::Which;

/// Options that choose one of a run's checkpoints.
#[derive(Args)]
pub(super) struct OfRun {
    /// Use the run's checkpoint after this many steps [default: the newest good one]
    #[arg(long)]
    step: Option<u64>,
    /// Use the run's best checkpoint by `kolo train --best-metric`
    #[arg(long, conflicts_with = "step")]
    best: bool,
}

impl OfRun {
    /// Returns the chosen checkpoint; `None` without an option.
    pub fn which(&self) -> Option<Which> {
        match self.step {
            Some(step) => Some(Which::Step(step)),
            None => self.best.then_some(Which::Best),
        }
    }
}
