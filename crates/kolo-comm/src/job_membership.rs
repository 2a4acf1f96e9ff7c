//! What training asks of whoever knows which workers take part in a job.

use std::time::SystemTime;

use kolo_rendezvous::Error;

use crate::group::Group;

/// A worker's membership in a job whose workers may change: finds its next group, and tells when there should
/// be one.
///
/// A job lives through *generations*, in each of which a fixed set of workers forms a group. A death, a
/// worker that comes or one that leaves ends it, and the next one begins.
pub trait JobMembership: Send {
    /// Waits for a place in the next generation, and forms its group. `reason` is why the last one is over,
    /// if there was one; the group of that must not be used any more, and may be dropped when this returns.
    ///
    /// # Errors
    ///
    /// Nobody forms generations any more, or too few others have come for too long ([`Error::TooFew`]).
    fn next_group(&mut self, reason: Option<&str>) -> Result<Group, Error>;

    /// From now on this worker has the state of the job, so that its successors need not begin anew.
    fn set_has_state(&mut self);

    /// A step of the generation is done. What steps take says how long to wait for a worker that is silent.
    fn step_done(&self);

    /// Whether others wait to come in, so that the generation should end when all its ranks have agreed on
    /// it.
    fn is_change_wanted(&self) -> bool;

    /// The generation that this worker is in, once there is one.
    fn generation(&self) -> Option<Generation>;
}

/// A generation as one of its workers sees it.
#[derive(Clone, Debug)]
pub struct Generation {
    /// Counts the job's generations, from 1.
    pub number: u64,
    /// Why the last one has ended.
    pub reason: String,
    /// When this worker's group had formed.
    pub formed: SystemTime,
}
