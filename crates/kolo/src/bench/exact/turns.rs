//! Times of alternatives that are measured in turn.

use kolo::Failure;
use kolo_comm::Group;

use crate::bench::samples::Samples;

/// Seconds of each alternative in each round, of the slowest rank.
pub(super) struct Turns(Vec<Samples>);

impl Turns {
    /// Runs each of `count` alternatives once in every round, beginning with another one each time. `work`
    /// takes an alternative's number and returns the seconds that count. A collective.
    pub(super) fn measure(
        group: &Group,
        rounds: usize,
        warm_up: usize,
        count: usize,
        mut work: impl FnMut(usize) -> Result<f64, Failure>,
    ) -> Result<Turns, Failure> {
        let mut seconds = vec![Vec::new(); count];
        for round in 0..warm_up + rounds {
            for turn in 0..count {
                let alternative = (round + turn) % count;
                group.barrier()?;
                let taken = work(alternative)?;
                if round >= warm_up {
                    seconds[alternative].push(taken);
                }
            }
        }
        let slowest = |seconds| Samples(seconds).slowest(group);
        Ok(Turns(seconds.into_iter().map(slowest).collect::<Result<_, _>>()?))
    }

    pub(crate) fn seconds(&self, alternative: usize) -> f64 {
        self.0[alternative].percentile(50.0)
    }

    /// Returns an alternative's time relative to the first one in the same round: lower quartile, median,
    /// upper quartile.
    pub(super) fn to_first(&self, alternative: usize) -> [f64; 3] {
        let ratio = |(own, first): (&f64, &f64)| own / first;
        let ratios = Samples(self.0[alternative].0.iter().zip(&self.0[0].0).map(ratio).collect());
        [25.0, 50.0, 75.0].map(|percent| ratios.percentile(percent))
    }
}
