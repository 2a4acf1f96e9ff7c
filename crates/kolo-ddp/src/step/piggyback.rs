//! A few numbers that all ranks tell one another in a step, on the way with the agreement: nobody waits for them alone.

use std::time::Duration;

use kolo_comm::schedule::Chunks;
use kolo_comm::{Collective, Group, Pending};

use super::timed;
use crate::error::Error;

/// See the module's text. All ranks tell equally many numbers in the same step.
#[derive(Default)]
pub(super) struct Told {
    own: Option<Vec<f64>>,
    pending: Option<Pending<f64>>,
    all: Option<Vec<f64>>,
}

impl Told {
    /// What this rank tells in the step that is about to end.
    pub(super) fn put(&mut self, own: Vec<f64>) {
        self.own = Some(own);
    }

    pub(super) fn start(&mut self, group: &Group) -> Result<(), Error> {
        let Some(own) = self.own.take() else { return Ok(()) };
        let mut buffer = group.alloc::<f64>(own.len() * group.world_size())?;
        buffer[group.rank().0 * own.len()..][..own.len()].copy_from_slice(&own);
        self.pending = Some(group.start(Collective::AllGather(Chunks::Equal), buffer));
        Ok(())
    }

    pub(super) fn finish(&mut self, exposed: &mut Duration) -> Result<(), Error> {
        if let Some(pending) = self.pending.take() {
            self.all = Some(timed(exposed, || pending.wait())?.to_vec());
        }
        Ok(())
    }

    /// What all ranks have told, in rank order; once.
    pub(super) fn take(&mut self) -> Option<Vec<f64>> {
        self.all.take()
    }
}
