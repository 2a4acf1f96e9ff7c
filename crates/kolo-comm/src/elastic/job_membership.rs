//! [`Member`] as training sees it.

use super::member::Member;
use crate::error::Error;
use crate::group::Group;
use crate::job_membership::{Generation, JobMembership};

impl JobMembership for Member {
    fn next_group(&mut self, reason: Option<&str>) -> Result<Group, Error> {
        self.join(reason)
    }

    fn has_state(&mut self) {
        self.settle();
    }

    fn step_done(&self) {
        Member::step_done(self);
    }

    fn is_change_wanted(&self) -> bool {
        self.change_wanted()
    }

    fn generation(&self) -> Option<Generation> {
        let super::Generation { number, reason, formed } = self.current()?.clone();
        Some(Generation { number, reason, formed })
    }
}
