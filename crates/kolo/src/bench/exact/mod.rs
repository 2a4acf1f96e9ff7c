//! `kolo bench exact`: measures the cost of tree-ordered sums and of elasticity while nothing fails.
//!
//! Both parts alternate between the variants in the same processes, because a machine's speed drifts, and
//! report ratios of neighboring measurements.

mod options;
mod steps;
mod sums;
mod turns;

use serde::Serialize;

use kolo::Failure;
use kolo_comm::schedule::words::counted;
use kolo_program::output::{print_json, say};

pub(crate) use options::Options;

#[derive(Serialize)]
struct Report {
    world_size: usize,
    transport: &'static str,
    model: String,
    sums: Vec<sums::Row>,
    steps: Vec<steps::Row>,
}

pub(crate) fn measure(options: &Options) -> Result<(), Failure> {
    let group = options.communication.group(None)?;
    let sums = sums::measure(&group, options)?;
    let steps = steps::measure(&group, options)?;
    if group.rank().0 != 0 {
        return Ok(());
    }
    let (world_size, transport) = (group.world_size(), group.transport());
    let report = Report { world_size, transport, model: options.work.model.clone(), sums, steps };
    match options.json {
        true => print_json(&report),
        false => {
            report.print();
            Ok(())
        }
    }
}

impl Report {
    fn print(&self) {
        say!("{} over {}", counted(self.world_size, "worker"), self.transport);
        say!("");
        say!(
            "{:>12} {:<26} {:>14} {:>10} {:>8}   quartiles",
            "bytes",
            "sum",
            "sent by a rank",
            "p50 ms",
            "to ring"
        );
        for row in &self.sums {
            let sums::Row { bytes, order, shards, algorithm, sent_bytes, seconds, to_ring } = row;
            let sum = format!("{order}, {} ({algorithm})", counted(shards, "shard"));
            let (ms, [low, middle, high]) = (seconds * 1e3, to_ring);
            say!("{bytes:>12} {sum:<26} {sent_bytes:>14} {ms:>10.3} {middle:>7.2}×   {low:.2}…{high:.2}");
        }
        say!("");
        say!("{:<40} {:>10} {:>10} {:>16}", self.model, "step p50 s", "to plain", "quartiles");
        for row in &self.steps {
            let steps::Row { name, seconds, to_plain: [low, middle, high] } = row;
            let percent = |ratio: &f64| 100.0 * (ratio - 1.0);
            let (middle, low, high) = (percent(middle), percent(low), percent(high));
            say!("{name:<40} {seconds:>10.4} {middle:>+9.2}% {low:>+7.2}…{high:+.2}%");
        }
    }
}
