//! State of a job whose servers hold the weights. Its checkpoints are like those of any other job, so that
//! training can continue with another number of servers, or none. Rank 0 has the weights at the end of a
//! round; the servers have their optimizers' state.

use super::stale_mode::{Role, Stale};
use crate::replica::core::Core;
use crate::replica::notes::JobNotes;
use crate::sync::mode::ModeState;
use kolo_reduction::Error;
use kolo_reduction::state::{StateKind, Visit};

impl ModeState for Stale {
    fn visit_weights(&mut self, core: &mut Core, visit: &mut Visit<'_>) {
        match &self.role {
            // Until the first step the core has all of it.
            _ if self.must_load => core.weights.visit_state(visit),
            Some(Role::Server(server)) => server.with_part(|part| part.visit_state(visit)),
            _ => core.weights.visit_state(&mut |part| {
                if part.name.kind == StateKind::Weights {
                    visit(part);
                }
            }),
        }
    }

    fn notes(&mut self, core: &mut Core) -> Result<JobNotes, Error> {
        core.apply_outstanding()?;
        let knows = self.must_load || core.ranks.server;
        let updates = knows.then_some(self.updates);
        Ok(JobNotes { updates, ..JobNotes::of_core(core.notes()) })
    }

    /// Without a number in the notes, the servers' optimizers have made as many steps as the job.
    fn set_notes(&mut self, core: &mut Core, notes: JobNotes) -> Result<(), Error> {
        self.updates = notes.updates.unwrap_or(self.updates);
        core.set_notes(notes.core)
    }

    fn expect_all(&self, core: &Core) -> Result<(), Error> {
        if self.must_load && !core.ranks.server { Ok(()) } else { Err(Error::StateOnServers) }
    }
}
