//! State of islands, between two rounds. After an outer step the islands' weights are all the job's; the
//! states of their optimizers differ.

use kolo_comm::Rank;

use super::division::divide;
use super::islands_mode::{Islands, OwnIsland};
use crate::replica::core::Core;
use crate::replica::notes::{JobNotes, Notes};
use crate::sync::mode::ModeState;
use crate::warning::Warning;
use kolo_optim::Optimizer;
use kolo_reduction::Error;
use kolo_reduction::state::{StateKind, StateName, Visit};
use kolo_step::LossScaler;

impl ModeState for Islands {
    fn visit_weights(&mut self, core: &mut Core, visit: &mut Visit<'_>) {
        core.weights.visit_state(&mut |mut part| {
            if part.name.kind == StateKind::Optimizer {
                part.name.name.insert_str(0, "outer/");
            }
            visit(part);
        });
        // An optimizer that begins each round without state has none now.
        if self.restarts() {
            return;
        }
        let together = self.together;
        for OwnIsland { number, core, .. } in &mut self.own {
            core.weights.visit_state(&mut |mut part| {
                if part.name.kind == StateKind::Optimizer {
                    let name = &part.name.name;
                    part.name = match together {
                        true => StateName::of_job(StateKind::Optimizer, format!("island{number}/{name}")),
                        false => StateName::of_shard(StateKind::Optimizer, name, *number),
                    };
                    visit(part);
                }
            });
        }
    }

    fn notes(&mut self, core: &mut Core) -> Result<JobNotes, Error> {
        core.apply_outstanding()?;
        self.own.iter_mut().try_for_each(|island| island.core.apply_outstanding())?;
        let islands: Vec<Notes> = self.represented().map(|island| island.core.notes()).collect();
        Ok(JobNotes { islands, skipped_steps: self.skipped, ..JobNotes::of_core(core.notes()) })
    }

    fn check_stores(&mut self, core: &mut Core) -> Result<(), Error> {
        self.own.iter_mut().try_for_each(|island| island.core.check_store())?;
        core.check_store()
    }

    fn set_notes(&mut self, core: &mut Core, notes: JobNotes) -> Result<(), Error> {
        self.skipped = notes.skipped_steps;
        for island in &mut self.own {
            island.core.weights.values.copy_from_slice(&core.weights.values);
            if let Some(notes) = notes.islands.get(island.number) {
                island.core.set_notes(notes.clone())?;
            }
        }
        core.set_notes(notes.core)
    }

    fn expect_all(&self, core: &Core) -> Result<(), Error> {
        match self.represented().count() == self.formed() {
            true => core.expect_all_shards(),
            false => Err(Error::IslandsElsewhere),
        }
    }

    fn first_notes(&self, core: &Core) -> Vec<Notes> {
        let loss_scale = LossScaler::new(self.config.loss_scaling).now();
        vec![Notes { loss_scale, ..core.first_notes() }; self.formed()]
    }

    /// Returns the ranks that hold shards of an island of the job; each of them has an optimizer for it.
    fn holders(&self, _: &Core, island: usize) -> Vec<Rank> {
        let islands = divide(&self.shares, self.count);
        islands.get(island).map_or(Vec::new(), |island| island.ranks.clone().map(Rank).collect())
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
