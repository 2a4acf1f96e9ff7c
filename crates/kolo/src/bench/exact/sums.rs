//! Compares tree-ordered sums to those of a ring, which adds in the order in which it passes data on.

use std::sync::Arc;
use std::time::Instant;

use kolo::Failure;
use kolo_comm::schedule::{ALGORITHMS, Algorithm, Operation, Problem, Step};
use kolo_comm::tree::Contributions;
use kolo_comm::{Buffer, Collective, DType, Group, Rank};
use serde::Serialize;

use super::options::Options;
use super::turns::Turns;

/// Uncounted first rounds.
const WARM_UP: usize = 3;
/// Number of sums of one kind in a round.
const REPEATS: usize = 5;

#[derive(Serialize)]
pub(super) struct Row {
    pub(super) bytes: usize,
    pub(super) order: &'static str,
    pub(super) shards: usize,
    pub(super) algorithm: &'static str,
    /// Bytes sent by the rank that sends most.
    pub(super) sent_bytes: usize,
    pub(super) seconds: f64,
    /// Time relative to the ring in the same round: lower quartile, median, upper quartile.
    pub(super) to_ring: [f64; 3],
}

struct SumKind {
    order: &'static str,
    shards: usize,
    collective: Collective,
    algorithm: &'static Algorithm,
    sent: usize,
    buffer: Option<Buffer<f32>>,
}

pub(super) fn measure(group: &Group, options: &Options) -> Result<Vec<Row>, Failure> {
    let world = group.world_size();
    let ring = ALGORITHMS.iter().find(|algorithm| algorithm.name == "ring");
    let mut rows = Vec::new();
    for &bytes in &options.sizes {
        let len = bytes / size_of::<f32>();
        // The measurement of the previous size has forced an algorithm.
        group.use_algorithm(None)?;
        let mut kinds = vec![
            SumKind::new(group, "ring", world, len, ring)?,
            SumKind::new(group, "tree", world, len, None)?,
        ];
        if options.shards != world {
            kinds.push(SumKind::new(group, "tree", options.shards, len, None)?);
        }
        let count = kinds.len();
        let run = |number: usize| kinds[number].run(group);
        let turns = Turns::measure(group, options.rounds, WARM_UP, count, run)?;
        rows.extend(kinds.iter().enumerate().map(|(number, kind)| Row {
            bytes,
            order: kind.order,
            shards: kind.shards,
            algorithm: kind.algorithm.name,
            sent_bytes: kind.sent * size_of::<f32>(),
            seconds: turns.seconds(number) / REPEATS as f64,
            to_ring: turns.to_first(number),
        }));
    }
    group.use_algorithm(None)?;
    Ok(rows)
}

impl SumKind {
    /// Prepares sums of `len` elements by the given algorithm, or else by the cost model's choice.
    fn new(
        group: &Group,
        order: &'static str,
        shards: usize,
        len: usize,
        asked: Option<&'static Algorithm>,
    ) -> Result<SumKind, Failure> {
        let contributions = Arc::new(Contributions::shared(shards, group.world_size()));
        let collective = Collective::tree_sum(contributions.clone(), len);
        let picked = || Some(group.explain(&collective, len, DType::F32)?.algorithm);
        let algorithm = asked
            .or_else(picked)
            .ok_or_else(|| Failure::input("only Kolo's own collectives have an order"))?;
        let parts = contributions.of(group.rank()).len().max(1);
        let buffer = Some(group.alloc(len * parts)?);
        let sent = sent(group, algorithm, &contributions, len);
        Ok(SumKind { order, shards, collective, algorithm, sent, buffer })
    }

    /// Runs `REPEATS` sums one after another and returns their time in seconds.
    fn run(&mut self, group: &Group) -> Result<f64, Failure> {
        group.use_algorithm(Some(self.algorithm))?;
        let began = Instant::now();
        for _ in 0..REPEATS {
            if let Some(buffer) = self.buffer.take() {
                self.buffer = Some(group.run(&self.collective, buffer)?);
            }
        }
        Ok(began.elapsed().as_secs_f64())
    }
}

/// Returns the most elements that a rank sends.
fn sent(group: &Group, algorithm: &Algorithm, contributions: &Contributions, len: usize) -> usize {
    let (operation, topology) = (&Operation::AllReduce, group.topology());
    let of = |rank| {
        // The cuts of messages do not change the number of elements.
        let problem =
            Problem { operation, rank: Rank(rank), len, contributions, topology, segment: len.max(1) };
        let step = |step: &Step| if let Step::Send { range, .. } = step { range.len } else { 0 };
        (algorithm.build)(&problem).map_or(0, |schedule| schedule.steps.iter().map(step).sum())
    };
    (0..group.world_size()).map(of).max().unwrap_or(0)
}
