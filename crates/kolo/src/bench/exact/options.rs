//! The options of `kolo bench exact`.

use clap::Args;
use kolo::Failure;

use crate::bench::samples::at_least_1;
use crate::bench::trainee::Work;
use crate::options::Communication;

/// Measure what exact sums and elasticity cost when nothing fails: sums of the tree beside those of the
/// ring, and steps with each of Kolo's promises beside steps without.
#[derive(Args)]
pub(crate) struct Options {
    /// Workers on this machine
    #[arg(long, default_value_t = 2)]
    pub(crate) nproc: usize,
    /// Shards to sum, beside one shard per worker
    #[arg(long, default_value_t = 8)]
    pub(super) shards: usize,
    /// Bytes of the sums
    #[arg(long, value_delimiter = ',', default_values_t = [1 << 20, 25 << 20])]
    pub(super) sizes: Vec<usize>,
    #[command(flatten)]
    pub(super) work: Work,
    /// Rounds, each of which measures all alternatives once
    #[arg(long, default_value_t = 20)]
    pub(super) rounds: usize,
    /// Steps of one alternative in a round
    #[arg(long, default_value_t = 3)]
    pub(super) steps: usize,
    #[command(flatten)]
    pub(crate) communication: Communication,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.work.check()?;
        let counts = [("--shards", self.shards), ("--rounds", self.rounds), ("--steps", self.steps)];
        at_least_1(&[("--nproc", self.nproc)])?;
        at_least_1(&counts)?;
        match self.sizes.iter().find(|bytes| **bytes < size_of::<f32>()) {
            Some(bytes) => Err(Failure::input(format!("--sizes {bytes}: a sum has at least 4 bytes"))),
            None => Ok(()),
        }
    }
}
