//! `kolo bench step`: measures the cost of synchronization. The same processes run blocks of steps with and
//! without it, in turn.

use std::time::Instant;

use clap::Args;
use kolo::Failure;
use kolo_ddp::reduction::{self, REDUCTIONS};
use kolo_ddp::sync::{Rounds, SYNCS, SyncMode};
use kolo_ddp::table::parse_number;
use kolo_ddp::{BucketCaps, Config};
use kolo_program::output::{print_json, say};
use kolo_recipe::check_bucket_cap;
use serde::Serialize;

use super::samples::{Samples, at_least_1};
use super::trainee::{Trainee, Work};
use crate::options::Communication;

/// Measure steps with and without synchronization, on random images.
#[derive(Args)]
pub(crate) struct Options {
    /// Workers on this machine
    #[arg(long, default_value_t = 2)]
    pub(crate) nproc: usize,
    #[command(flatten)]
    work: Work,
    /// Size limit of a bucket in MiB [default: 25; 4 over sockets]
    #[arg(long, value_parser = parse_number)]
    bucket_cap_mb: Option<f64>,
    /// How Kolo reduces gradients, as for `kolo train`. The steps without synchronization do not compress
    #[arg(long, value_name = "NAME[:SETTINGS]", default_value = REDUCTIONS[0].name)]
    reduction: String,
    /// How often workers synchronize, as for `kolo train`. If they synchronize every H steps, a block is
    /// one round, and a step takes the round's time divided by H
    #[arg(long, value_name = "NAME", default_value = SYNCS[0].name)]
    sync: SyncMode,
    /// Wait for all gradients at the end of each step, instead of when the next forward pass needs them
    #[arg(long)]
    no_forward_overlap: bool,
    /// Pairs of blocks. Short blocks are better, because a machine's speed drifts
    #[arg(long, default_value_t = 10)]
    blocks: usize,
    /// Measured steps per block [default: 4]. Each block also has a first and a last step that Kolo does
    /// not measure, because their communication has no neighbor to overlap with
    #[arg(long)]
    steps: Option<usize>,
    #[command(flatten)]
    pub(crate) communication: Communication,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Uncounted first pairs of blocks.
const WARM_UP: usize = 2;
/// Default number of steps in a block.
const STEPS: usize = 4;

#[derive(Serialize)]
struct Report {
    model: String,
    batch_size: usize,
    precision: String,
    world_size: usize,
    transport: &'static str,
    step_seconds: f64,
    step_seconds_no_sync: f64,
    /// step_seconds_no_sync / step_seconds.
    efficiency: f64,
    images_per_second: f64,
    exposed_comm_seconds: f64,
    reduction: String,
    sync: String,
    /// Bytes of a shard's gradient, and of its encoding on the wire.
    gradient_bytes: usize,
    wire_bytes: usize,
    /// Number of measured steps, or rounds.
    samples: usize,
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.work.check()?;
        let steps = self.steps.unwrap_or(STEPS);
        at_least_1(&[("--nproc", self.nproc), ("--blocks", self.blocks), ("--steps", steps)])?;
        reduction::parse(&self.reduction).map_err(Failure::input)?;
        if let Some(rounds) = self.sync.traits().rounds {
            self.check_rounds(rounds)?;
        }
        Ok(check_bucket_cap(self.bucket_cap_mb)?)
    }

    fn check_rounds(&self, rounds: Rounds) -> Result<(), Failure> {
        let refused = |problem| Err(Failure::input(format!("--sync {}: {problem}", self.sync)));
        if self.steps.is_some() {
            return refused("a block is one round, so --steps says nothing; leave it out");
        }
        if rounds.together > 0 {
            return refused("steps before the first round are not measured; leave T out");
        }
        Ok(())
    }

    /// True if steps without synchronization need a trainee of their own: they do not compress gradients, and
    /// islands would take their outer steps.
    fn is_other_alone(&self) -> bool {
        self.reduction != REDUCTIONS[0].name || self.sync.traits().rounds.is_some()
    }

    fn config(&self, reduction: &str, sync: SyncMode) -> Result<Config, Failure> {
        let reduction = reduction::parse(reduction).map_err(Failure::input)?;
        let caps = self.bucket_cap_mb.map(BucketCaps::of_mib);
        let forward_overlap = !self.no_forward_overlap;
        // Ranks have different weights after steps without synchronization.
        Ok(Config { caps, forward_overlap, reduction, sync, verify_every: 0, ..Config::default() })
    }
}

pub(crate) fn measure(options: &Options) -> Result<(), Failure> {
    let (work, exact) = (&options.work, REDUCTIONS[0].name);
    let config = options.config(&options.reduction, options.sync.clone())?;
    let mut synchronized = Trainee::new(options.communication.group(None)?, work, &config)?;
    let group = synchronized.stepper.group().clone();
    let mut plain = match options.is_other_alone() {
        false => None,
        true => {
            let (same, config) = (group.split(Some(0), 0)?, options.config(exact, SyncMode::default())?);
            same.map(|group| Trainee::new(group, work, &config)).transpose()?
        }
    };
    let (mut with, mut without, mut exposed) = (Samples::default(), Samples::default(), Samples::default());
    for block in 0..options.blocks + WARM_UP {
        for (synchronize, samples) in [(true, &mut with), (false, &mut without)] {
            let trainee = match &mut plain {
                Some(plain) if !synchronize => plain,
                _ => &mut synchronized,
            };
            trainee.stepper.with_replica(&mut |replica| replica.synchronize(synchronize));
            group.barrier()?;
            let measured = match options.sync.traits().rounds {
                Some(rounds) => round(trainee, rounds.steps)?,
                None => steps(trainee, options.steps.unwrap_or(STEPS))?,
            };
            if block >= WARM_UP {
                samples.0.extend(measured.iter().map(|(seconds, _)| seconds));
                let waited = measured.iter().map(|(_, waited)| waited);
                exposed.0.extend(waited.filter(|_| synchronize));
            }
        }
    }
    let (gradient_bytes, wire_bytes) = synchronized.bytes();
    let count = with.0.len();
    let (with, without) = (with.slowest(&group)?, without.slowest(&group)?);
    let exposed = exposed.slowest(&group)?;
    if group.rank().0 != 0 {
        return Ok(());
    }
    let (step, alone) = (with.percentile(50.0), without.percentile(50.0));
    let report = Report {
        model: options.work.model.clone(),
        batch_size: options.work.batch_size,
        precision: options.work.precision.clone(),
        world_size: group.world_size(),
        transport: group.transport(),
        step_seconds: step,
        step_seconds_no_sync: alone,
        efficiency: alone / step,
        images_per_second: (options.work.batch_size * group.world_size()) as f64 / step,
        exposed_comm_seconds: exposed.percentile(50.0),
        reduction: options.reduction.clone(),
        sync: options.sync.to_string(),
        gradient_bytes,
        wire_bytes,
        samples: count,
    };
    if options.json {
        return print_json(&report);
    }
    say!(
        "step                {:.4} s  (communication waited for: {:.4} s)",
        step,
        report.exposed_comm_seconds
    );
    say!("step, no sync       {alone:.4} s");
    say!("efficiency          {:.1} %", 100.0 * report.efficiency);
    let samples = if options.work.reads_text() { "windows per second " } else { "images per second  " };
    say!("{samples} {:.1}", report.images_per_second);
    say!("bytes of a gradient {gradient_bytes}, traveling as {wire_bytes} ({})", report.reduction);
    Ok(())
}

/// Runs a block and returns for each step its seconds, and the seconds in which it waited for communication.
fn steps(trainee: &mut Trainee, steps: usize) -> Result<Vec<(f64, f64)>, Failure> {
    let mut measured = Vec::new();
    for step in 0..steps + 2 {
        if step > steps {
            trainee.stepper.with_replica(&mut |replica| replica.end_round());
        }
        let began = Instant::now();
        let waited = trainee.step()?;
        if (1..=steps).contains(&step) {
            measured.push((began.elapsed().as_secs_f64(), waited));
        }
    }
    trainee.settle()?;
    Ok(measured)
}

/// Runs a round as a block, and returns the averages over its steps.
fn round(trainee: &mut Trainee, steps: u64) -> Result<Vec<(f64, f64)>, Failure> {
    let began = Instant::now();
    let waited = (0..steps).map(|_| trainee.step()).sum::<Result<f64, Failure>>()?;
    trainee.settle()?;
    Ok(vec![(began.elapsed().as_secs_f64() / steps as f64, waited / steps as f64)])
}
