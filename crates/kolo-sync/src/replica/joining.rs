//! Agreement of a new group's ranks on one state: that of the rank that is furthest.
//!
//! No two ranks of one group are more than a step apart, because a step needs all of them; with islands that
//! synchronize rarely, an outer step apart. A rank that has all of a step's updates sends its state to all;
//! if all are equally far, no state is sent. A step that no rank has completed is repeated by all. State
//! that only one rank holds comes from copies (`backup`), and divided state from its owners (`handover`).

use std::sync::Arc;

use kolo_comm::{Group, Rank};
use kolo_optim::{Span, SpanId};
use serde::{Deserialize, Serialize};

use super::assignment;
use super::core::Core;
use super::notes::Notes;
use super::weights::Weights;
use crate::replica::straggler_observer::StragglerObserver;
use crate::same_model;
use crate::same_settings::Stated;
use crate::sharding::Sharding;
use kolo_reduction::state::{Holdings, StateCopy, StateKind, redistribute, transfer};
use kolo_reduction::{BucketCaps, Error};
use kolo_step::{Division, LastStep, Step};
use kolo_values::Undo;

/// A rank's message to the others before the first step of a group. It says whether the rank's values are
/// the job's, its steps and shards, whether it holds blocks of a step that has been rolled back, and whether
/// the rank is a server.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Standing {
    joined: bool,
    steps: u64,
    shards: usize,
    halfway: bool,
    server: bool,
    /// Fingerprint of a newcomer's values, where these are to be divided: equal ones need not be sent.
    print: Option<u64>,
}

/// Returns the rank that sends its state to all, if that is needed: the first of the workers that are
/// furthest. A server is never the donor: it counts a step when its own part is done, so it may be further
/// than the workers, or go back with them.
fn donor(standings: &[Standing]) -> Option<Rank> {
    let furthest = |standing: &Standing| (standing.joined, standing.steps);
    let most = standings.iter().filter(|standing| !standing.server).map(furthest).max()?;
    let first = standings.iter().position(|standing| !standing.server && furthest(standing) == most)?;
    let are_equal = most.0
        || standings[0]
            .print
            .is_some_and(|print| standings.iter().all(|standing| standing.print == Some(print)));
    let same = are_equal && standings.iter().all(|standing| furthest(standing) == most);
    (!same).then_some(Rank(first))
}

impl Core {
    /// Returns an error if a trained parameter is not finite from the start; constants of the model may be.
    pub fn look_at_first_values(&mut self) -> Result<(), Error> {
        self.weights.look_anew_together()?;
        let spans = self.weights.layout.spans().iter().enumerate().zip(self.weights.overflow.given());
        let is_trained = |number: usize, span: &Span| {
            span.spec.kind.is_trained() && !self.weights.groups.is_frozen(SpanId(number))
        };
        let mut wrong = spans.filter(|((number, span), given)| **given && is_trained(*number, span));
        match wrong.next() {
            Some(((_, span), _)) => Err(Error::FirstNotFinite { parameter: span.spec.name.clone() }),
            None => Ok(()),
        }
    }

    /// Bucket sizes, if the program or `kolo verify` sets them.
    pub fn caps(&self) -> Option<BucketCaps> {
        self.observers.verifier.caps().or(self.config.caps)
    }

    /// Compares models and settings with the ranks of `group`, and takes the state of the rank that is
    /// furthest. Returns the number of times that the next step is expected to use each tensor. A
    /// collective.
    ///
    /// # Errors
    ///
    /// The ranks differ in something (naming it), cannot train together, or a collective failed (naming the
    /// rank).
    pub fn meet(&mut self, group: &Arc<Group>, settings: &Stated) -> Result<Vec<u32>, Error> {
        same_model::check(group, &self.weights.layout, settings, self.progress.joined)?;
        let (joined, steps, shards, halfway) =
            (self.progress.joined, self.progress.steps, self.ranks.shards, self.is_halfway());
        let print = if joined { None } else { self.initial_print() };
        let own = Standing { joined, steps, shards, halfway, server: self.ranks.server, print };
        let standings: Vec<Standing> = group.all_gather_value(&own)?;
        self.ranks.servers = standings.iter().map(|standing| standing.server).collect();
        if !self.progress.joined && self.config.shards.is_none() {
            self.ranks.shards = assignment::count_workers(&self.ranks.servers);
        }
        assignment::check_ranks(&self.config, self.ranks.shards, group, &self.ranks.servers)?;
        if !self.progress.joined {
            self.step.expect_uses(self.first_notes().uses);
        }
        // Where the state is divided, no rank has all of it.
        let is_divided = match self.shares_memory() {
            true => self.meet_in_memory(group).map(|()| true)?,
            false => self.moves_parts() && self.meet_owners(group)?,
        };
        let donor = if is_divided { None } else { donor(&standings) };
        if let Some(standing) = standings.iter().find(|standing| is_divided && standing.joined) {
            self.ranks.shards = standing.shards;
        }
        if let Some(donor) = donor {
            self.take_over(group, donor, standings[donor.0])?;
        }
        Ok(self.step.expected_uses().to_vec())
    }

    /// Declares the values to be the job's from now on.
    pub fn set_joined(&mut self) {
        self.progress.joined = true;
        if self.ranks.server {
            self.weights.undo = None;
        } else if self.config.elastic
            && self.overlaps()
            && !self.traits().is_delayed
            && self.weights.share.is_none()
            && self.weights.undo.is_none()
        {
            self.weights.undo = Some(Undo::new(&self.weights.layout));
        }
    }

    /// Returns true if a step has been rolled back after some of its updates were applied.
    pub fn is_halfway(&self) -> bool {
        self.weights.undo.as_ref().is_some_and(Undo::is_halfway)
    }

    /// Creates the step of a group whose ranks hold one state; `expected` is the number of times that its
    /// first run is expected to use each tensor.
    pub fn begin_steps(&mut self, group: Arc<Group>, expected: Vec<u32>) -> Result<(), Error> {
        let caps = self.caps().unwrap_or_else(|| self.config.sharding.caps(&group));
        let (shares, policy) =
            assignment::agree(&group, &self.config, self.ranks.shards, &self.ranks.servers)?;
        self.divide_values(&group)?;
        self.step = self.make_step(&group, &shares, caps, expected)?;
        if self.config.sharding == Sharding::Parameters {
            // Passes wait for the values of other ranks, so none may end in the middle of one.
            self.step.check_algorithm()?;
        }
        self.begin_tuning(&group, caps);
        self.observers.stragglers = StragglerObserver::new(policy, shares, self.ranks.servers.clone());
        self.ranks.group = group;
        Ok(())
    }

    /// Creates a [`Step`] over the ranks of `group` that continues where the last one ended.
    fn make_step(
        &self,
        group: &Arc<Group>,
        shares: &[usize],
        caps: BucketCaps,
        expected: Vec<u32>,
    ) -> Result<Step, Error> {
        let (layout, servers) = (self.weights.layout.clone(), self.ranks.servers.clone());
        let Weights { share, host, .. } = &self.weights;
        let of_host = host.as_ref().map(|host| host.owners.clone());
        let owners = share.as_ref().map(|share| share.owners().clone()).or(of_host);
        let division = owners.map(|owners| match self.config.sharding {
            Sharding::Gradients => Division::of_gradients(owners, group.world_size()),
            Sharding::Parameters => {
                let stays = |number| self.divided(SpanId(number)).is_some();
                let stay = (0..layout.spans().len()).map(stays).collect();
                Division::of_gradients(owners, group.world_size()).with_values_of(stay)
            }
            Sharding::Nothing | Sharding::Optimizer | Sharding::Host => Division::of_updates(owners),
        });
        let reducer = self.config.reduction.clone();
        let mut step = Step::new(group.clone(), layout, shares, servers, reducer, caps, division)?;
        if self.observers.noise.is_on() {
            step.measure_shards();
        }
        step.follow(&self.step, expected);
        if !self.config.turns.is_empty() {
            step.expect_most_uses();
        }
        if self.traits().staleness_bound.is_some() {
            // A worker's own gradient goes to the servers even if it is of no samples.
            step.synchronize(false);
            step.allow_no_samples();
        }
        Ok(step)
    }

    /// Creates another [`Step`] like the core's own.
    pub(crate) fn another_step(&self) -> Result<Step, Error> {
        let expected = self.step.expected_uses().to_vec();
        self.make_step(&self.ranks.group, self.step.shares(), self.step.caps(), expected)
    }

    /// Takes the state of `donor`. Each rank keeps its own state until it has received everything, because
    /// the donor may die meanwhile.
    fn take_over(&mut self, group: &Group, donor: Rank, standing: Standing) -> Result<(), Error> {
        let mut list = Holdings::of(|visit| self.weights.visit_state(visit));
        if !standing.joined {
            // Before the first step there is no other state to send.
            list = list.filtered(|name| name.kind == StateKind::Weights);
        }
        let mut have = vec![Holdings::default(); group.world_size()];
        have[donor.0] = list.clone();
        let transfers = redistribute(&have, &vec![list; group.world_size()])?;
        let mut arrays = StateCopy::of(self.weights.layout.len(), |visit| self.weights.visit_state(visit));
        self.check_store()?;
        transfer(group, &transfers, &mut arrays)?;
        let (known, notes): (Vec<LastStep>, Notes) =
            group.broadcast_value((self.last_steps(), self.notes()), donor)?;
        let mut undo = None;
        if standing.halfway {
            let undo =
                undo.insert(self.weights.undo.clone().unwrap_or_else(|| Undo::new(&self.weights.layout)));
            let (mut reverted, other) = undo.reverted();
            group.broadcast(&mut reverted, donor)?;
            group.broadcast(other, donor)?;
            undo.take_over(&reverted);
        }
        arrays.fill(|visit| self.weights.visit_state(visit));
        self.weights.undo = undo;
        self.progress.steps = standing.steps;
        self.set_last_steps(known);
        if standing.joined {
            self.ranks.shards = standing.shards;
        }
        self.set_notes(notes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_furthest_gives() {
        let rank =
            |joined, steps| Standing { joined, steps, shards: 4, halfway: false, server: false, print: None };
        let new = |print| Standing { print: Some(print), ..rank(false, 0) };
        let server = |steps| Standing { server: true, ..rank(true, steps) };
        for (standings, expected) in [
            (vec![rank(false, 0), rank(false, 0)], Some(0)),
            (vec![new(7), new(7), new(7)], None),
            (vec![new(7), new(7), new(8)], Some(0)),
            (vec![rank(false, 0), rank(true, 0)], Some(1)),
            (vec![rank(true, 7), rank(true, 7)], None),
            (vec![rank(true, 7), rank(false, 0), rank(true, 7)], Some(0)),
            (vec![rank(true, 6), rank(true, 7), rank(true, 7)], Some(1)),
            (vec![rank(true, 7), server(8), rank(true, 7)], Some(0)),
            (vec![rank(true, 6), server(7), rank(true, 7)], Some(2)),
            (vec![server(7), rank(true, 7)], None),
            (vec![server(7), rank(false, 0)], Some(1)),
        ] {
            assert_eq!(donor(&standings), expected.map(Rank), "{standings:?}");
        }
    }
}
