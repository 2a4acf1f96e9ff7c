//! Ranks: the numbers of the workers in a group.

use serde::{Deserialize, Serialize};

/// Number of a worker in its group, `0 ≤ rank < world size`.
///
/// ```
/// assert_eq!(kolo_schedule::Rank(2).to_string(), "rank 2");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Rank(pub usize);

impl std::fmt::Display for Rank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {}", self.0)
    }
}
