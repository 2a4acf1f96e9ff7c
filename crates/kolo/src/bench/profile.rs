//! `kolo bench profile`: what one worker does in a step by itself, and how much longer it takes where all
//! cores compute. `kolo plan step --profile FILE` begins with that.

use std::time::Instant;

use clap::Args;
use kolo_ddp::reduction::{self, REDUCTIONS};
use kolo_ddp::{BucketCaps, Config, StepReport};
use kolo_plan::step::{MeasuredBucket, StepProfile};
use kolo_run_folder::{median, percentile};
use serde::{Deserialize, Serialize};

use super::samples::{Samples, at_least_1};
use super::trainee::{Trainee, Work};
use crate::options::Communication;
use kolo::{Failure, Precision};
use kolo_train::check_bucket_cap;

/// A worker's step by itself, as JSON for `kolo plan step --profile`: on random images, one worker alone and
/// one on each core in turn.
#[derive(Args)]
pub(crate) struct Options {
    /// Workers of this machine that compute at once, each by itself [default: one for each core]
    #[arg(long)]
    nproc: Option<usize>,
    #[command(flatten)]
    work: Work,
    /// Largest bucket in MiB: the smaller, the better it is known when each parameter's gradient is there
    #[arg(long, default_value_t = 1.0)]
    bucket_cap_mb: f64,
    /// How gradients are reduced, as for `kolo train`
    #[arg(long, value_name = "NAME[:SETTINGS]", default_value = REDUCTIONS[0].name)]
    reduction: String,
    /// Blocks of steps of one worker alone, and as many of all
    #[arg(long, default_value_t = 5)]
    blocks: usize,
    /// Steps a block, besides its first one
    #[arg(long, default_value_t = 6)]
    steps: usize,
    #[command(flatten)]
    pub(crate) communication: Communication,
}

/// Blocks before the measured ones: buckets are cut anew after the first step, and profiled in the next
/// five.
const WARM_UP: usize = 1;

/// What `kolo bench profile` prints.
#[derive(Serialize, Deserialize)]
pub(crate) struct WorkerProfile {
    pub(crate) model: String,
    pub(crate) batch_size: usize,
    /// The type of convolutions and products; those of the first versions were f32.
    #[serde(default = "f32")]
    pub(crate) precision: String,
    pub(crate) reduction: String,
    /// Workers that computed at once: one for each core.
    pub(crate) cores: usize,
    /// How many times as long a step took then as alone.
    pub(crate) full_slowdown: f64,
    /// Half of what lies between the 16th and the 84th percentile of a worker's steps, by their median.
    pub(crate) spread: f64,
    pub(crate) profile: StepProfile,
}

fn f32() -> String {
    Precision::ALL[0].0.into()
}

impl Options {
    /// Workers to start.
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
    let (mut alone, mut together) = (Vec::new(), Samples::default());
    for block in 0..WARM_UP + options.blocks {
        for all in [false, true] {
            group.barrier()?;
            let computes = all || group.rank().0 == 0;
            for step in (0..=options.steps).filter(|_| computes) {
                let measured = timed(&mut trainee)?;
                match block >= WARM_UP && step > 0 {
                    true if all => together.0.push(measured.own),
                    true => alone.push(measured),
                    false => {}
                }
            }
            group.barrier()?;
        }
    }
    let together = together.slowest(&group)?.percentile(50.0);
    if group.rank().0 != 0 {
        return Ok(());
    }
    let of = |percent| percentile(alone.iter().map(|step| step.own), percent).unwrap_or(0.0);
    let measured = WorkerProfile {
        model: options.work.model.clone(),
        batch_size: options.work.batch_size,
        precision: options.work.precision.clone(),
        reduction: options.reduction.clone(),
        cores: group.world_size(),
        full_slowdown: (together / of(50.0)).max(1.0),
        spread: (of(84.0) - of(16.0)) / 2.0 / of(50.0),
        profile: profile(&alone),
    };
    println!("{}", serde_json::to_string_pretty(&measured).map_err(Failure::work)?);
    Ok(())
}

/// One step of a worker.
struct Measured {
    /// Seconds without waiting.
    own: f64,
    report: StepReport,
}

fn timed(trainee: &mut Trainee) -> Result<Measured, Failure> {
    let began = Instant::now();
    let report = trainee.report()?;
    let own = (began.elapsed().saturating_sub(report.exposed)).as_secs_f64();
    Ok(Measured { own, report })
}

/// Medians over the steps.
fn profile(steps: &[Measured]) -> StepProfile {
    let median = |of: &dyn Fn(&Measured) -> f64| median(steps.iter().map(of)).unwrap_or(0.0);
    let buckets = steps.iter().map(|step| step.report.buckets.len()).min().unwrap_or(0);
    let bucket = |index: usize| {
        let last = &steps[steps.len() - 1].report.buckets[index];
        MeasuredBucket {
            bytes: last.bytes as f64,
            wire_bytes: last.wire_bytes as f64,
            ready: median(&|step| step.report.buckets[index].ready),
            needed: Some(median(&|step| step.report.buckets[index].needed)),
        }
    };
    let buckets: Vec<MeasuredBucket> = (0..buckets).map(bucket).collect();
    StepProfile::measured(
        median(&|step| step.own),
        median(&|step| step.report.backward.as_secs_f64()),
        median(&|step| step.report.optimizer.as_secs_f64()),
        1,
        &buckets,
    )
}
