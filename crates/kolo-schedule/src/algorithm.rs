//! An algorithm is a pure function from a problem to one rank's schedule.

use crate::problem::Problem;
use crate::schedule::Schedule;

/// Builds the schedule of one rank, or returns the reason why there is none.
pub(crate) type Build = fn(&Problem<'_>) -> Result<Schedule, &'static str>;

/// An algorithm that builds schedules for some of the operations.
#[derive(Debug)]
pub struct Algorithm {
    /// Name on the command line.
    pub name: &'static str,
    /// Cost and best use, in one line.
    pub about: &'static str,
    /// True if the algorithm adds in tree order, so that the result does not depend on the number of ranks.
    pub keeps_tree: bool,
    /// True if the algorithm adds all contributions at once; 16-bit floats are then rounded only once.
    pub adds_at_once: bool,
    /// Builds the schedule of one rank, or returns the reason why there is none. Whether there is one must
    /// not depend on the rank, because all ranks must choose the same algorithm.
    pub build: fn(&Problem<'_>) -> Result<Schedule, &'static str>,
}

/// Reason for having no schedule: the algorithm does not support the operation.
pub(crate) const ANOTHER_OPERATION: Result<Schedule, &str> = Err("it does not do this operation");
