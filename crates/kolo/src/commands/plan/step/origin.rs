//! The step of one worker, from which a plan starts.

use super::other_profiles::OtherProfile;
use kolo_plan::step::{Caps, StepProfile, WireCost};

/// A profile and the known facts about its measurement.
pub(super) struct Origin {
    pub(super) profile: StepProfile,
    /// Cost of the reduction with which the profile was measured.
    pub(super) reduction: WireCost,
    /// Name and settings of that reduction.
    pub(super) reduction_name: String,
    /// Type in which passes compute.
    pub(super) precision: String,
    /// Shards that the worker computes in a step, if that is known.
    pub(super) shards: Option<usize>,
    /// Cores of the host, and the factor by which a step is slower if all of them compute.
    pub(super) cores: Option<(f64, f64)>,
    /// Buckets that a job would have, unless the profile has those of a job.
    pub(super) caps: Option<Caps>,
    /// Profiles with other options.
    pub(super) others: Vec<OtherProfile>,
}
