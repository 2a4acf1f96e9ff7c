//! Watches steps for whoever decides which workers take part, from outside of them: tells the other ranks
//! that a change is wanted, and hears after which step it is to be made.

use kolo_comm::{Generation, JobMembership, Rank};

use crate::step::{FLAGS, Heard};

/// In the first flag, in place of a 1 for a change: the job ends for all.
const ALL_END: u8 = 2;

/// One rank's view of who takes part in its job.
#[derive(Default)]
pub(crate) struct MembershipObserver {
    /// By which it finds its next group; none in a job whose workers do not change.
    pub(crate) membership: Option<Box<dyn JobMembership>>,
    /// Whether this rank has been asked to leave: where workers do not change, to end the job.
    leaving: bool,
    /// Who is to leave after the step that runs, and why.
    leaves_out: Option<(Rank, String)>,
}

/// What the ranks have agreed on in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Agreed {
    /// All goes on.
    NoChange,
    /// The members of the job change after it.
    Change,
    /// All of them leave after it.
    AllLeave,
}

impl MembershipObserver {
    /// At the end of its next step this worker leaves.
    pub(crate) fn leave(&mut self) {
        self.leaving = true;
    }

    /// At the end of the next step `rank` leaves.
    pub(crate) fn leave_out(&mut self, rank: Rank, reason: &str) {
        self.leaves_out = Some((rank, reason.into()));
    }

    /// Whether this rank has been asked to leave.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving
    }

    /// Why somebody is to leave, if so; forgets it.
    pub(crate) fn take_reason(&mut self) -> Option<String> {
        self.leaves_out.take().map(|(_, reason)| reason)
    }

    /// Whether `own`, this rank, leaves after the step that runs.
    pub(crate) fn leaves(&self, own: Rank) -> bool {
        self.leaving || self.leaves_out.as_ref().is_some_and(|(rank, _)| *rank == own)
    }

    /// What this rank tells the others with the agreement: whether it wants a change, and whether it stays
    /// and trains. A summation server does not: where all workers leave nobody is left. Where workers do not
    /// change none can go on without the others, so all end with the first that is asked to.
    pub(crate) fn flags(&self, own: Rank, is_server: bool) -> [u8; FLAGS] {
        let wants = |membership: &dyn JobMembership| {
            self.leaving || self.leaves_out.is_some() || membership.is_change_wanted()
        };
        if self.membership.is_none() && self.leaving {
            return [ALL_END, 0];
        }
        let wants_change = self.membership.as_deref().is_some_and(wants);
        [u8::from(wants_change), u8::from(!(is_server || wants_change && self.leaves(own)))]
    }

    /// What follows from all ranks' flags.
    pub(crate) fn heard(heard: &Heard) -> Agreed {
        match heard.flags {
            None | Some([0, _]) => Agreed::NoChange,
            Some([_, 0] | [ALL_END, _]) => Agreed::AllLeave,
            Some(_) => Agreed::Change,
        }
    }

    /// A step is done.
    pub(crate) fn step_done(&self) {
        if let Some(membership) = &self.membership {
            membership.step_done();
        }
    }

    /// The generation that this rank trains in.
    pub(crate) fn generation(&self) -> Option<Generation> {
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

    /// What ranks agree on of which some leave, and are servers.
    fn agreed(ranks: &[(bool, bool)]) -> Agreed {
        let flags = |(rank, (leaving, is_server)): (usize, &(bool, bool))| {
            let membership: Option<Box<dyn JobMembership>> = Some(Box::new(Quiet));
            let observer = MembershipObserver { membership, leaving: *leaving, ..Default::default() };
            observer.flags(Rank(rank), *is_server)
        };
        let all: Vec<[u8; FLAGS]> = ranks.iter().enumerate().map(flags).collect();
        let largest = std::array::from_fn(|flag| all.iter().map(|flags| flags[flag]).max().unwrap());
        MembershipObserver::heard(&Heard { flags: Some(largest), ..Heard::default() })
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
            let heard = Heard { flags: Some(largest), ..Heard::default() };
            assert_eq!(MembershipObserver::heard(&heard), expected, "{leaving:?}");
        }
    }
}
