//! What a job may choose that changes its step, but neither its model nor its cluster.

use crate::step::cut::Caps;
use crate::step::reduction::{Pick, ReductionKind};

/// How often workers synchronise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// In every step.
    #[default]
    EveryStep,
    /// In every step, with updates that are one step late (`delayed:1`).
    Delayed,
    /// Once in so many steps, each worker an island (`local`, `diloco`).
    Rounds(u64),
}

/// The choices of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choices {
    /// Sizes of buckets; nothing for those of the profile.
    pub caps: Option<Caps>,
    /// Which all-reduces may be used.
    pub pick: Pick,
    /// How what is said of a gradient travels, and what it costs to hear it. The profile is one with this
    /// reduction ([`ReductionKind::applied`], or measured).
    pub reduction: &'static ReductionKind,
    /// How often workers synchronise.
    pub sync: Sync,
    /// Shards of a worker in each step.
    pub accumulate: usize,
    /// Whether the next forward pass begins while buckets are on their way.
    pub overlap_forward: bool,
    /// Whether workers tell each other the loss and agree on the step, as Kolo's do.
    pub agree: bool,
}

impl Default for Choices {
    /// Kolo's own.
    fn default() -> Self {
        Choices {
            caps: None,
            pick: Pick::Exact,
            reduction: &crate::step::reduction::REDUCTIONS[0],
            sync: Sync::EveryStep,
            accumulate: 1,
            overlap_forward: true,
            agree: true,
        }
    }
}
