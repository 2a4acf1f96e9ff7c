//! All-reduce in the manner of nccl-tests: `kolo bench all-reduce --backend nccl` and the example `nccl_all_reduce` print it.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::{DeviceBuffer, DeviceGroup};
use kolo_rendezvous::Error;
use kolo_schedule::Op;
use kolo_schedule::Rank;

/// Samples of one size: at least, and at most.
const SAMPLES: (usize, usize) = (20, 2000);
const WARM_UP: usize = 5;

/// Sums of one size. A sample is the slowest rank's time, from the call to the end on the stream.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Bytes of a rank's buffer.
    pub bytes: usize,
    /// Mean time of a sum, in microseconds.
    pub mean_us: f64,
    /// Half of the sums took less.
    pub p50_us: f64,
    /// 99 of 100 sums took less.
    pub p99_us: f64,
    /// Bytes by the median time.
    pub algbw_gbps: f64,
    /// algbw × 2(n−1)/n: what each rank's link carries, in GB/s.
    pub busbw_gbps: f64,
    /// How many sums were measured.
    pub samples: usize,
}

/// Sums `f32` in place over all ranks' devices again and again, with a barrier before each; every element is verified
/// before and after. A collective.
///
/// # Errors
///
/// A sum is wrong ([`Error::Invalid`]); otherwise as [`DeviceGroup::run`].
pub fn measure_all_reduce(devices: &DeviceGroup, bytes: usize, limit: Duration) -> Result<Measured, Error> {
    let group = devices.group();
    let len = bytes / size_of::<f32>();
    let mut buffer = verified(devices, devices.alloc(len)?)?;
    // Sums of sums would grow without end.
    devices.write(&vec![0.0; len], &mut buffer)?;
    let one = |buffer: DeviceBuffer<f32>| -> Result<(DeviceBuffer<f32>, f64), Error> {
        group.barrier()?;
        let began = Instant::now();
        let buffer = devices.all_reduce(buffer, Op::Sum)?;
        Ok((buffer, began.elapsed().as_secs_f64()))
    };
    for _ in 0..WARM_UP {
        (buffer, _) = one(buffer)?;
    }
    let (mut samples, until) = (Vec::new(), Instant::now() + limit);
    loop {
        for _ in 0..SAMPLES.0 {
            let sample;
            (buffer, sample) = one(buffer)?;
            samples.push(sample);
        }
        // All ranks must agree on the number of samples: rank 0's clock decides, in batches.
        let mut on = [u8::from(Instant::now() < until && samples.len() < SAMPLES.1)];
        group.broadcast(&mut on, Rank(0))?;
        if on[0] == 0 {
            break;
        }
    }
    verified(devices, buffer)?;
    group.all_reduce(&mut samples, Op::Max)?;
    Ok(summary(bytes, group.world_size(), samples))
}

fn summary(bytes: usize, world: usize, mut samples: Vec<f64>) -> Measured {
    samples.sort_by(f64::total_cmp);
    // The nearest rank: the smallest sample that so many are not above.
    let percentile = |percent: usize| samples[(samples.len() * percent).div_ceil(100).max(1) - 1];
    let algbw_gbps = bytes as f64 / percentile(50).max(1e-12) / 1e9;
    Measured {
        bytes,
        mean_us: samples.iter().sum::<f64>() / samples.len() as f64 * 1e6,
        p50_us: percentile(50) * 1e6,
        p99_us: percentile(99) * 1e6,
        algbw_gbps,
        busbw_gbps: algbw_gbps * 2.0 * (world as f64 - 1.0) / world as f64,
        samples: samples.len(),
    }
}

/// Sums numbers whose sums are exact and checks every element on every rank.
fn verified(devices: &DeviceGroup, mut buffer: DeviceBuffer<f32>) -> Result<DeviceBuffer<f32>, Error> {
    let (rank, world) = (devices.rank().0, devices.world_size());
    let value = |rank: usize, index: usize| ((index % 251) + 7 * rank) as f32;
    let data: Vec<f32> = (0..buffer.len()).map(|index| value(rank, index)).collect();
    devices.write(&data, &mut buffer)?;
    let buffer = devices.all_reduce(buffer, Op::Sum)?;
    let expected = |index: usize| (0..world).map(|rank| value(rank, index)).sum::<f32>();
    let found = devices.to_vec(&buffer)?;
    match found.iter().enumerate().position(|(index, x)| *x != expected(index)) {
        None => Ok(buffer),
        Some(index) => {
            let (x, len, right) = (found[index], found.len(), expected(index));
            Err(Error::Invalid(format!(
                "wrong sum on rank {rank}: element {index} of {len} is {x}, not {right}"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_of_the_definition() {
        let samples = (1..=100).rev().map(|n| n as f64 * 1e-6).collect();
        let Measured { mean_us, p50_us, p99_us, algbw_gbps, busbw_gbps, samples, .. } =
            summary(5000, 4, samples);
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        near(mean_us, 50.5);
        near(p50_us, 50.0);
        near(p99_us, 99.0);
        near(algbw_gbps, 0.1);
        near(busbw_gbps, 0.15);
        assert_eq!(samples, 100);
    }
}
