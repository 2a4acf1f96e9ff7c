//! What checkpoints hold of islands. Their weights are all the same after an outer step, and those of the
//! job; their optimizers' states are not.

use kolo_checkpoint::{Part, Reader, Set, state_prefix};
use kolo_comm::Rank;
use serde::{Deserialize, Serialize};

use super::super::Replica;
use super::Islands;
use crate::error::Error;
use crate::loss_scaling::LossScale;

/// The entry of a checkpoint that says where the islands' loss scaling stands.
pub(crate) const ISLAND_LOSS_SCALES: &str = "island_loss_scales";

/// What one island goes on with, besides the job's weights.
pub(super) struct IslandState {
    /// State of its optimizer, by name.
    states: Vec<(String, Vec<f32>)>,
    uses: Vec<u32>,
    loss_scale: LossScale,
}

/// The parts of a checkpoint; how often each tensor is expected to be used, in a job with islands by each of
/// them; and where the islands' losses are scaled, how.
pub(crate) type Saved = (Vec<Part>, Vec<u32>, Option<IslandScales>);

/// Where loss scaling stands in a job with islands.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct IslandScales {
    /// Steps that were skipped, those of each island counted.
    skipped_steps: u64,
    islands: Vec<LossScale>,
}

/// What the first rank of an island says of it, before it sends the states.
#[derive(Serialize, Deserialize)]
struct Announced {
    states: Vec<String>,
    uses: Vec<u32>,
    loss_scale: LossScale,
}

/// The name of an optimizer's state of an island.
fn of_island(island: usize, state: &str) -> String {
    format!("island{island}/{state}")
}

/// The name of the outer optimizer's state.
fn of_outer(state: &str) -> String {
    format!("outer/{state}")
}

impl Islands {
    /// What this rank's islands hold for which it speaks.
    fn own_states(&mut self) -> Result<Vec<IslandState>, Error> {
        let restarts = self.restarts();
        let state = |replica: &mut Replica| {
            replica.apply_outstanding()?;
            let (uses, loss_scale) = (replica.step.expected_uses().to_vec(), replica.scaler.now());
            // An optimizer that begins each round without state has none now.
            if restarts {
                return Ok(IslandState { states: Vec::new(), uses, loss_scale });
            }
            let states = replica.optimizer.state().into_iter();
            Ok(IslandState {
                states: states.map(|(name, state)| (name.into(), state.to_vec())).collect(),
                uses,
                loss_scale,
            })
        };
        self.own.iter_mut().filter(|island| island.speaks).map(|island| state(&mut island.replica)).collect()
    }

    /// Brings the state of all islands to rank 0. A collective.
    pub(in crate::replica) fn gather(&mut self, outer: &Replica) -> Result<(), Error> {
        let (group, len) = (&outer.group, outer.layout.len());
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
        self.gathered = Some((outer.steps, all));
        Ok(())
    }
}

impl Replica {
    /// Brings the state of all islands to rank 0, if there are islands and a round has ended.
    pub(in crate::replica) fn gather_islands(&mut self) -> Result<(), Error> {
        let Some(mut islands) = self.islands.take() else { return Ok(()) };
        let result = if islands.is_between_rounds() { islands.gather(self) } else { Ok(()) };
        self.islands = Some(islands);
        result
    }

    /// What a checkpoint holds of a job with islands; `None` where there are none.
    ///
    /// # Errors
    ///
    /// A round has not ended, or the state of other ranks' islands is not here.
    pub(crate) fn parts_of_islands(&mut self) -> Result<Option<Saved>, Error> {
        let Some(mut islands) = self.islands.take() else { return Ok(None) };
        let result = self.parts_with(&mut islands);
        self.islands = Some(islands);
        result.map(Some)
    }

    fn parts_with(&mut self, islands: &mut Islands) -> Result<Saved, Error> {
        if !islands.is_between_rounds() {
            return Err(Error::RoundNotOver { step: self.steps, began: islands.began });
        }
        let own = islands.own.iter().filter(|island| island.speaks).count();
        let here;
        let all = match &islands.gathered {
            Some((steps, all)) if *steps == self.steps && all.len() == islands.formed() => all,
            _ if own == islands.formed() => {
                here = islands.own_states()?;
                &here
            }
            _ => return Err(Error::IslandsElsewhere),
        };
        let mut parts = vec![Part::weights(&self.values)];
        let outer = self.optimizer.state();
        parts.extend(outer.into_iter().map(|(name, state)| Part::state(&of_outer(name), state)));
        for (number, island) in all.iter().enumerate() {
            let states = island.states.iter();
            parts.extend(states.map(|(name, state)| Part::state(&of_island(number, name), state)));
        }
        let scales = IslandScales {
            skipped_steps: islands.skipped,
            islands: all.iter().map(|island| island.loss_scale).collect(),
        };
        let is_scaled = islands.config.loss_scaling.is_some() || islands.skipped > 0;
        let uses = all.iter().flat_map(|island| island.uses.iter().copied()).collect();
        Ok((parts, uses, is_scaled.then_some(scales)))
    }

    /// Reads what a checkpoint holds of a job with islands, which have been formed for its step; says whether
    /// this is one.
    ///
    /// # Errors
    ///
    /// Names the file that is damaged or missing, or the first tensor that does not fit.
    pub(crate) fn fill_islands(&mut self, reader: &Reader) -> Result<bool, Error> {
        let Some(mut islands) = self.islands.take() else { return Ok(false) };
        let result = self.fill_with(&mut islands, reader);
        self.islands = Some(islands);
        result.map(|()| true)
    }

    fn fill_with(&mut self, islands: &mut Islands, reader: &Reader) -> Result<(), Error> {
        reader.read(Set::Weights, "", &self.layout, 0, &mut self.values)?;
        reader.expect_no_others(&self.layout)?;
        for (name, state) in self.optimizer.state() {
            reader.read(Set::Optimizer, &state_prefix(&of_outer(name)), &self.layout, 0, state)?;
        }
        let spans = self.layout.spans().len();
        let uses = reader.uses()?.filter(|uses| uses.len() == spans * islands.formed());
        let scales: IslandScales = reader.entry(ISLAND_LOSS_SCALES)?.unwrap_or_default();
        islands.skipped = scales.skipped_steps;
        let restarts = islands.restarts();
        let mut states = Vec::new();
        for island in &mut islands.own {
            let (number, replica) = (island.number, &mut island.replica);
            replica.values.copy_from_slice(&self.values);
            replica.set_loss_scale(scales.islands.get(number).copied());
            if let Some(uses) = &uses {
                replica.step.expect_uses(uses[number * spans..(number + 1) * spans].to_vec());
            }
            if restarts {
                continue;
            }
            let own = replica.optimizer.state().into_iter();
            states.extend(own.map(|(name, state)| (state_prefix(&of_island(number, name)), state)));
        }
        Ok(reader.read_all(Set::Optimizer, &self.layout, 0, states)?)
    }
}
