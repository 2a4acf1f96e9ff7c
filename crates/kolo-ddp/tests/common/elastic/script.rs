//! A [`Script`] lists the events of a run of an elastic job: the deaths and the joining workers.

use kolo_ddp::Sharding;
use kolo_ddp::key::Key;

use crate::common::{Combination, NAMES};

/// Steps of a run.
pub const STEPS: u64 = 16;

/// Moments of a step at which a worker may die: before it, after requesting each tensor of the next forward
/// pass, after all backward passes, and when the ranks have agreed but not all reductions are over.
pub const MOMENTS: usize = 3 + NAMES.len() + 1;

/// Events of a run: the ranks of each generation, of which one dies in some step at some moment.
#[derive(Debug)]
pub struct Script {
    pub combination: Combination,
    /// Shards of the job.
    pub shards: usize,
    pub clip_norm: Option<f64>,
    /// True if losses are scaled; then two steps overflow.
    pub scaled: bool,
    /// Way to synchronize shards, and the number of islands if rarely.
    pub sync: String,
    pub islands: Option<usize>,
    /// True if steps are tuned, each with another setting.
    pub tuned: bool,
    /// True if the program adds a transform of its own with state from earlier steps.
    pub smoothed: bool,
    /// Owners of each part of the optimizer's state; 0 if each worker has all of it.
    pub owners: usize,
    /// State that is divided, if there are `owners`; or one copy of it for all workers of the host.
    pub sharding: Sharding,
    /// True if the algorithm that supports servers is used for everything.
    pub direct: bool,
    pub generations: Vec<Generation>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    Worker,
    Server,
}

#[derive(Debug)]
pub struct Generation {
    /// Number of workers, whose ranks are before those of summation servers.
    pub world: usize,
    /// Number of new workers among them.
    pub fresh: usize,
    /// Number of summation servers, and of new ones among them.
    pub servers: [usize; 2],
    /// Rank, step and moment of the death; none in the last generation.
    pub death: Option<(usize, u64, usize)>,
    /// True if each rank continues alone.
    pub alone: bool,
}

impl Generation {
    fn of(world: usize, fresh: usize, death: Option<(usize, u64, usize)>) -> Self {
        Generation { world, fresh, servers: [0; 2], death, alone: false }
    }
}

/// Role of a rank that dies, the step and the moment in it.
type Death = (Role, u64, usize);

impl Script {
    /// 4 ranks at first; each death may bring a new one.
    pub fn new(seed: u64, combination: &Combination, clip_norm: Option<f64>, scaled: bool) -> Script {
        let key = Key::new(seed);
        let deaths = 1 + key.with(0).below(3);
        let mut steps: Vec<u64> =
            (0..deaths).map(|n| 7 + key.with(1).with(n as u64).below(STEPS as usize - 10) as u64).collect();
        steps.sort();
        // The others may complete the step in which one died, so the next one dies later.
        (1..deaths).for_each(|n| steps[n] = steps[n].max(steps[n - 1] + 1));
        let (mut world, mut fresh, mut generations) = (4, 4, Vec::new());
        for (n, step) in steps.into_iter().enumerate() {
            let key = key.with(2).with(n as u64);
            let moment = match (clip_norm, scaled) {
                // Mostly early in the forward pass.
                (None, false) => key.with(1).below(MOMENTS) / (1 + key.with(3).below(3)),
                // With clipped gradients or scaled losses no step overlaps with the next one.
                _ => [0, MOMENTS - 2, MOMENTS - 1][if scaled { key.with(1).below(3) } else { 2 }],
            };
            let death = Some((key.with(0).below(world), step, moment));
            generations.push(Generation::of(world, fresh, death));
            fresh = key.with(2).below(2);
            world = world - 1 + fresh;
        }
        generations.push(Generation::of(world, fresh, None));
        let (sync, islands) = ("every-step".into(), None);
        let (combination, shards, owners) = (combination.clone(), 6, 0);
        let (tuned, smoothed, direct, sharding) = (false, false, false, Sharding::Optimizer);
        Script {
            combination,
            shards,
            clip_norm,
            scaled,
            sync,
            islands,
            tuned,
            smoothed,
            owners,
            sharding,
            direct,
            generations,
        }
    }

    /// Two ranks with two shards each, of which one dies at any moment of a late step, with or without a new
    /// one in its place.
    pub fn pair(seed: u64, combination: &Combination) -> Script {
        let key = Key::new(seed);
        let death = Some((key.with(0).below(2), 7 + key.with(1).below(7) as u64, key.with(2).below(MOMENTS)));
        let fresh = key.with(3).below(2);
        let generations = vec![Generation::of(2, 2, death), Generation::of(1 + fresh, fresh, None)];
        Script { shards: 4, generations, ..Script::new(seed, combination, None, false) }
    }

    /// Islands that synchronize rarely, in which any moment is as good as another.
    pub fn rarely(seed: u64, combination: &Combination, sync: &str, islands: usize) -> Script {
        // Of three islands one skips two steps, so that their scales differ.
        let mut script = Script::new(seed, combination, None, islands == 3);
        for (n, generation) in script.generations.iter_mut().enumerate() {
            if let Some((_, _, moment)) = &mut generation.death {
                *moment = Key::new(seed).with(4).with(n as u64).below(MOMENTS);
            }
        }
        Script { sync: sync.into(), islands: Some(islands), ..script }
    }

    /// Updates that are one step late, in which any moment is as good as another, too.
    pub fn late(seed: u64, combination: &Combination, clip_norm: Option<f64>) -> Script {
        Script { clip_norm, islands: None, ..Script::rarely(seed, combination, "delayed:1", 1) }
    }

    /// Generations of so many workers and summation servers, of which the last worker or the last server may
    /// die in some step at some moment.
    pub fn with_servers(self, all: &[(usize, usize, Option<Death>)]) -> Script {
        let mut before = [0; 2];
        let generation = |(workers, servers, death): &(usize, usize, Option<Death>)| {
            let new = [workers - before[0], servers - before[1]];
            before = [*workers, *servers];
            let death = death.map(|(role, step, moment)| {
                before[role as usize] -= 1;
                (if role == Role::Worker { workers - 1 } else { workers + servers - 1 }, step, moment)
            });
            Generation { servers: [*servers, new[1]], ..Generation::of(*workers, new[0], death) }
        };
        let generations = all.iter().map(generation).collect();
        Script { generations, ..self }
    }

    /// Adds a transform of the program's own with state from earlier steps.
    pub fn smoothed(self) -> Script {
        Script { smoothed: true, ..self }
    }

    /// Divides the optimizer's state, so that each part has so many owners.
    pub fn divided(self, owners: usize) -> Script {
        Script { owners, ..self }
    }

    /// Divides gradients besides the optimizer's state.
    pub fn with_gradients(self) -> Script {
        Script { sharding: Sharding::Gradients, ..self }
    }

    /// Divides the values besides.
    pub fn with_parameters(self) -> Script {
        Script { sharding: Sharding::Parameters, ..self }
    }

    /// Keeps one copy of the state in the memory of the host.
    pub fn in_host_memory(self) -> Script {
        Script { sharding: Sharding::Host, ..self }
    }

    pub fn tuned(self) -> Script {
        Script { tuned: true, ..self }
    }

    /// One rank, undisturbed.
    pub fn undisturbed(self) -> Script {
        let generations = vec![Generation::of(1, 1, None)];
        Script { generations, ..self }
    }

    /// After the first death every rank continues alone, like one that is to save the result of all.
    pub fn then_alone(mut self) -> Script {
        self.generations.truncate(1);
        self.generations.push(Generation { alone: true, ..Generation::of(3, 0, None) });
        self
    }
}
