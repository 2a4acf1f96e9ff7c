//! The ways to synchronize rarely, and their settings.

use serde::Deserialize;

use super::forming::make;
use crate::sync::exclusion::{JobSetting, NO_GLOBAL_BATCH, NO_PLAIN_STEP, NO_TURNS};
use crate::sync::synchronization::Synchronization;
use crate::sync::traits::{Rounds, SyncTraits};
use kolo_optim::table::{Entry, Setting, Settings};

pub(in crate::sync) const LOCAL: Entry<Synchronization> = Entry {
    name: "local",
    about: "local SGD: the weights of the islands are averaged every H steps (Stich 2019)",
    settings: &[Setting::whole("H", 8, 1..u64::MAX, "Steps of a round"), RESTART],
    make: |settings| averaging(settings),
};

pub(in crate::sync) const POST_LOCAL: Entry<Synchronization> = Entry {
    name: "post-local",
    about: "post-local SGD: every step until step T, then local (Lin et al. 2020)",
    settings: &[
        Setting::whole("H", 8, 1..u64::MAX, "Steps of a round"),
        Setting::whole("T", 1000, 0..u64::MAX, "Steps before the first round"),
        RESTART,
    ],
    make: |settings| averaging(settings),
};

pub(in crate::sync) const DILOCO: Entry<Synchronization> = Entry {
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
        in_rounds(Rounds { steps: steps as u64, together: 0, outer_lr, outer_momentum, restart_inner })
    },
};

const RESTART: Setting =
    Setting::flag("restart_inner", "Begin the islands' optimizers anew after each outer step");

const EXCLUDES: &[(JobSetting, &str)] = &[
    NO_GLOBAL_BATCH,
    (JobSetting::LocalStatistics, "averages running statistics as it does weights"),
    (
        JobSetting::NoiseScale,
        "has no batch of all shards in each step, between which and a shard the noise scale is measured",
    ),
    (JobSetting::Straggler, "cannot move shards from one worker to another"),
    (JobSetting::Servers, "sends too rarely for summation servers to save anything"),
    NO_TURNS,
    NO_PLAIN_STEP,
];

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

fn averaging(settings: &Settings) -> Box<Synchronization> {
    let Averaging { steps, together, restart_inner } = settings.read();
    let (steps, together) = (steps as u64, together as u64);
    in_rounds(Rounds { steps, together, outer_lr: 1.0, outer_momentum: 0.0, restart_inner })
}

fn in_rounds(rounds: Rounds) -> Box<Synchronization> {
    let traits = SyncTraits { rounds: Some(rounds), ..SyncTraits::default() };
    Box::new(Synchronization { traits, excludes: EXCLUDES, make })
}
