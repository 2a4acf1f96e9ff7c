//! `kolo bench step`: what synchronisation costs. The same processes run blocks of steps with and without it,
//! in turn.

use std::time::Instant;

use clap::Args;
use kolo_ddp::reduction::{self, REDUCTIONS};
use kolo_ddp::sync::{SYNCS, SyncMode};
use kolo_ddp::{BucketCaps, Config};
use serde::Serialize;

use super::samples::{Samples, at_least_1};
use super::trainee::{Trainee, Work};
use crate::options::Communication;
use kolo::Failure;
use kolo_train::check_bucket_cap;

/// Step time with and without synchronisation, on random images.
#[derive(Args)]
pub(crate) struct Options {
    /// Workers on this machine
    #[arg(long, default_value_t = 2)]
    pub(crate) nproc: usize,
    #[command(flatten)]
    work: Work,
    /// Largest bucket in MiB [default: 25, over sockets 4]
    #[arg(long)]
    bucket_cap_mb: Option<f64>,
    /// How gradients are reduced, as for `kolo train`; beside it, without synchronisation, they are not
    /// compressed
    #[arg(long, value_name = "NAME[:SETTINGS]", default_value = REDUCTIONS[0].name)]
    reduction: String,
    /// How often workers synchronise, as for `kolo train`: every-step or delayed:1
    #[arg(long, value_name = "NAME", default_value = SYNCS[0].name)]
    sync: SyncMode,
    /// Wait for all gradients at the end of each step, not when the next forward pass needs them
    #[arg(long)]
    no_forward_overlap: bool,
    /// Pairs of blocks; short blocks, because a machine's speed drifts
    #[arg(long, default_value_t = 10)]
    blocks: usize,
    /// Steps a block; besides these its first one is not measured, which waits for no communication of one
    /// before, nor its last one, which has no next one to hide communication behind
    #[arg(long, default_value_t = 4)]
    steps: usize,
    #[command(flatten)]
    pub(crate) communication: Communication,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Pairs of blocks before the measured ones.
const WARM_UP: usize = 2;

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
    /// Bytes of a shard's gradient, and those in which it travels.
    gradient_bytes: usize,
    wire_bytes: usize,
    samples: usize,
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.work.check()?;
        at_least_1(&[("--nproc", self.nproc), ("--blocks", self.blocks), ("--steps", self.steps)])?;
        reduction::parse(&self.reduction).map_err(Failure::input)?;
        if self.sync.is_rare() {
            let problem = "rounds end when this ends its blocks of steps; measure every-step or delayed:1";
            return Err(Failure::input(format!("--sync {}: {problem}", self.sync)));
        }
        Ok(check_bucket_cap(self.bucket_cap_mb)?)
    }

    fn config(&self, reduction: &str) -> Result<Config, Failure> {
        let reduction = reduction::parse(reduction).map_err(Failure::input)?;
        let caps = self.bucket_cap_mb.map(BucketCaps::of_mib);
        let forward_overlap = !self.no_forward_overlap;
        // Steps that are not synchronised leave every rank with weights of its own.
        let sync = self.sync.clone();
        Ok(Config { caps, forward_overlap, reduction, sync, verify_every: 0, ..Config::default() })
    }
}

pub(crate) fn measure(options: &Options) -> Result<(), Failure> {
    let (work, exact) = (&options.work, REDUCTIONS[0].name);
    let config = options.config(&options.reduction)?;
    let mut synchronised = Trainee::new(options.communication.group(None)?, work, &config)?;
    let group = synchronised.stepper.group().clone();
    // What is computed without the others is not compressed either, so that is another model.
    let mut plain = match options.reduction == exact {
        true => None,
        false => {
            let same = group.split(Some(0), 0)?;
            same.map(|group| Trainee::new(group, work, &options.config(exact)?)).transpose()?
        }
    };
    let (mut with, mut without, mut exposed) = (Samples::default(), Samples::default(), Samples::default());
    for block in 0..options.blocks + WARM_UP {
        for (synchronise, samples) in [(true, &mut with), (false, &mut without)] {
            let trainee = match &mut plain {
                Some(plain) if !synchronise => plain,
                _ => &mut synchronised,
            };
            trainee.stepper.with_replica(&mut |replica| replica.synchronise(synchronise));
            group.barrier()?;
            for step in 0..options.steps + 2 {
                if step > options.steps {
                    trainee.stepper.with_replica(&mut |replica| replica.end_round());
                }
                let began = Instant::now();
                let waited = trainee.step()?;
                if block >= WARM_UP && (1..=options.steps).contains(&step) {
                    samples.0.push(began.elapsed().as_secs_f64());
                    exposed.0.extend(synchronise.then_some(waited));
                }
            }
            trainee.settle()?;
        }
    }
    let (gradient_bytes, wire_bytes) = synchronised.bytes();
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
        println!("{}", serde_json::to_string_pretty(&report).map_err(Failure::work)?);
        return Ok(());
    }
    println!(
        "step                {:.4} s  (communication waited for: {:.4} s)",
        step, report.exposed_comm_seconds
    );
    println!("step, no sync       {alone:.4} s");
    println!("efficiency          {:.1} %", 100.0 * report.efficiency);
    println!("images per second   {:.1}", report.images_per_second);
    println!("bytes of a gradient {gradient_bytes}, travelling as {wire_bytes} ({})", report.reduction);
    Ok(())
}
