//! Compares steps with each of Kolo's promises to steps with none of them.

use std::time::Instant;

use kolo::Failure;
use kolo_comm::Group;
use kolo_comm::schedule::ALGORITHMS;
use kolo_ddp::Config;
use serde::Serialize;

use super::options::Options;
use super::turns::Turns;
use crate::bench::trainee::Trainee;

/// Uncounted first rounds, in which buckets find their places.
const WARM_UP: usize = 4;

/// A set of promises under which steps are measured.
struct Variant {
    name: &'static str,
    /// True to add sums in tree order, false to add them in a ring.
    tree: bool,
    elastic: bool,
    verify_every: u64,
}

/// The variants; each adds a promise to the one before. The sentinel compares weights after every step here:
/// one step in a hundred would not show.
const VARIANTS: [Variant; 4] = [
    Variant { name: "plain: ring, no elasticity, no sentinel", tree: false, elastic: false, verify_every: 0 },
    Variant { name: "sums in tree order", tree: true, elastic: false, verify_every: 0 },
    Variant { name: "… elastic", tree: true, elastic: true, verify_every: 0 },
    Variant { name: "… weights compared (in each step)", tree: true, elastic: true, verify_every: 1 },
];

#[derive(Serialize)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) seconds: f64,
    /// Time relative to the plain variant in the same round: lower quartile, median, upper quartile.
    pub(super) to_plain: [f64; 3],
}

pub(super) fn measure(group: &Group, options: &Options) -> Result<Vec<Row>, Failure> {
    let mut trainees = Vec::new();
    for Variant { tree, elastic, verify_every, .. } in VARIANTS {
        // Each variant has a group of its own, because the group remembers the algorithm.
        let own =
            group.split(Some(0), 0)?.ok_or_else(|| Failure::work("a group of all ranks has no members"))?;
        let ring = ALGORITHMS.iter().find(|algorithm| algorithm.name == "ring");
        own.use_algorithm(ring.filter(|_| !tree))?;
        let config = Config { elastic, verify_every, ..Config::default() };
        trainees.push(Trainee::new(own, &options.work, &config)?);
    }
    let steps = options.steps;
    let turns = Turns::measure(group, options.rounds, WARM_UP, VARIANTS.len(), |number| {
        let trainee = &mut trainees[number];
        let mut seconds = 0.0;
        // As in `kolo bench step`, two steps are not timed: the first, which waits for no step before it, and
        // the last, which has no next one.
        for step in 0..steps + 2 {
            let began = Instant::now();
            trainee.step()?;
            if (1..=steps).contains(&step) {
                seconds += began.elapsed().as_secs_f64();
            }
        }
        trainee.settle()?;
        Ok(seconds)
    })?;
    let row = |(number, variant): (usize, &Variant)| Row {
        name: variant.name,
        seconds: turns.seconds(number) / steps as f64,
        to_plain: turns.to_first(number),
    };
    Ok(VARIANTS.iter().enumerate().map(row).collect())
}
