//! An algorithm is a pure function from a problem to one rank's schedule.

use crate::problem::Problem;
use crate::schedule::Schedule;

/// Builds the schedule of one rank; where there is none, the reason.
pub(crate) type Build = fn(&Problem<'_>) -> Result<Schedule, &'static str>;

/// A way to do some of the operations.
#[derive(Debug)]
pub struct Algorithm {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it costs and when to take it, in one line.
    pub about: &'static str,
    /// Whether it adds in the order of the tree, so that the result does not depend on the number of ranks.
    pub keeps_tree: bool,
    /// Whether it adds all contributions at once, so that 16-bit floats are rounded once.
    pub adds_at_once: bool,
    /// The schedule of one rank; where there is none, the reason. The answer to whether there is one must not
    /// depend on the rank: all ranks must choose alike.
    pub build: fn(&Problem<'_>) -> Result<Schedule, &'static str>,
}

/// Why there is no schedule for an operation that an algorithm has nothing to say about.
pub(crate) const ANOTHER_OPERATION: Result<Schedule, &str> = Err("it does not do this operation");
