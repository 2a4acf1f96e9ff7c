//! Limits that decide when a generation begins and which members count as hung.

use std::time::Duration;

/// The sizes and times by which generations form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MembershipPolicy {
    /// Minimum number of members of a generation.
    pub min_members: usize,
    /// Time that the first generation waits for members that have started; then it begins without them.
    pub start_timeout: Duration,
    /// Time after the end of a generation within which its members must arrive; a later member counts as
    /// hung. Members that have arrived may suggest another time, from the length of their steps.
    pub rejoin_timeout: Duration,
    /// Time that too few members wait for others before the job ends.
    pub too_few_timeout: Duration,
}
