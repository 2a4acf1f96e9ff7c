//! Observer of steps for a job's membership: sends the other ranks the request for a change, and learns
//! after which step it is to be made.

use kolo_comm::{Generation, JobMembership, Rank};

use crate::step::{FLAGS, Received};

/// Value of the first flag, in place of a 1 for a change, with which the job ends for all.
const ALL_END: u8 = 2;

/// One rank's view of its job's membership.
#[derive(Default)]
pub struct MembershipObserver {
    /// Finds the next group; `None` in a job whose workers do not change.
    pub membership: Option<Box<dyn JobMembership>>,
    /// True if this rank has been asked to leave. In a job whose workers do not change, that ends the job.
    leaving: bool,
    /// The rank that is to leave after the current step, and the reason.
    leaves_out: Option<(Rank, String)>,
}

kolo_comm::opaque_debug!(MembershipObserver { leaving });

/// Result of the ranks' agreement in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Agreed {
    /// All ranks continue.
    NoChange,
    /// The members of the job change after the step.
    Change,
    /// All of them leave after the step.
    AllLeave,
}

impl MembershipObserver {
    /// Makes this worker leave at the end of its next step.
    pub fn leave(&mut self) {
        self.leaving = true;
    }

    /// Makes `rank` leave at the end of the next step.
    pub fn leave_out(&mut self, rank: Rank, reason: &str) {
        self.leaves_out = Some((rank, reason.into()));
    }

    /// Returns true if this rank has been asked to leave.
    pub fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Takes the reason of a rank's leaving, if there is one.
    pub fn take_reason(&mut self) -> Option<String> {
        self.leaves_out.take().map(|(_, reason)| reason)
    }

    /// Returns true if `own`, this rank, leaves after the current step.
    pub fn leaves(&self, own: Rank) -> bool {
        self.leaving || self.leaves_out.as_ref().is_some_and(|(rank, _)| *rank == own)
    }

    /// Flags that this rank sends with the agreement: if it wants a change, and if it stays and trains. A
    /// summation server does not train: if all workers leave, no rank is left. If workers do not change,
    /// none can continue without the others, so all end with the first that is asked to.
    pub fn flags(&self, own: Rank, is_server: bool) -> [u8; FLAGS] {
        let wants = |membership: &dyn JobMembership| {
            self.leaving || self.leaves_out.is_some() || membership.is_change_wanted()
        };
        if self.membership.is_none() && self.leaving {
            return [ALL_END, 0];
        }
        let wants_change = self.membership.as_deref().is_some_and(wants);
        [u8::from(wants_change), u8::from(!(is_server || wants_change && self.leaves(own)))]
    }

    /// Decides on the change from all ranks' flags.
    pub fn decide(received: &Received) -> Agreed {
        match received.flags {
            None | Some([0, _]) => Agreed::NoChange,
            Some([_, 0] | [ALL_END, _]) => Agreed::AllLeave,
            Some(_) => Agreed::Change,
        }
    }

    /// Tells the membership that this rank has all of the job's state.
    pub fn step_begins(&mut self) {
        if let Some(membership) = &mut self.membership {
            membership.set_has_state();
        }
    }

    /// Reports a completed step to the membership.
    pub fn step_done(&self) {
        if let Some(membership) = &self.membership {
            membership.step_done();
        }
    }

    /// The generation in which this rank trains.
    pub fn generation(&self) -> Option<Generation> {
        self.membership.as_ref()?.generation()
    }
}

#[cfg(test)]
mod tests {
    use kolo_comm::{Error, Group};

    use super::*;

    /// A membership in which nothing happens.
    struct Quiet;

    impl JobMembership for Quiet {
        fn next_group(&mut self, _: Option<&str>) -> Result<Group, Error> {
            Err(Error::Orphaned)
        }

        fn set_has_state(&mut self) {}

        fn step_done(&self) {}

        fn is_change_wanted(&self) -> bool {
            false
        }

        fn generation(&self) -> Option<Generation> {
            None
        }
    }

    /// Returns the agreement of ranks, given as pairs: leaving, and server.
    fn agreed(ranks: &[(bool, bool)]) -> Agreed {
        let flags = |(rank, (leaving, is_server)): (usize, &(bool, bool))| {
            let membership: Option<Box<dyn JobMembership>> = Some(Box::new(Quiet));
            let observer = MembershipObserver { membership, leaving: *leaving, ..Default::default() };
            observer.flags(Rank(rank), *is_server)
        };
        let all: Vec<[u8; FLAGS]> = ranks.iter().enumerate().map(flags).collect();
        let largest = std::array::from_fn(|flag| all.iter().map(|flags| flags[flag]).max().unwrap());
        MembershipObserver::decide(&Received { flags: Some(largest), ..Received::default() })
    }

    #[test]
    fn all_leave_when_all_workers_do() {
        let (stays, leaves) = ((false, false), (true, false));
        let (server, leaving_server) = ((false, true), (true, true));
        for (ranks, expected) in [
            (vec![stays, stays], Agreed::NoChange),
            (vec![stays, leaves], Agreed::Change),
            (vec![leaves, leaves], Agreed::AllLeave),
            (vec![stays, server], Agreed::NoChange),
            (vec![stays, leaving_server], Agreed::Change),
            (vec![leaves, leaves, server], Agreed::AllLeave),
            (vec![leaves, stays, leaving_server], Agreed::Change),
        ] {
            assert_eq!(agreed(&ranks), expected, "{ranks:?}");
        }
    }

    #[test]
    fn where_workers_do_not_change_all_end_with_the_first() {
        let flags = |leaving| MembershipObserver { leaving, ..Default::default() }.flags(Rank(0), false);
        for (leaving, expected) in [
            ([false, false, false], Agreed::NoChange),
            ([false, true, false], Agreed::AllLeave),
            ([true, true, true], Agreed::AllLeave),
        ] {
            let all = leaving.map(flags);
            let largest = std::array::from_fn(|flag| all.iter().map(|flags| flags[flag]).max().unwrap());
            let received = Received { flags: Some(largest), ..Received::default() };
            assert_eq!(MembershipObserver::decide(&received), expected, "{leaving:?}");
        }
    }
}
