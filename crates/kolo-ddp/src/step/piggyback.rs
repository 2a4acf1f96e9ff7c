//! What observers of a step tell all ranks: it travels with the agreement, for which the ranks meet anyway,
//! so nobody waits for it alone. The step does not know what it means.

/// How many flags observers have.
pub(crate) const FLAGS: usize = 2;

/// What this rank tells in one step. All ranks tell equally many numbers in the same step, or none.
#[derive(Default)]
pub(crate) struct Piggyback {
    /// Of each flag all ranks hear the largest.
    pub(crate) flags: [u8; FLAGS],
    /// Of this all ranks hear whether it is the same on all of them: a fingerprint of settings.
    pub(crate) settings: u64,
    /// Of these all ranks hear those of all.
    pub(crate) numbers: Option<Vec<f64>>,
    /// Of this, too, in a job that is tuned: seconds since the passes of the step before were over; 0 where
    /// that is not known.
    pub(crate) seconds: Option<f64>,
}

/// What all ranks have told in one step, the same on all of them.
#[derive(Default)]
pub(crate) struct Heard {
    /// The largest of each flag; `None` in a step that is not synchronised.
    pub(crate) flags: Option<[u8; FLAGS]>,
    /// Whether the ranks have told different fingerprints.
    pub(crate) settings_differ: bool,
    /// The numbers of all ranks, in rank order, if they have told some.
    pub(crate) numbers: Option<Vec<f64>>,
    /// What each shard of the job has told for the noise scale, where that is measured.
    pub(crate) by_shard: Vec<f64>,
    /// The seconds of all ranks, in rank order, in a job that is tuned.
    pub(crate) seconds: Vec<f64>,
}
