//! Training's interface to the membership of a job.

use std::time::SystemTime;

use kolo_rendezvous::Error;

use crate::group::Group;

/// A worker's membership in a job whose workers may change: forms groups, and reports when one is due.
///
/// A job lives through *generations*, in each of which a fixed set of workers forms a group. The death,
/// arrival or departure of a worker ends a generation, and the next one begins.
pub trait JobMembership: Send {
    /// Waits for a place in the next generation, and forms its group. `reason` is why the previous one, if
    /// any, has ended. The previous group must not be used any more, and may be dropped when this returns.
    ///
    /// # Errors
    ///
    /// Generations are no longer formed, or too few workers have arrived for too long ([`Error::TooFew`]) and
    /// this one has nothing to save.
    fn next_group(&mut self, reason: Option<&str>) -> Result<Group, Error>;

    /// Returns why the group is the job's last one, if it is: too few workers are left ([`Error::TooFew`]).
    /// It is there to save the state.
    fn too_few(&self) -> Option<Error> {
        None
    }

    /// Records that this worker has the state of the job, so a later generation need not start from scratch.
    fn set_has_state(&mut self);

    /// Records that a step is done. The times of steps determine how long to wait for a silent worker.
    fn step_done(&self);

    /// Returns true if other workers wait to join, so the generation should end when all its ranks agree.
    fn is_change_wanted(&self) -> bool;

    /// The generation that this worker is in, if any.
    fn generation(&self) -> Option<Generation>;
}

/// A generation as seen by one of its workers.
#[derive(Clone, Debug)]
pub struct Generation {
    /// Number of the generation; a job's first one is 1.
    pub number: u64,
    /// Reason why the previous generation ended.
    pub reason: String,
    /// Time at which this worker's group had formed.
    pub formed: SystemTime,
}
