//! `kolo bench profile`: measures the step of a worker by itself, and its slowdown if all cores compute.
//! `kolo plan step --profile FILE` reads the result.

use std::time::Instant;

use clap::Args;
use kolo::{Failure, Precision};
use kolo_comm::{Group, Rank};
use kolo_ddp::reduction::{self, REDUCTIONS};
use kolo_ddp::table::parse_number;
use kolo_ddp::{BucketCaps, Config, StepReport};
use kolo_plan::step::{MeasuredBucket, StepProfile};
use kolo_program::output::print_json;
use kolo_recipe::check_bucket_cap;
use kolo_run_folder::{median, percentile};
use serde::{Deserialize, Serialize};

use super::samples::{Samples, at_least_1};
use super::trainee::{Trainee, Work};
use crate::options::Communication;

/// Measure a worker's step without communication, and print JSON for `kolo plan step --profile`. The images
/// are random; one worker computes alone, then one on each core.
#[derive(Args)]
pub(crate) struct Options {
    /// Workers that compute at the same time without communication [default: one for each core]
    #[arg(long)]
    nproc: Option<usize>,
    #[command(flatten)]
    work: Work,
    /// Size limit of a bucket in MiB. Smaller buckets show better when each gradient is ready
    #[arg(long, default_value_t = 1.0, value_parser = parse_number)]
    bucket_cap_mb: f64,
    /// How Kolo reduces gradients, as for `kolo train`
    #[arg(long, value_name = "NAME[:SETTINGS]", default_value = REDUCTIONS[0].name)]
    reduction: String,
    /// Blocks of steps of one worker alone, and as many of all workers
    #[arg(long, default_value_t = 5)]
    blocks: usize,
    /// Fewest steps per block after its first one. Kolo adds steps until a block takes a quarter of a
    /// second
    #[arg(long, default_value_t = 6)]
    steps: usize,
    #[command(flatten)]
    pub(crate) communication: Communication,
}

/// Least seconds of a block: a few steps of a small model end within one disturbance by another process.
const BLOCK_SECONDS: f64 = 0.25;

/// Output of `kolo bench profile`.
#[derive(Serialize, Deserialize)]
pub(crate) struct WorkerProfile {
    pub(crate) model: String,
    pub(crate) batch_size: usize,
    /// Type of convolutions and products; profiles of the first versions are f32.
    #[serde(default = "f32")]
    pub(crate) precision: String,
    pub(crate) reduction: String,
    /// Workers that computed at once: one for each core.
    pub(crate) cores: usize,
    /// Factor by which a step was slower then than alone.
    pub(crate) full_slowdown: f64,
    /// Half of the distance from the 16th to the 84th percentile of a worker's steps, over their median.
    pub(crate) spread: f64,
    pub(crate) profile: StepProfile,
}

fn f32() -> String {
    Precision::ALL[0].0.into()
}

impl Options {
    pub(crate) fn nproc(&self) -> usize {
        self.nproc.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
    }

    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.work.check()?;
        at_least_1(&[("--nproc", self.nproc()), ("--blocks", self.blocks), ("--steps", self.steps)])?;
        reduction::parse(&self.reduction).map_err(Failure::input)?;
        Ok(check_bucket_cap(Some(self.bucket_cap_mb))?)
    }
}

pub(crate) fn measure(options: &Options) -> Result<(), Failure> {
    let group = options.communication.group(None)?;
    let reduction = reduction::parse(&options.reduction).map_err(Failure::input)?;
    let caps = Some(BucketCaps::of_mib(options.bucket_cap_mb));
    let config = Config { caps, reduction, verify_every: 0, ..Config::default() };
    let by_itself = group.split(Some(group.rank().0 as u32), 0)?;
    let by_itself = by_itself.ok_or_else(|| Failure::work("a group of one could not be made"))?;
    let mut trainee = Trainee::new(by_itself, &options.work, &config)?;
    // Not counted: buckets are cut anew after the first step, and profiled in the next five.
    let warm_up = one_then_all(&group, &mut trainee, options.steps)?;
    let step = median(warm_up.alone.iter().map(|step| step.own)).unwrap_or(BLOCK_SECONDS);
    let steps = options.steps.max((BLOCK_SECONDS / step).ceil() as usize);
    let steps = group.broadcast_value(steps, Rank(0))?;
    let blocks = (0..options.blocks).map(|_| one_then_all(&group, &mut trainee, steps));
    let blocks = blocks.collect::<Result<Vec<_>, _>>()?;
    if group.rank().0 != 0 {
        return Ok(());
    }
    // The median of the ratios of neighboring blocks, because the machine's speed drifts.
    let full_slowdown = median(blocks.iter().map(Pair::slowdown)).unwrap_or(1.0);
    let alone: Vec<Measured> = blocks.into_iter().flat_map(|pair| pair.alone).collect();
    let of = |percent| percentile(alone.iter().map(|step| step.own), percent).unwrap_or(0.0);
    let measured = WorkerProfile {
        model: options.work.model.clone(),
        batch_size: options.work.batch_size,
        precision: options.work.precision.clone(),
        reduction: options.reduction.clone(),
        cores: group.world_size(),
        full_slowdown: full_slowdown.max(1.0),
        spread: (of(84.0) - of(16.0)) / 2.0 / of(50.0),
        profile: profile(&alone),
    };
    print_json(&measured)
}

struct Measured {
    /// Seconds without waiting.
    own: f64,
    report: StepReport,
}

/// A block of steps of rank 0 alone, and then one of all ranks.
struct Pair {
    /// Steps of rank 0; empty on other ranks.
    alone: Vec<Measured>,
    /// Seconds without waiting of the slowest rank in each step.
    together: Samples,
}

impl Pair {
    /// Returns the time of a step of all ranks, relative to one of rank 0 alone.
    fn slowdown(&self) -> f64 {
        let alone = median(self.alone.iter().map(|step| step.own));
        self.together.percentile(50.0) / alone.unwrap_or(f64::NAN)
    }
}

/// Measures a pair of blocks. A collective.
fn one_then_all(group: &Group, trainee: &mut Trainee, steps: usize) -> Result<Pair, Failure> {
    let mut block = || {
        timed(trainee)?;
        (0..steps).map(|_| timed(trainee)).collect::<Result<Vec<_>, Failure>>()
    };
    group.barrier()?;
    let alone = if group.rank().0 == 0 { block()? } else { Vec::new() };
    group.barrier()?;
    let together = Samples(block()?.iter().map(|step| step.own).collect());
    Ok(Pair { alone, together: together.slowest(group)? })
}

fn timed(trainee: &mut Trainee) -> Result<Measured, Failure> {
    let began = Instant::now();
    let report = trainee.report()?;
    let own = (began.elapsed().saturating_sub(report.times.exposed)).as_secs_f64();
    Ok(Measured { own, report })
}

fn profile(steps: &[Measured]) -> StepProfile {
    let median = |of: &dyn Fn(&Measured) -> f64| median(steps.iter().map(of)).unwrap_or(0.0);
    let buckets = steps.iter().map(|step| step.report.traffic.buckets.len()).min().unwrap_or(0);
    let bucket = |index: usize| {
        let last = &steps[steps.len() - 1].report.traffic.buckets[index];
        MeasuredBucket {
            bytes: last.bytes as f64,
            wire_bytes: last.wire_bytes as f64,
            ready: median(&|step| step.report.traffic.buckets[index].ready),
            needed: Some(median(&|step| step.report.traffic.buckets[index].needed)),
        }
    };
    let buckets: Vec<MeasuredBucket> = (0..buckets).map(bucket).collect();
    StepProfile::measured(
        median(&|step| step.own),
        median(&|step| step.report.times.backward.as_secs_f64()),
        median(&|step| step.report.times.optimizer.as_secs_f64()),
        1,
        &buckets,
    )
}
