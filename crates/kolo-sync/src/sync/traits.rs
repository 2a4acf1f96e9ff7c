//! Properties of a way to synchronize that the rest of a job needs.

use kolo_optim::{Optimizer, Settings, named};
use kolo_reduction::Error;
use kolo_reduction::reduction::Reducer;

/// Properties of a way to synchronize. A field that a mode leaves at its default says that it is like
/// `every-step` in that.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SyncTraits {
    /// Rounds, where islands synchronize rarely; else `None`.
    pub rounds: Option<Rounds>,
    /// True if updates are one step late: the last gradient may still be in flight between two steps.
    pub is_delayed: bool,
    /// Number of steps by which the slowest worker may be behind one that pulls weights, where servers hold
    /// the weights; else `None`.
    pub staleness_bound: Option<u64>,
}

impl SyncTraits {
    /// True if every step is a sum over all shards, and its update is made before the next step's passes.
    pub fn is_every_step(&self) -> bool {
        *self == SyncTraits::default()
    }

    /// True if a worker holds state, besides that of its reduction, that no other worker has: an elastic job
    /// must keep copies of it.
    pub(crate) fn has_private_state(&self) -> bool {
        self.is_delayed || self.rounds.is_some()
    }
}

/// Times at which islands synchronize, and their outer step.
///
/// θ are the weights with which all islands begin a round, and θᵢ those with which island i of I ends it.
/// Their mean difference Δ = 1/I · Σ (θ − θᵢ) is the gradient of an outer step of SGD: v = μ·v + Δ, then
/// θ −= η·(Δ + μ·v) (Douillard et al. 2023, algorithm 1). With η = 1 and μ = 0 the result is the mean of
/// the θᵢ (Stich 2019, algorithm 1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounds {
    /// H: steps between two outer steps.
    pub steps: u64,
    /// T: steps before the first round, in which all shards synchronize every step.
    pub together: u64,
    /// η: learning rate of the outer step.
    pub outer_lr: f64,
    /// μ: Nesterov momentum of the outer step.
    pub outer_momentum: f64,
    /// True if the optimizer of an island begins each round without state.
    pub restart_inner: bool,
}

impl Rounds {
    /// The optimizer of the outer step: SGD, with Nesterov's momentum if with any.
    ///
    /// # Errors
    ///
    /// μ is not allowed.
    pub fn outer_optimizer(&self) -> Result<Box<dyn Optimizer>, Error> {
        let momentum = self.outer_momentum;
        let settings = Settings::default().with("momentum", momentum).with("nesterov", momentum > 0.0);
        Ok(named("sgd", &settings)?)
    }

    /// The reason why a reduction cannot be that of the outer step, if it cannot.
    ///
    /// # Errors
    ///
    /// μ is not allowed.
    pub fn obstacle(&self, reduction: &dyn Reducer) -> Result<Option<String>, Error> {
        let problem = reduction.fits(&*self.outer_optimizer()?, &[]).err();
        let outer = |problem| {
            format!(
                "it is for the outer step of the islands, whose optimizer is SGD with momentum {} (outer_momentum): {problem}; take \
                 another reduction",
                self.outer_momentum
            )
        };
        Ok(problem.map(outer))
    }
}
