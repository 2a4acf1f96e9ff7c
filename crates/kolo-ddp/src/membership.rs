//! Watches steps for whoever decides which workers take part, from outside of them: tells the other ranks that a change is
//! wanted, and hears after which step it is to be made.

use kolo_comm::{Generation, JobMembership, Rank};

use crate::step::{FLAGS, Heard};

/// One rank's view of who takes part in its job.
#[derive(Default)]
pub(crate) struct MembershipObserver {
    /// By which it finds its next group; none in a job whose workers do not change.
    pub(crate) membership: Option<Box<dyn JobMembership>>,
    /// Whether this rank has been asked to leave.
    leaving: bool,
    /// Who is to leave after the step that runs, and why.
    leaves_out: Option<(Rank, String)>,
}

/// What the ranks have agreed on in a step.
#[derive(Clone, Copy, Debug, PartialEq)]
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

    /// Why somebody is to leave, if so; forgets it.
    pub(crate) fn take_reason(&mut self) -> Option<String> {
        self.leaves_out.take().map(|(_, reason)| reason)
    }

    /// Whether `own`, this rank, leaves after the step that runs.
    pub(crate) fn leaves(&self, own: Rank) -> bool {
        self.leaving || self.leaves_out.as_ref().is_some_and(|(rank, _)| *rank == own)
    }

    /// What this rank tells the others with the agreement: whether it wants a change, and whether it stays.
    pub(crate) fn flags(&self, own: Rank) -> [u8; FLAGS] {
        let wants = |membership: &dyn JobMembership| {
            self.leaving || self.leaves_out.is_some() || membership.is_change_wanted()
        };
        let wants_change = self.membership.as_deref().is_some_and(wants);
        [u8::from(wants_change), u8::from(!(wants_change && self.leaves(own)))]
    }

    /// What follows from all ranks' flags.
    pub(crate) fn heard(heard: &Heard) -> Agreed {
        match heard.flags {
            None | Some([0, _]) => Agreed::NoChange,
            Some([_, 0]) => Agreed::AllLeave,
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
