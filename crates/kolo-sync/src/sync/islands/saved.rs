//! Checkpoints of islands. After an outer step the islands' weights are all the job's; the states of their
//! optimizers differ.

use std::sync::Arc;

use kolo_checkpoint::{Part, Reader, Set, state_prefix};
use kolo_comm::{Group, Rank};
use serde::{Deserialize, Serialize};

use super::islands_mode::Islands;
use super::state::IslandState;
use crate::replica::backup::copies::ShardNotes;
use crate::replica::core::Core;
use crate::sync::mode::{Copied, ModeState, Saved};
use crate::warning::Warning;
use kolo_optim::Optimizer;
use kolo_reduction::Error;
use kolo_step::LossScale;

/// Entry of a checkpoint: state of the islands' loss scaling.
const ISLAND_LOSS_SCALES: &str = "island_loss_scales";

/// State of loss scaling in a job with islands.
#[derive(Default, Serialize, Deserialize)]
struct IslandScales {
    /// Number of skipped steps, counted for each island.
    skipped_steps: u64,
    islands: Vec<LossScale>,
}

/// Message of an island's first rank, before it sends the states.
#[derive(Serialize, Deserialize)]
struct Announced {
    states: Vec<String>,
    uses: Vec<u32>,
    loss_scale: LossScale,
}

/// Returns the name of an optimizer state of an island.
fn of_island(island: usize, state: &str) -> String {
    format!("island{island}/{state}")
}

/// Returns the name of a state of the outer optimizer.
fn of_outer(state: &str) -> String {
    format!("outer/{state}")
}

impl Islands {
    /// Returns the state of the islands that this rank represents.
    fn own_states(&mut self) -> Result<Vec<IslandState>, Error> {
        let restarts = self.restarts();
        let state = |core: &mut Core| {
            core.apply_outstanding()?;
            let (uses, loss_scale) = (core.step.expected_uses().to_vec(), core.scaler.now());
            // An optimizer that begins each round without state has none now.
            if restarts {
                return Ok(IslandState { states: Vec::new(), uses, loss_scale });
            }
            let states = core.weights.optimizer.state().into_iter();
            Ok(IslandState {
                states: states.map(|(name, state)| (name.into(), state.to_vec())).collect(),
                uses,
                loss_scale,
            })
        };
        self.own.iter_mut().filter(|island| island.speaks).map(|island| state(&mut island.core)).collect()
    }
}

impl ModeState for Islands {
    /// Brings the state of all islands to rank 0.
    fn gather(&mut self, outer: &mut Core) -> Result<(), Error> {
        let (group, len) = (&outer.ranks.group, outer.weights.layout.len());
        let own = self.own_states()?;
        let announced = |state: &IslandState| Announced {
            states: state.states.iter().map(|(name, _)| name.clone()).collect(),
            uses: state.uses.clone(),
            loss_scale: state.loss_scale,
        };
        let announced: Vec<Announced> = own.iter().map(announced).collect();
        let told: Vec<Vec<Announced>> = group.all_gather_value(&announced)?;
        if group.rank() != Rank(0) {
            let mut states = own.iter().flat_map(|state| &state.states);
            return Ok(states.try_for_each(|(_, state)| group.send(state, Rank(0)))?);
        }
        let mut all = own;
        for (rank, islands) in told.into_iter().enumerate().skip(1) {
            for Announced { states, uses, loss_scale } in islands {
                let receive = |name: String| {
                    let mut state = vec![0.0; len];
                    group.receive(&mut state, Rank(rank))?;
                    Ok::<_, Error>((name, state))
                };
                let states = states.into_iter().map(receive).collect::<Result<_, _>>()?;
                all.push(IslandState { states, uses, loss_scale });
            }
        }
        self.gathered = Some((outer.progress.steps, all));
        Ok(())
    }

    fn save(&mut self, core: &mut Core) -> Result<Saved, Error> {
        let own = self.own.iter().filter(|island| island.speaks).count();
        let here;
        let all = match &self.gathered {
            Some((steps, all)) if *steps == core.progress.steps && all.len() == self.formed() => all,
            _ if own == self.formed() => {
                here = self.own_states()?;
                &here
            }
            _ => return Err(Error::IslandsElsewhere),
        };
        let mut parts = vec![Part::weights(&core.weights.values)];
        let outer = core.weights.optimizer.state();
        parts.extend(outer.into_iter().map(|(name, state)| Part::state(&of_outer(name), state)));
        for (number, island) in all.iter().enumerate() {
            let states = island.states.iter();
            parts.extend(states.map(|(name, state)| Part::state(&of_island(number, name), state)));
        }
        let scales = IslandScales {
            skipped_steps: self.skipped,
            islands: all.iter().map(|island| island.loss_scale).collect(),
        };
        let is_scaled = self.config.loss_scaling.is_some() || self.skipped > 0;
        let uses = all.iter().flat_map(|island| island.uses.iter().copied()).collect();
        let entry =
            |scales| serde_json::to_value(scales).map_err(|e| Error::Setting(format!("loss scales: {e}")));
        let scales = is_scaled.then(|| entry(scales)).transpose()?;
        Ok(Saved {
            parts,
            uses,
            entries: scales.map(|scales| (ISLAND_LOSS_SCALES, scales)).into_iter().collect(),
        })
    }

    fn load(&mut self, core: &mut Core, reader: &Reader) -> Result<(), Error> {
        reader.read(Set::Weights, "", &core.weights.layout, 0, &mut core.weights.values)?;
        reader.expect_no_others(&core.weights.layout)?;
        for (name, state) in core.weights.optimizer.state() {
            reader.read(Set::Optimizer, &state_prefix(&of_outer(name)), &core.weights.layout, 0, state)?;
        }
        let spans = core.weights.layout.spans().len();
        let uses = reader.uses()?.filter(|uses| uses.len() == spans * self.formed());
        let scales: IslandScales = reader.entry(ISLAND_LOSS_SCALES)?.unwrap_or_default();
        self.skipped = scales.skipped_steps;
        let restarts = self.restarts();
        let mut states = Vec::new();
        for island in &mut self.own {
            let (number, inner) = (island.number, &mut island.core);
            inner.weights.values.copy_from_slice(&core.weights.values);
            inner.set_loss_scale(scales.islands.get(number).copied());
            if let Some(uses) = &uses {
                inner.step.expect_uses(uses[number * spans..(number + 1) * spans].to_vec());
            }
            if restarts {
                continue;
            }
            let own = inner.weights.optimizer.state().into_iter();
            states.extend(own.map(|(name, state)| (state_prefix(&of_island(number, name)), state)));
        }
        Ok(reader.read_all(Set::Optimizer, &core.weights.layout, 0, states)?)
    }

    fn copy(&mut self, group: &Arc<Group>) -> Result<Copied, Error> {
        self.copy_islands(group)
    }

    fn put_back(&mut self, notes: &[ShardNotes], common: &[Vec<f32>], skipped_steps: u64) {
        self.put_back_islands(notes, common, skipped_steps);
    }

    fn put_back_shard(&mut self, shard: usize, values: &[f32]) {
        self.put_back_state(shard, values);
    }

    fn holders(&self, _: &Core, shard: usize) -> Vec<Rank> {
        self.ranks_of(shard)
    }

    fn loss(&self, shards: usize) -> Option<Warning> {
        Some(Warning::IslandStateLost { islands: (0..shards).collect() })
    }

    /// Number of steps skipped until the last outer step, counted for each island.
    fn skipped_steps(&self, _: &Core) -> u64 {
        self.skipped
    }

    /// Returns the template of the islands' optimizers.
    fn into_optimizer(self: Box<Self>, _: Box<dyn Optimizer>) -> Box<dyn Optimizer> {
        self.optimizer
    }
}
