//! A replica in a job whose workers may change: it finds its next group by itself.

use std::sync::Arc;

use kolo_comm::{Group, Rank};
use kolo_elastic::{Generation, Member};

use super::undo::Undo;
use super::{Config, Replica};
use crate::error::Error;
use crate::layout::ParamSpec;
use crate::optimizer::Optimizer;

/// Groups that may fail one after another before a replica gives up.
const TRIES: usize = 100;

/// What became of a worker after a step that changed the members of the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Change {
    /// All is as before.
    #[default]
    None,
    /// It goes on with other ranks: its rank, and its shards, may be others.
    Regrouped,
    /// It has left, as it was asked to ([`Replica::leave`]). Its values are those of the whole step.
    Left,
    /// It has left, and all others with it: the job is over, and one of them, say rank 0, should save what it has come to. The
    /// group can still be used for that.
    AllLeft,
}

impl Replica {
    /// As [`Replica::new`], as a member of an elastic job: it takes the state of the others where they have begun.
    ///
    /// # Errors
    ///
    /// As [`Replica::new`]; or too few workers are there.
    pub fn elastic(
        mut member: Member,
        specs: &[ParamSpec],
        values: &[f32],
        config: &Config,
        optimizer: impl Fn(usize) -> Box<dyn Optimizer>,
    ) -> Result<Self, Error> {
        let config = Config { elastic: true, ..config.clone() };
        let mut last: Option<(Arc<Group>, String)> = None;
        for _ in 0..TRIES {
            let group = Arc::new(member.join(last.as_ref().map(|(_, reason)| reason.as_str()))?);
            match Replica::new(group.clone(), specs.to_vec(), values.to_vec(), &config, &optimizer) {
                Ok(mut replica) => {
                    member.settle();
                    replica.member = Some(member);
                    return Ok(replica);
                }
                // Kept until there is the next one: others may still read what it has sent.
                Err(error) if passes(&error) => last = Some((group, error.to_string())),
                Err(error) => return Err(error),
            }
        }
        Err(gave_up())
    }

    /// After an error of [`Replica::step`] or any other call: goes on with those that are left, and whoever has come, where
    /// the error is the death of another worker and the job is elastic; else returns the error. Afterwards
    /// [`Replica::steps`] says which step is to be done next: the one that failed, or the one after it.
    ///
    /// # Errors
    ///
    /// `error` itself, or what stands in the way of going on. If too few workers are left
    /// ([`TooFew`](kolo_comm::Error::TooFew)) this one can save what it has come to, or go on alone
    /// ([`Replica::regroup`] with [`Group::alone`]).
    pub fn recover(&mut self, error: Error) -> Result<(), Error> {
        let Some(mut member) = self.member.take().filter(|_| passes(&error)) else { return Err(error) };
        log::info!("{error}; going on with the others");
        let result = self.next_group(&mut member, error.to_string());
        self.member = Some(member);
        result
    }

    /// At the end of its next step this worker leaves the job, which goes on without it.
    pub fn leave(&mut self) {
        self.leaving = true;
    }

    /// The generation of the job that this replica trains in, in an elastic job.
    pub fn generation(&self) -> Option<&Generation> {
        self.member.as_ref().and_then(Member::current)
    }

    /// At the end of the next step `rank` leaves the job, as by [`Replica::leave`], which goes on without it; `reason` is what the
    /// launcher says then. To be called by all ranks after the same step, as when a report names a straggler. A change of the
    /// group before that takes it back.
    pub fn leave_out(&mut self, rank: Rank, reason: &str) {
        self.parting = Some((rank, reason.into()));
    }

    /// Whether this rank leaves after the step that runs.
    pub(super) fn leaves(&self) -> bool {
        self.leaving || self.parting.as_ref().is_some_and(|(rank, _)| *rank == self.group.rank())
    }

    /// Whether a step has been taken back after some of its updates had been made. Nothing can be saved before it has been done
    /// again.
    pub fn is_halfway(&self) -> bool {
        self.undo.as_ref().is_some_and(Undo::is_halfway)
    }

    /// Whether this rank wants the members of the job to change after the step that runs.
    pub(super) fn wants_change(&self) -> bool {
        let changes = |member: &Member| self.leaving || self.parting.is_some() || member.change_wanted();
        self.member.as_ref().is_some_and(changes)
    }

    /// After a step that all ranks have agreed on as the last one of the group. `stays`: not all of them leave.
    pub(super) fn change(&mut self, stays: bool) -> Result<Change, Error> {
        self.settle()?;
        if !stays {
            return Ok(Change::AllLeft);
        }
        let Some(mut member) = self.member.take() else { return Ok(Change::None) };
        if self.leaves() {
            return Ok(Change::Left);
        }
        let reason = self.parting.take().map(|(_, reason)| reason);
        let result = self.next_group(&mut member, reason.unwrap_or_else(|| "workers come or go".into()));
        self.member = Some(member);
        result.map(|()| Change::Regrouped)
    }

    fn next_group(&mut self, member: &mut Member, mut reason: String) -> Result<(), Error> {
        for _ in 0..TRIES {
            let group = match member.join(Some(&reason)) {
                Ok(group) => Arc::new(group),
                Err(error) => {
                    self.roll_back();
                    return Err(error.into());
                }
            };
            match self.regroup(group.clone()) {
                Ok(()) => return Ok(()),
                Err(error) if passes(&error) => reason = error.to_string(),
                Err(error) => return Err(error),
            }
        }
        Err(gave_up())
    }
}

/// Whether others can go on after it: another worker's death, as this one sees it.
fn passes(error: &Error) -> bool {
    match error {
        Error::Lost => true,
        Error::Comm(error) => error.is_lost_peer(),
        _ => false,
    }
}

fn gave_up() -> Error {
    Error::Setting(format!("{TRIES} groups have failed one after another before a step was done"))
}
