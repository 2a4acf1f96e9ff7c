//! A replica in a job whose workers may change: it joins the next group by itself.

use std::sync::Arc;

use kolo_comm::{Generation, Group, JobMembership, Rank};

use super::handle::Replica;
use kolo_optim::{Optimizer, ParamSpec};
use kolo_reduction::Error;
use kolo_step::Agreed;
use kolo_sync::{Change, Config, check_offload};

/// Number of groups that may fail in a row before a replica gives up.
const TRIES: usize = 100;

impl Replica {
    /// Creates a replica as a member of an elastic job, as [`Replica::new`] does otherwise. If the other
    /// ranks have begun, it takes their state.
    ///
    /// # Errors
    ///
    /// As [`Replica::new`]; or there are too few workers.
    pub fn elastic(
        membership: impl JobMembership + 'static,
        specs: &[ParamSpec],
        values: &[f32],
        config: &Config,
        optimizer: impl Optimizer,
    ) -> Result<Self, Error> {
        Self::elastic_of(membership, specs, &Arc::new(values.to_vec()), config, optimizer)
    }

    /// Does the same with values that it need not copy.
    pub(crate) fn elastic_of(
        membership: impl JobMembership + 'static,
        specs: &[ParamSpec],
        values: &Arc<Vec<f32>>,
        config: &Config,
        optimizer: impl Optimizer,
    ) -> Result<Self, Error> {
        let mut optimizer: Box<dyn Optimizer> = Box::new(optimizer);
        let config = Config { elastic: true, ..config.clone() };
        check_offload(&config)?;
        let mut membership = Box::new(membership);
        let mut last: Option<(Arc<Group>, String)> = None;
        for _ in 0..TRIES {
            let group = Arc::new(membership.next_group(last.as_ref().map(|(_, reason)| reason.as_str()))?);
            let mut replica = Replica::apart(&group, specs.to_vec(), values.clone(), &config, optimizer)?;
            match replica.join(group.clone()) {
                Ok(()) => {
                    // A newcomer has the job's state when its first step begins. Until then its program may
                    // lack what other ranks' programs send it, for example the progress of the epoch.
                    let begins = membership.generation().is_some_and(|generation| generation.number == 1);
                    if begins && !replica.core.ranks.server {
                        membership.set_has_state();
                    }
                    replica.core.observers.members.membership = Some(membership);
                    return Ok(replica);
                }
                // The group is kept until the next one exists: other ranks may still be reading its
                // messages.
                Err(error) if is_survivable(&error) => {
                    let given = replica.mode.into_optimizer(replica.core.weights.optimizer);
                    (last, optimizer) = (Some((group, error.to_string())), given);
                }
                Err(error) => return Err(error),
            }
        }
        Err(gave_up())
    }

    /// Recovers from an error of [`Replica::step`] or any other call. If another worker died and the job is
    /// elastic, continues with the survivors and any newcomers; otherwise returns the error. Afterwards
    /// [`Replica::steps`] is the step to run next: the one that failed, or the one after it. It is an
    /// earlier one where the reduction keeps state for each shard or islands synchronize rarely
    /// ([`Config::backup_every`]).
    ///
    /// # Errors
    ///
    /// `error` itself, or the reason why the job cannot continue. After [`TooFew`](kolo_comm::Error::TooFew)
    /// with `is_last_group` the survivors have regrouped: together they can save the state, at once or, where
    /// [`Replica::is_halfway`] is true on one of them, after one more step.
    pub fn recover(&mut self, error: Error) -> Result<(), Error> {
        if !is_survivable(&error) {
            return Err(error);
        }
        let Some(mut membership) = self.core.observers.members.membership.take() else { return Err(error) };
        log::info!("{error}; continuing with the others");
        let result = self.next_group(&mut *membership, Some(error.to_string()));
        self.core.observers.members.membership = Some(membership);
        result
    }

    /// Makes this worker leave the job at the end of its next step; the job continues without it. A job that
    /// is not elastic ends for all workers after the same step ([`Change::AllLeft`]). Where servers hold the
    /// weights or islands synchronize rarely, it leaves at the end of a round.
    pub fn leave(&mut self) {
        self.core.observers.members.leave();
    }

    /// Generation of the job that this replica trains in; `None` if the job is not elastic.
    pub fn generation(&self) -> Option<Generation> {
        self.core.observers.members.generation()
    }

    /// Makes `rank` leave the job at the end of the next step, as by [`Replica::leave`]; the job continues
    /// without it. The launcher prints `reason`. All ranks must call it after the same step, for example
    /// when a report names a straggler. If the group changes earlier, the request is dropped.
    pub fn leave_out(&mut self, rank: Rank, reason: &str) {
        self.core.observers.members.leave_out(rank, reason);
    }

    /// Returns true if a step has been rolled back after some of its updates were applied. Nothing can be
    /// saved until the step has been repeated.
    pub fn is_halfway(&self) -> bool {
        self.core.is_halfway()
    }

    /// Changes the group after a step that all ranks agreed on as its last one, if they did.
    pub(crate) fn change_members(&mut self, agreed: Agreed) -> Result<Change, Error> {
        if agreed == Agreed::NoChange {
            return Ok(Change::None);
        }
        self.core.apply_outstanding()?;
        if agreed == Agreed::AllLeave {
            // Rank 0 may save a checkpoint, which needs the state of all shards. Owners send theirs then.
            if !self.divides_state() {
                self.gather_residuals()?;
            }
            return Ok(Change::AllLeft);
        }
        // All ranks are still alive, so parts of the state and the state of every shard can be handed on.
        if self.core.moves_parts() || self.core.keeps_state() {
            let stay = self.those_who_stay()?;
            if self.core.moves_parts() {
                self.core.hand_over(&stay)?;
            }
            self.back_up_with(&stay)?;
        }
        let leaves = self.core.observers.members.leaves(self.core.ranks.group.rank());
        if self.core.shares_memory() {
            if leaves {
                self.core.leave_memory();
            }
            // The others go on only when it has left.
            self.core.ranks.group.barrier()?;
        }
        let Some(mut membership) = self.core.observers.members.membership.take() else {
            return Ok(Change::None);
        };
        if leaves {
            return Ok(Change::Left);
        }
        // Without a reason of the workers, the launcher knows who comes or goes.
        let reason = self.core.observers.members.take_reason();
        let result = self.next_group(&mut *membership, reason);
        self.core.observers.members.membership = Some(membership);
        result.map(|()| Change::Regrouped)
    }

    /// Workers that do not leave after this step. A collective.
    fn those_who_stay(&self) -> Result<Vec<Rank>, Error> {
        let core = &self.core;
        let leaves = core.observers.members.leaves(core.ranks.group.rank());
        let leave: Vec<bool> = core.ranks.group.all_gather_value(&leaves)?;
        Ok(core.workers().into_iter().filter(|Rank(rank)| !leave[*rank]).collect())
    }

    fn next_group(
        &mut self,
        membership: &mut dyn JobMembership,
        mut reason: Option<String>,
    ) -> Result<(), Error> {
        for _ in 0..TRIES {
            let group = match membership.next_group(reason.as_deref()) {
                Ok(group) => Arc::new(group),
                Err(error) => {
                    self.roll_back();
                    self.core.leave_memory();
                    return Err(error.into());
                }
            };
            match self.regroup(group.clone()) {
                Ok(()) => return membership.too_few().map_or(Ok(()), |too_few| Err(too_few.into())),
                Err(error) if is_survivable(&error) => reason = Some(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        Err(gave_up())
    }
}

/// Returns true if other ranks can continue after an error: this rank sees it as another worker's death.
fn is_survivable(error: &Error) -> bool {
    match error {
        // Newcomers that did not fit exit; the next group forms without them.
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
