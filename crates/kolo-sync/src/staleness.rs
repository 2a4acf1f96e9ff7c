//! Staleness of the weights with which workers computed.

use serde::{Deserialize, Serialize};

/// Number of pulls for each number of steps by which their weights were behind. A pull after step c is s
/// behind if the update of some worker for step c − s + 1 is missing, and none for c − s. 0: no update of
/// any worker was missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staleness(Vec<u64>);

impl Staleness {
    /// Numbers of pulls: those at index s were s steps behind.
    pub fn pulls(&self) -> &[u64] {
        &self.0
    }

    /// Average number of steps that a pull was behind; 0 without any pull.
    pub fn mean(&self) -> f64 {
        let steps: f64 = self.0.iter().enumerate().map(|(behind, pulls)| behind as f64 * *pulls as f64).sum();
        steps / self.0.iter().sum::<u64>().max(1) as f64
    }

    /// Largest number of steps that a pull was behind; 0 without any pull.
    pub fn most(&self) -> usize {
        self.0.iter().rposition(|pulls| *pulls > 0).unwrap_or(0)
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Staleness) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own += other);
    }

    /// Counts a pull that was `behind` steps behind.
    pub(crate) fn add(&mut self, behind: usize) {
        self.0.resize(self.0.len().max(behind + 1), 0);
        self.0[behind] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_most_are_over_all_pulls() {
        let (mut own, mut other) = (Staleness::default(), Staleness::default());
        assert_eq!((own.mean(), own.most()), (0.0, 0));
        [0, 2, 2].into_iter().for_each(|behind| own.add(behind));
        [0, 3, 0, 0].into_iter().for_each(|behind| other.add(behind));
        own.merge(&other);
        assert_eq!(own.pulls(), [4, 0, 2, 1]);
        assert_eq!((own.mean(), own.most()), (1.0, 3));
    }
}
