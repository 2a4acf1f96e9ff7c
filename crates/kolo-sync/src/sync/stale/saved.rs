//! Checkpoints of a job whose servers hold the weights. They are like those of any other job, so that
//! training can continue with another number of servers, or none. Rank 0 has the weights at the end of a
//! round; the servers send it their optimizers' state.

use kolo_checkpoint::Reader;
use kolo_comm::Rank;

use super::parts;
use super::stale_mode::{Role, Stale};
use crate::replica::core::Core;
use crate::sync::mode::{ModeState, Saved};
use kolo_optim::Scope;
use kolo_reduction::Error;

/// Entry of a checkpoint: number of steps that the servers' optimizers have made.
const UPDATES: &str = "updates_of_servers";

impl ModeState for Stale {
    /// Brings the state of all servers to rank 0.
    fn gather(&mut self, outer: &mut Core) -> Result<(), Error> {
        let (group, servers) = (outer.ranks.group.clone(), outer.server_ranks());
        if let Some(Role::Server(server)) = &self.role {
            let sent = server.with_part(|part| {
                let place = part.place();
                let mut states = part.optimizer_state().into_iter().filter(|_| !place.is_empty());
                states.try_for_each(|(_, state)| group.send(&state[place.clone()], Rank(0)))
            });
            sent?;
        }
        if group.rank() == Rank(0) {
            let whole_tensors = outer.weights.optimizer.scope() == Scope::Tensor;
            let cut = parts::cut(&outer.weights.layout, servers.len(), whole_tensors);
            for (server, place) in servers.iter().zip(cut).filter(|(_, place)| !place.is_empty()) {
                let mut states = outer.weights.optimizer.state().into_iter();
                states.try_for_each(|(_, state)| group.receive(&mut state[place.clone()], *server))?;
            }
        }
        self.updates = group.broadcast_value(self.updates, servers[0])?;
        if group.rank() == Rank(0) {
            self.gathered = outer.progress.steps;
        }
        Ok(())
    }

    fn save(&mut self, core: &mut Core) -> Result<Saved, Error> {
        if self.gathered != core.progress.steps || core.ranks.server {
            return Err(Error::StateOnServers);
        }
        let saved = core.save()?;
        Ok(Saved { entries: vec![(UPDATES, self.updates.into())], ..saved })
    }

    /// Without the entry, the servers' optimizers have made as many steps as the job.
    fn load(&mut self, core: &mut Core, reader: &Reader) -> Result<(), Error> {
        core.load(reader)?;
        self.updates = reader.entry(UPDATES)?.unwrap_or(self.updates);
        Ok(())
    }
}
