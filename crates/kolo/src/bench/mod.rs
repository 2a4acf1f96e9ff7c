//! What `kolo bench` measures. Every figure is the maximum over the ranks of each sample, then a percentile over samples.

pub(crate) mod all_reduce;
pub(crate) mod step;

use kolo_comm::{Group, Op};

use crate::fail::Failure;
use crate::train::percentile;

/// Samples of one figure on this rank.
#[derive(Default)]
struct Samples(Vec<f64>);

impl Samples {
    /// For each sample the slowest rank's. A collective.
    fn slowest(mut self, group: &Group) -> Result<Samples, Failure> {
        group.all_reduce(&mut self.0, Op::Max)?;
        Ok(self)
    }

    fn percentile(&self, percent: f64) -> f64 {
        percentile(&self.0, percent)
    }
}
