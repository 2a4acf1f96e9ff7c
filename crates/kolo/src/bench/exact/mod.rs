//! `kolo bench exact`: what it costs that sums are added in tree order and that a job survives its workers, when nothing fails.
//!
//! Both parts measure alternatives in turn in the same processes, because a machine's speed drifts, and give ratios of what
//! was measured next to each other.

mod steps;
mod sums;
mod turns;

use clap::Args;
use serde::Serialize;

use super::at_least_1;
use super::trainee::Work;
use crate::commands::talk::Talk;
use crate::fail::Failure;

/// What exact sums and elasticity cost when nothing fails: the tree's sums beside the ring's, and steps with each of Kolo's promises
/// beside steps with none.
#[derive(Args)]
pub(crate) struct Options {
    /// Workers on this machine
    #[arg(long, default_value_t = 2)]
    pub(crate) nproc: usize,
    /// Shards whose sums are measured beside those of one shard a worker
    #[arg(long, default_value_t = 8)]
    shards: usize,
    /// Bytes of the sums
    #[arg(long, value_delimiter = ',', default_values_t = [1 << 20, 25 << 20])]
    sizes: Vec<usize>,
    #[command(flatten)]
    work: Work,
    /// Rounds in which all alternatives are measured once
    #[arg(long, default_value_t = 20)]
    rounds: usize,
    /// Steps of one alternative in a round
    #[arg(long, default_value_t = 3)]
    steps: usize,
    #[command(flatten)]
    pub(crate) talk: Talk,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    world_size: usize,
    transport: &'static str,
    model: String,
    sums: Vec<sums::Row>,
    steps: Vec<steps::Row>,
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.work.check()?;
        let counts = [("--shards", self.shards), ("--rounds", self.rounds), ("--steps", self.steps)];
        at_least_1(&[("--nproc", self.nproc)])?;
        at_least_1(&counts)?;
        match self.sizes.iter().find(|bytes| **bytes < size_of::<f32>()) {
            Some(bytes) => Err(Failure::input(format!("--sizes {bytes}: a sum has at least 4 bytes"))),
            None => Ok(()),
        }
    }
}

pub(crate) fn measure(options: &Options) -> Result<(), Failure> {
    let group = options.talk.group(None)?;
    let sums = sums::measure(&group, options)?;
    let steps = steps::measure(&group, options)?;
    if group.rank().0 != 0 {
        return Ok(());
    }
    let (world_size, transport) = (group.world_size(), group.transport());
    let report = Report { world_size, transport, model: options.work.model.clone(), sums, steps };
    match options.json {
        true => println!("{}", serde_json::to_string_pretty(&report).map_err(Failure::work)?),
        false => report.print(),
    }
    Ok(())
}

impl Report {
    fn print(&self) {
        println!("{} workers over {}", self.world_size, self.transport);
        println!();
        println!(
            "{:>12} {:<26} {:>14} {:>10} {:>8}   quartiles",
            "bytes", "sum", "sent by a rank", "p50 ms", "to ring"
        );
        for row in &self.sums {
            let sums::Row { bytes, order, shards, algorithm, sent_bytes, seconds, to_ring } = row;
            let sum = format!("{order}, {shards} shards ({algorithm})");
            let (ms, [low, middle, high]) = (seconds * 1e3, to_ring);
            println!("{bytes:>12} {sum:<26} {sent_bytes:>14} {ms:>10.3} {middle:>7.2}×   {low:.2}…{high:.2}");
        }
        println!();
        println!("{:<40} {:>10} {:>10} {:>16}", self.model, "step p50 s", "to plain", "quartiles");
        for row in &self.steps {
            let steps::Row { name, seconds, to_plain: [low, middle, high] } = row;
            let percent = |ratio: &f64| 100.0 * (ratio - 1.0);
            let (middle, low, high) = (percent(middle), percent(low), percent(high));
            println!("{name:<40} {seconds:>10.4} {middle:>+9.2}% {low:>+7.2}…{high:+.2}%");
        }
    }
}
