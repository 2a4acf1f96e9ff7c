//! Formation of islands: excluded settings, their groups, and the source of their weights.

use std::sync::Arc;

use kolo_comm::Group;

use super::division::{divide, spanning};
use super::islands_mode::{Islands, OwnIsland};
use crate::config::Config;
use crate::replica::core::Core;
use crate::same_settings::Stated;
use crate::sync::choice::SyncMode;
use crate::sync::mode::{Made, another, refused};
use crate::verify::Verifier;
use kolo_optim::Optimizer;
use kolo_reduction::Error;
use kolo_reduction::state::StateCopy;
use kolo_straggler::Policy;

/// Creates the mode of a job; `optimizer` is that of an island. Errors: settings that exclude each other.
pub(super) fn make(config: &Config, world: usize, optimizer: Box<dyn Optimizer>) -> Result<Made, Error> {
    let rounds =
        config.sync.traits().rounds.unwrap_or_else(|| unreachable!("only modes with rounds are made here"));
    let shards = config.shards.unwrap_or(world);
    let count = config.islands.unwrap_or(shards);
    check(config, count, shards, &*optimizer)?;
    if let Some(problem) = rounds.obstacle(&*config.reduction)? {
        let problem = format!("reduction `{}`: {problem}", config.reduction.name());
        return Err(Error::ReductionRefused { problem });
    }
    let inner = Config {
        reduction: Config::default().reduction,
        straggler: Policy::Warn,
        verify_every: 0,
        sync: SyncMode::default(),
        islands: None,
        ..config.clone()
    };
    let outer = Config {
        shards: Some(count),
        // Set when the ranks that represent islands are known.
        shares: None,
        transforms: Vec::new(),
        groups: Vec::new(),
        loss_scaling: None,
        forward_overlap: false,
        ..config.clone()
    };
    let islands = Islands {
        rounds,
        count,
        shards,
        shares: Vec::new(),
        config: inner,
        optimizer,
        together: false,
        own: Vec::new(),
        here: 0,
        began: 0,
        rates: Vec::new(),
        ends: false,
        skipped: 0,
    };
    Ok(Made { config: outer, optimizer: rounds.outer_optimizer()?, mode: Box::new(islands) })
}

/// Returns an error for settings that islands exclude.
fn check(config: &Config, count: usize, shards: usize, optimizer: &dyn Optimizer) -> Result<(), Error> {
    let wrong = |problem: &str| Err(refused(config, problem));
    if count == 0 || !shards.is_multiple_of(count) {
        let problem =
            format!("cannot make {count} islands of {shards} shards; give a number that divides them");
        return wrong(&problem);
    }
    if config.elastic && config.shards.is_none() {
        return wrong(
            "needs a number of shards in an elastic job, because a worker that comes later cannot know it: set `Config::shards`",
        );
    }
    if another(optimizer).is_none() {
        let problem = format!(
            "needs an optimizer for each island, and `{}` cannot make another one: implement `Optimizer::another`",
            optimizer.name()
        );
        return wrong(&problem);
    }
    Ok(())
}

impl Islands {
    /// Forms the islands of the step after `steps` steps, with the outer values and without optimizer state.
    /// A collective.
    pub(super) fn form_all(&mut self, outer: &mut Core, steps: u64) -> Result<(), Error> {
        self.together = steps < self.rounds.together;
        let islands = divide(&self.shares, self.formed());
        let (group, rank) = (outer.ranks.group.clone(), outer.ranks.group.rank().0);
        let mut split: Vec<(usize, Arc<Group>)> = Vec::new();
        for set in spanning(&islands, group.world_size()) {
            if set.is_empty() {
                continue;
            }
            let own = set.into_iter().find(|number| islands[*number].ranks.contains(&rank));
            let part = group.split(own.map(|number| number as u32), 0)?;
            split.extend(own.zip(part.map(Arc::new)));
        }
        let caps = outer.observers.verifier.caps().or(self.config.caps);
        let mut own = Vec::new();
        for (number, island) in islands.iter().enumerate() {
            let ranks = &island.ranks;
            if !ranks.contains(&rank) {
                continue;
            }
            let group = match split.iter().find(|(of, _)| *of == number) {
                Some((_, group)) => group.clone(),
                None if ranks.len() == group.world_size() => group.clone(),
                None => Arc::new(Group::alone()),
            };
            let config = Config {
                shards: Some(island.shards.len()),
                shares: Some(island.counts.iter().map(|count| *count as f64).collect()),
                caps,
                // After a death the islands are formed anew.
                elastic: false,
                ..self.config.clone()
            };
            let specs = outer.weights.layout.spans().iter().map(|span| span.spec.clone()).collect();
            let optimizer = another(&*self.optimizer).ok_or(Error::Lost)?;
            let settings = Stated::of_job(&config, caps, &*optimizer)?;
            let mut core =
                Core::new(&group, specs, Arc::new(outer.weights.values.to_vec()), config, optimizer)?;
            core.observers.verifier = Verifier::silent();
            // A short last batch need not reach every island.
            core.step.allow_no_samples();
            let expected = core.meet(&group, &settings)?;
            core.begin_steps(group, expected)?;
            core.set_joined();
            core.set_steps(self.steps_of_optimizers(steps));
            // A pass that the program still holds from before is then recognized as not of this island.
            self.own.iter().for_each(|old| core.step.count_passes_after(&old.core.step));
            // Warnings are not repeated.
            if let Some(old) = self.own.first() {
                core.notices.known_unused.clone_from(&old.core.notices.known_unused);
            }
            let (first_shard, first_rank) = (island.shards.start, ranks.start);
            let speaks = island.first_holder() == rank;
            own.push(OwnIsland { number, first_shard, first_rank, speaks, core, losses: Vec::new() });
        }
        (self.own, self.here, self.began) = (own, 0, steps);
        self.rates.clear();
        self.ends = false;
        Ok(())
    }

    /// Returns true if the islands' optimizers begin each round without state.
    pub(super) fn restarts(&self) -> bool {
        self.rounds.restart_inner && !self.together
    }

    /// Returns the job's step that the islands count as their step 0.
    pub(super) fn first_step_of_optimizers(&self) -> u64 {
        self.began - self.steps_of_optimizers(self.began)
    }

    /// Returns the number of steps that the islands' optimizers count at the beginning of a round, after
    /// `steps` steps of the job.
    pub(super) fn steps_of_optimizers(&self, steps: u64) -> u64 {
        if self.restarts() { 0 } else { steps }
    }

    /// Begins the first round, after the last step in which all shards synchronized: every island starts
    /// from the common state.
    pub(super) fn part(&mut self, outer: &mut Core) -> Result<(), Error> {
        let Some(OwnIsland { core: mut last, .. }) = self.own.pop() else { return Ok(()) };
        self.form_all(outer, outer.progress.steps)?;
        let restarts = self.restarts();
        let state = StateCopy::of(outer.weights.layout.len(), |visit| last.weights.visit_state(visit));
        for OwnIsland { core, .. } in &mut self.own {
            core.set_notes(last.notes())?;
            match restarts {
                true => core.scaler.count_anew(),
                false => state.fill(|visit| core.weights.visit_state(visit)),
            }
        }
        Ok(())
    }
}
