//! Choices of a job that affect its step, but neither its model nor its cluster.

use kolo_schedule::WireCost;

use crate::step::cut::Caps;
use crate::step::load::Pick;

/// Frequency of synchronization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// In every step.
    #[default]
    EveryStep,
    /// In every step, with updates that are one step late (`delayed:1`).
    Delayed,
    /// Once in this many steps; each worker is an island (`local`, `diloco`).
    Rounds(u64),
}

/// Choices of a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choices {
    /// Maximum sizes of buckets; `None` for those of the profile.
    pub caps: Option<Caps>,
    /// All-reduces that may be used.
    pub pick: Pick,
    /// Reduction of gradients. The profile includes it
    /// ([`StepProfile::sending`](crate::step::StepProfile::sending), or measured).
    pub reduction: WireCost,
    /// Frequency of synchronization.
    pub sync: Sync,
    /// Number of shards per worker in each step.
    pub accumulate: usize,
    /// True if the next forward pass begins while buckets are in transit.
    pub overlap_forward: bool,
    /// True if workers share the loss and agree on the step, as in Kolo.
    pub agree: bool,
}

impl Default for Choices {
    fn default() -> Self {
        Choices {
            caps: None,
            pick: Pick::Exact,
            reduction: WireCost::SUM,
            sync: Sync::EveryStep,
            accumulate: 1,
            overlap_forward: true,
            agree: true,
        }
    }
}
