//! Messages of a step's observers to all ranks. They travel with the agreement, for which the ranks meet
//! anyway, so no rank waits for them alone. The step does not know their meaning.

/// Number of the observers' flags.
pub const FLAGS: usize = 2;

/// This rank's message in one step. All ranks send equally many numbers in the same step, or none.
#[derive(Debug, Default)]
pub struct ObserverMessage {
    /// All ranks receive the maximum of each flag.
    pub flags: [u8; FLAGS],
    /// A fingerprint of settings; all ranks learn if it is the same on all of them.
    pub settings: u64,
    /// All ranks receive the numbers of every rank.
    pub numbers: Option<Vec<f64>>,
    /// Seconds since the passes of the step before were over, in a job that is tuned; 0 if not known. All
    /// ranks receive those of every rank.
    pub seconds: Option<f64>,
}

/// Messages of all ranks in one step, the same on all of them.
#[derive(Debug, Default)]
pub struct Received {
    /// The maximum of each flag; `None` in a step that is not synchronized.
    pub(crate) flags: Option<[u8; FLAGS]>,
    /// True if the ranks have sent different fingerprints.
    pub settings_differ: bool,
    /// The numbers of all ranks, in rank order, if there are any.
    pub numbers: Option<Vec<f64>>,
    /// The squared norm of each shard of the job for the noise scale, where that is measured.
    pub by_shard: Vec<f64>,
    /// The seconds of all ranks, in rank order, in a job that is tuned.
    pub seconds: Vec<f64>,
}
