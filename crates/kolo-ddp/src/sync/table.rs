//! The modes of synchronisation by name.

use serde::Deserialize;

use kolo_optim::table::{Entry, Setting, Settings};

/// Every mode there is; the first one is the default.
pub static SYNCS: &[Entry<Synchronisation>] = &[
    Entry {
        name: "every-step",
        about: "all shards synchronise in every step: one model",
        settings: &[],
        make: |_| Box::new(Synchronisation::EveryStep),
    },
    Entry {
        name: "local",
        about: "local SGD: the weights of the islands are averaged every H steps (Stich 2019)",
        settings: &[Setting::whole("H", 8, 1..u64::MAX, "Steps of a round"), RESTART],
        make: |settings| averaging(settings),
    },
    Entry {
        name: "post-local",
        about: "post-local SGD: every step until step T, then local (Lin et al. 2020)",
        settings: &[
            Setting::whole("H", 8, 1..u64::MAX, "Steps of a round"),
            Setting::whole("T", 1000, 0..u64::MAX, "Steps before the first round"),
            RESTART,
        ],
        make: |settings| averaging(settings),
    },
    Entry {
        name: "diloco",
        about: "DiLoCo: an outer step of Nesterov's momentum every H steps (Douillard et al. 2023)",
        settings: &[
            Setting::whole("H", 50, 1..u64::MAX, "Steps of a round"),
            Setting::positive("outer_lr", 0.7, "Learning rate of the outer step"),
            Setting::number("outer_momentum", 0.9, 0.0..1.0, "Nesterov's momentum of the outer step"),
            RESTART,
        ],
        make: |settings| {
            let Diloco { steps, outer_lr, outer_momentum, restart_inner } = settings.read();
            Box::new(Synchronisation::Rounds(Rounds {
                steps: steps as u64,
                together: 0,
                outer_lr,
                outer_momentum,
                restart_inner,
            }))
        },
    },
    Entry {
        name: "delayed",
        about: "each update is a step late, and its gradient travels while the next one is computed (Li et al. 2018)",
        settings: &[Setting::whole("steps", 1, 1..2, "Steps by which updates are late")],
        make: |_| Box::new(Synchronisation::Delayed),
    },
    Entry {
        name: "stale",
        about: "asynchronous SGD through servers, K steps stale at most: promises no bits (Ho et al. 2013)",
        settings: &[Setting::whole(
            "K",
            3,
            0..u64::MAX,
            "Steps that a worker may be ahead of the slowest one",
        )],
        make: |settings| {
            let Stale { bound } = settings.read();
            Box::new(Synchronisation::Stale { bound: bound as u64 })
        },
    },
];

const RESTART: Setting =
    Setting::flag("restart_inner", "Begin the islands' optimizers anew after each outer step");

/// How the shards of a job come to one model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Synchronisation {
    /// By one sum over all shards in every step.
    EveryStep,
    /// As islands, which synchronise rarely.
    Rounds(Rounds),
    /// By one sum over all shards in every step, which changes the weights one step later (Pipe-SGD with
    /// K = 2, Li et al. 2018).
    Delayed,
    /// Through servers that hold the weights: each worker goes at its own pace, and what it computes with may
    /// lack the others' last `bound` steps (stale synchronous parallel, Ho et al. 2013).
    Stale {
        /// K: steps that a worker may be ahead of the slowest one.
        bound: u64,
    },
}

/// When islands synchronise, and what their outer step is.
///
/// θ is the weights that all islands begin a round with, θᵢ those that island i ends it with, of I islands.
/// Their mean difference Δ = 1/I · Σ (θ − θᵢ) is the gradient of an outer step of SGD: v = μ·v + Δ;
/// θ −= η·(Δ + μ·v) (Douillard et al. 2023, algorithm 1). With η = 1 and μ = 0 that is the mean of the θᵢ
/// (Stich 2019, algorithm 1).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounds {
    /// H: steps between two outer steps.
    pub steps: u64,
    /// T: steps before the first round, in which all shards synchronise every step.
    pub together: u64,
    /// η
    pub outer_lr: f64,
    /// μ
    pub outer_momentum: f64,
    /// Whether the optimizer of an island begins each round without state.
    pub restart_inner: bool,
}

#[derive(Deserialize)]
struct Averaging {
    #[serde(rename = "H")]
    steps: f64,
    #[serde(rename = "T", default)]
    together: f64,
    restart_inner: bool,
}

#[derive(Deserialize)]
struct Diloco {
    #[serde(rename = "H")]
    steps: f64,
    outer_lr: f64,
    outer_momentum: f64,
    restart_inner: bool,
}

#[derive(Deserialize)]
struct Stale {
    #[serde(rename = "K")]
    bound: f64,
}

fn averaging(settings: &Settings) -> Box<Synchronisation> {
    let Averaging { steps, together, restart_inner } = settings.read();
    let (steps, together) = (steps as u64, together as u64);
    let rounds = Rounds { steps, together, outer_lr: 1.0, outer_momentum: 0.0, restart_inner };
    Box::new(Synchronisation::Rounds(rounds))
}
