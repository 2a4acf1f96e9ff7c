//! By what a leader decides when a generation begins, and who is hung.

use std::time::Duration;

/// The sizes and times by which generations form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MembershipPolicy {
    /// A generation has at least so many members.
    pub min_members: usize,
    /// The first generation waits so long for members that have been started; then it begins without them.
    pub start_timeout: Duration,
    /// A member that does not arrive within this time after its generation has ended counts as hung. Members
    /// that have arrived may know better, from what their steps take.
    pub rejoin_timeout: Duration,
    /// Too few members wait so long for others before the job ends.
    pub too_few_timeout: Duration,
}
