//! [`Member`] as training sees it.

use kolo_comm::{Generation, Group, JobMembership};
use kolo_rendezvous::Error;

use super::member::Member;

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
        self.current().cloned()
    }
}
