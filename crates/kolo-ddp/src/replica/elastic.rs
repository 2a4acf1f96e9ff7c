//! A replica in a job whose workers may change: it finds its next group by itself.

use std::sync::Arc;

use kolo_comm::{Generation, Group, JobMembership, Rank};

use super::handle::Replica;
use super::report::Change;
use crate::config::Config;
use crate::error::Error;
use crate::membership::Agreed;
use kolo_optim::{Optimizer, ParamSpec};

/// Groups that may fail one after another before a replica gives up.
const TRIES: usize = 100;

impl Replica {
    /// As [`Replica::new`], as a member of an elastic job: it takes the state of the others where they have
    /// begun.
    ///
    /// # Errors
    ///
    /// As [`Replica::new`]; or too few workers are there.
    pub fn elastic(
        membership: impl JobMembership + 'static,
        specs: &[ParamSpec],
        values: &[f32],
        config: &Config,
        optimizer: impl Optimizer,
    ) -> Result<Self, Error> {
        let mut optimizer: Box<dyn Optimizer> = Box::new(optimizer);
        let config = Config { elastic: true, ..config.clone() };
        let mut membership = Box::new(membership);
        let mut last: Option<(Arc<Group>, String)> = None;
        for _ in 0..TRIES {
            let group = Arc::new(membership.next_group(last.as_ref().map(|(_, reason)| reason.as_str()))?);
            let mut replica = Replica::apart(&group, specs.to_vec(), values.to_vec(), &config, optimizer)?;
            match replica.join(group.clone()) {
                Ok(()) => {
                    if !replica.core.ranks.server {
                        membership.set_has_state();
                    }
                    replica.core.observers.members.membership = Some(membership);
                    return Ok(replica);
                }
                // The group is kept until there is the next one: others may still read what it has sent.
                Err(error) if is_survivable(&error) => {
                    let given = replica.mode.into_optimizer(replica.core.weights.optimizer);
                    (last, optimizer) = (Some((group, error.to_string())), given);
                }
                Err(error) => return Err(error),
            }
        }
        Err(gave_up())
    }

    /// After an error of [`Replica::step`] or any other call: goes on with those that are left, and whoever
    /// has come, where the error is the death of another worker and the job is elastic; else returns the
    /// error. Afterwards [`Replica::steps`] says which step is to be done next: the one that failed, or the
    /// one after it; or an earlier one, where the reduction keeps something for each shard or islands
    /// synchronise rarely ([`Config::backup_every`]).
    ///
    /// # Errors
    ///
    /// `error` itself, or what stands in the way of going on. If too few workers are left
    /// ([`TooFew`](kolo_comm::Error::TooFew)) this one can save what it has come to, or go on alone
    /// ([`Replica::regroup`] with [`Group::alone`]).
    pub fn recover(&mut self, error: Error) -> Result<(), Error> {
        if !is_survivable(&error) {
            return Err(error);
        }
        let Some(mut membership) = self.core.observers.members.membership.take() else { return Err(error) };
        log::info!("{error}; going on with the others");
        let result = self.next_group(&mut *membership, error.to_string());
        self.core.observers.members.membership = Some(membership);
        result
    }

    /// At the end of its next step this worker leaves the job, which goes on without it; a job whose workers do
    /// not change ends for all of them after the same step ([`Change::AllLeft`]). Where servers hold the
    /// weights, and where islands synchronise rarely, that is at the end of a round.
    pub fn leave(&mut self) {
        self.core.observers.members.leave();
    }

    /// The generation of the job that this replica trains in, in an elastic job.
    pub fn generation(&self) -> Option<Generation> {
        self.core.observers.members.generation()
    }

    /// At the end of the next step `rank` leaves the job, as by [`Replica::leave`], which goes on without it;
    /// `reason` is what the launcher says then. To be called by all ranks after the same step, as when a
    /// report names a straggler. A change of the group before that takes it back.
    pub fn leave_out(&mut self, rank: Rank, reason: &str) {
        self.core.observers.members.leave_out(rank, reason);
    }

    /// Whether a step has been taken back after some of its updates had been made. Nothing can be saved
    /// before it has been done again.
    pub fn is_halfway(&self) -> bool {
        self.core.is_halfway()
    }

    /// After a step that all ranks have agreed on as the last one of the group, if they have.
    pub(crate) fn change_members(&mut self, agreed: Agreed) -> Result<Change, Error> {
        if agreed == Agreed::NoChange {
            return Ok(Change::None);
        }
        self.core.apply_outstanding()?;
        if agreed == Agreed::AllLeave {
            // For the checkpoint of whoever saves it.
            self.gather_residuals()?;
            return Ok(Change::AllLeft);
        }
        // Nobody has died yet: what is kept for each shard goes along.
        self.back_up_with_those_who_stay()?;
        let Some(mut membership) = self.core.observers.members.membership.take() else {
            return Ok(Change::None);
        };
        if self.core.observers.members.leaves(self.core.ranks.group.rank()) {
            return Ok(Change::Left);
        }
        let reason = self.core.observers.members.take_reason().unwrap_or_else(|| "workers come or go".into());
        let result = self.next_group(&mut *membership, reason);
        self.core.observers.members.membership = Some(membership);
        result.map(|()| Change::Regrouped)
    }

    fn next_group(&mut self, membership: &mut dyn JobMembership, mut reason: String) -> Result<(), Error> {
        for _ in 0..TRIES {
            let group = match membership.next_group(Some(&reason)) {
                Ok(group) => Arc::new(group),
                Err(error) => {
                    self.roll_back();
                    return Err(error.into());
                }
            };
            match self.regroup(group.clone()) {
                Ok(()) => return Ok(()),
                Err(error) if is_survivable(&error) => reason = error.to_string(),
                Err(error) => return Err(error),
            }
        }
        Err(gave_up())
    }
}

/// Whether others can go on after an error: another worker's death, as this one sees it.
fn is_survivable(error: &Error) -> bool {
    match error {
        // Those that did not fit end; the next group is one without them.
        Error::Lost | Error::NewcomersRefused { .. } => true,
        Error::Comm(error) => error.is_lost_peer(),
        _ => false,
    }
}

fn gave_up() -> Error {
    Error::Setting(format!("{TRIES} groups have failed one after another before a step was done"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_process_lacks_is_nobody_elses_death() {
        let lacks = [
            kolo_comm::Error::TooManyFiles { what: "cannot map a block".into(), limit: 300 },
            kolo_comm::Error::system("cannot allocate 4096 bytes of shared memory", "no memory"),
        ];
        for error in lacks {
            assert!(!is_survivable(&error.clone().into()), "{error}");
            let told = kolo_comm::Error::Abandoned { rank: Rank(1), reason: error.to_string() };
            assert!(is_survivable(&told.clone().into()), "{told}");
        }
    }
}
