//! What checkpoints hold of a job whose servers hold the weights: what those of any other job do, so that it
//! can go on with another number of servers, or none. Rank 0 has the weights at the end of a round; the
//! servers bring it their optimizers' state.

use kolo_comm::Rank;

use super::super::Replica;
use super::{Role, Stale, parts};
use crate::error::Error;
use kolo_optim::Scope;

impl Stale {
    /// Brings the state of all servers to rank 0. A collective.
    fn gather(&mut self, outer: &mut Replica) -> Result<(), Error> {
        let (group, servers) = (outer.group.clone(), outer.server_ranks());
        if let Some(Role::Server(server)) = &self.role {
            let sent = server.with_part(|part| {
                let place = part.place();
                let mut states = part.optimizer_state().into_iter().filter(|_| !place.is_empty());
                states.try_for_each(|(_, state)| group.send(&state[place.clone()], Rank(0)))
            });
            sent?;
        }
        if group.rank() == Rank(0) {
            let whole_tensors = outer.optimizer.scope() == Scope::Tensor;
            let cut = parts::cut(&outer.layout, servers.len(), whole_tensors);
            for (server, place) in servers.iter().zip(cut).filter(|(_, place)| !place.is_empty()) {
                let mut states = outer.optimizer.state().into_iter();
                states.try_for_each(|(_, state)| group.receive(&mut state[place.clone()], *server))?;
            }
        }
        self.updates = group.broadcast_value(self.updates, servers[0])?;
        if group.rank() == Rank(0) {
            self.gathered = outer.steps;
        }
        Ok(())
    }
}

impl Replica {
    /// Brings the state of the servers that hold the weights to rank 0, if there are such and a round has
    /// ended.
    pub(in crate::replica) fn gather_servers(&mut self) -> Result<(), Error> {
        let Some(mut stale) = self.stale.take() else { return Ok(()) };
        let result = if stale.is_between_rounds() { stale.gather(self) } else { Ok(()) };
        self.stale = Some(stale);
        result
    }

    /// Before a checkpoint is taken: refuses it where servers hold what belongs to it.
    ///
    /// # Errors
    ///
    /// A round has not ended, or the state of the servers is not here.
    pub(crate) fn expect_state_of_servers(&self) -> Result<(), Error> {
        match &self.stale {
            Some(stale) if !stale.is_between_rounds() => {
                Err(Error::RoundNotOver { step: self.steps, began: stale.began })
            }
            Some(stale) if stale.gathered != self.steps || self.server => Err(Error::StateOnServers),
            _ => Ok(()),
        }
    }

    /// Steps that the servers' optimizers have made, if servers hold the weights.
    pub(crate) fn updates_of_servers(&self) -> Option<u64> {
        self.stale.as_ref().map(|stale| stale.updates)
    }

    /// Goes on where the servers' optimizers have made so many steps; as many as the job where a checkpoint
    /// does not say.
    pub(crate) fn set_updates_of_servers(&mut self, updates: Option<u64>) {
        if let (Some(stale), Some(updates)) = (&mut self.stale, updates) {
            stale.updates = updates;
        }
    }
}
