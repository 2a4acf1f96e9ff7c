//! Each step is one sum over all shards, and its update is made before the next step's passes.

use super::exclusion::NO_ISLANDS;
use super::mode::{Made, Mode, ModeState, Passes};
use super::synchronization::Synchronization;
use super::traits::SyncTraits;
use crate::replica::core::Core;
use crate::replica::report::StepReport;
use kolo_optim::table::Entry;
use kolo_reduction::Error;
use kolo_step::Agreed;

pub(super) const EVERY_STEP: Entry<Synchronization> = Entry {
    name: "every-step",
    about: "all shards synchronize in every step: one model",
    settings: &[],
    make: |_| {
        Box::new(Synchronization {
            traits: SyncTraits::default(),
            excludes: &[NO_ISLANDS],
            make: |config, _, optimizer| {
                Ok(Made { config: config.clone(), optimizer, mode: Box::new(EveryStep) })
            },
        })
    },
};

/// The mode, which has no state of its own.
struct EveryStep;

impl Passes for EveryStep {}

impl ModeState for EveryStep {}

impl Mode for EveryStep {
    fn step(&mut self, core: &mut Core, rate: f64) -> Result<(StepReport, Agreed), Error> {
        core.step_of_all(rate, None)
    }
}
