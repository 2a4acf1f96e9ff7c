//! `kolo bench all-reduce`: a sum in place, in the manner of nccl-tests.

use std::time::{Duration, Instant};

use clap::Args;
use kolo_comm::schedule::ALGORITHMS;
use kolo_comm::{Buffer, Collective, Group, Op};
use serde::Serialize;

use super::Samples;
use crate::fail::Failure;

/// Sum f32 in place over all ranks, at several sizes; results are verified.
#[derive(Args)]
pub(crate) struct Options {
    /// Workers on this machine
    #[arg(long, default_value_t = 2)]
    pub(crate) nproc: usize,
    /// Bytes, separated by commas
    #[arg(long, value_delimiter = ',', default_values_t = [4, 64, 1024, 16384, 65536, 262_144, 1_048_576, 4_194_304, 16_777_216, 46_800_000, 100_000_000])]
    sizes: Vec<usize>,
    /// Seconds a size
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Algorithm [default: chosen by size and transport]; by KOLO_ALGORITHM for other programs
    #[arg(long, value_parser = ALGORITHMS.iter().map(|algorithm| algorithm.name).collect::<Vec<_>>())]
    algorithm: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Samples of one size: at least, and at most.
const SAMPLES: (usize, usize) = (20, 2000);
const WARM_UP: usize = 5;

#[derive(Serialize)]
struct Row {
    bytes: usize,
    p50_us: f64,
    p99_us: f64,
    /// Bytes by time.
    algbw_gbps: f64,
    /// algbw × 2(n−1)/n: what each rank's link carries, in GB/s.
    busbw_gbps: f64,
    samples: usize,
}

impl Options {
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.nproc == 0 {
            return Err(Failure::input("--nproc 0: it must be at least 1"));
        }
        if let Some(size) = self.sizes.iter().find(|size| !size.is_multiple_of(4) || **size == 0) {
            return Err(Failure::input(format!(
                "--sizes {size}: give a multiple of 4 bytes, greater than 0"
            )));
        }
        if !(self.seconds > 0.0 && self.seconds < 3600.0) {
            return Err(Failure::input(format!("--seconds {}: give a time greater than 0", self.seconds)));
        }
        Ok(())
    }
}

pub(crate) fn measure(options: &Options) -> Result<(), Failure> {
    let group = group(options)?;
    let mut rows = Vec::new();
    for &bytes in &options.sizes {
        rows.push(measure_size(&group, bytes, options.seconds)?);
    }
    if group.rank().0 != 0 {
        return Ok(());
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&rows).map_err(Failure::work)?);
        return Ok(());
    }
    println!("# sum of f32 in place, {} ranks over {}", group.world_size(), group.transport());
    println!("{:>12} {:>12} {:>12} {:>12} {:>12}", "bytes", "p50 µs", "p99 µs", "algbw GB/s", "busbw GB/s");
    for row in &rows {
        let Row { bytes, p50_us, p99_us, algbw_gbps, busbw_gbps, .. } = row;
        println!("{bytes:>12} {p50_us:>12.1} {p99_us:>12.1} {algbw_gbps:>12.3} {busbw_gbps:>12.3}");
    }
    Ok(())
}

fn group(options: &Options) -> Result<Group, Failure> {
    let mut settings = kolo_comm::Options::from_env()?;
    if let Some(name) = &options.algorithm {
        settings.algorithm = ALGORITHMS.iter().find(|algorithm| algorithm.name == name);
    }
    match kolo_comm::env::Place::from_env()? {
        Some(place) => Ok(Group::join(&place, &settings)?),
        None => Ok(Group::alone()),
    }
}

fn measure_size(group: &Group, bytes: usize, seconds: f64) -> Result<Row, Failure> {
    let collective = Collective::AllReduce(Op::Sum);
    let mut buffer = verify(group, group.alloc::<f32>(bytes / 4)?)?;
    buffer.fill(0.0);
    let one = |samples: &mut Samples, buffer: Buffer<f32>| -> Result<Buffer<f32>, Failure> {
        group.barrier()?;
        let began = Instant::now();
        let buffer = group.run(&collective, buffer)?;
        samples.0.push(began.elapsed().as_secs_f64());
        Ok(buffer)
    };
    for _ in 0..WARM_UP {
        buffer = one(&mut Samples::default(), buffer)?;
    }
    let mut samples = Samples::default();
    // All ranks must agree on the number of samples: rank 0's clock decides, in batches.
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    loop {
        for _ in 0..SAMPLES.0 {
            buffer = one(&mut samples, buffer)?;
        }
        let mut on = [u8::from(Instant::now() < until && samples.0.len() < SAMPLES.1)];
        group.broadcast(&mut on, kolo_comm::Rank(0))?;
        if on[0] == 0 {
            break;
        }
    }
    verify(group, buffer)?;
    let count = samples.0.len();
    let samples = samples.slowest(group)?;
    let p50 = samples.percentile(50.0);
    let algbw_gbps = bytes as f64 / p50.max(1e-12) / 1e9;
    let world = group.world_size() as f64;
    Ok(Row {
        bytes,
        p50_us: p50 * 1e6,
        p99_us: samples.percentile(99.0) * 1e6,
        algbw_gbps,
        busbw_gbps: algbw_gbps * 2.0 * (world - 1.0) / world,
        samples: count,
    })
}

/// Reduces numbers whose sums are exact and checks every element.
fn verify(group: &Group, mut buffer: Buffer<f32>) -> Result<Buffer<f32>, Failure> {
    let (rank, world) = (group.rank().0, group.world_size());
    let value = |rank: usize, index: usize| ((index % 251) + 7 * rank) as f32;
    buffer.iter_mut().enumerate().for_each(|(index, x)| *x = value(rank, index));
    let buffer = group.run(&Collective::AllReduce(Op::Sum), buffer)?;
    let expected = |index: usize| (0..world).map(|rank| value(rank, index)).sum::<f32>();
    match buffer.iter().enumerate().position(|(index, x)| *x != expected(index)) {
        None => Ok(buffer),
        Some(index) => Err(Failure::work(format!(
            "wrong sum on rank {rank}: element {index} of {} is {}, not {}",
            buffer.len(),
            buffer[index],
            expected(index)
        ))),
    }
}
