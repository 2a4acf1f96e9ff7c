//! Samples of a measurement, and helpers of several benchmarks.

use std::time::Instant;

use kolo_comm::{Group, Op};

use kolo::Failure;
use kolo_run_folder::percentile;

#[derive(Default)]
pub(super) struct Samples(pub(super) Vec<f64>);

impl Samples {
    /// Returns the slowest rank's value of each sample. A collective.
    pub(super) fn slowest(mut self, group: &Group) -> Result<Samples, Failure> {
        group.all_reduce(&mut self.0, Op::Max)?;
        Ok(self)
    }

    /// Returns the value below which `percent` % of the samples lie.
    pub(super) fn percentile(&self, percent: f64) -> f64 {
        percentile(self.0.iter().copied(), percent).unwrap_or(0.0)
    }
}

/// Refuses a count of 0; counts come with the names of their options.
pub(super) fn at_least_1(counts: &[(&str, usize)]) -> Result<(), Failure> {
    match counts.iter().find(|(_, value)| *value == 0) {
        Some((name, _)) => Err(Failure::input(format!("{name} 0: it must be at least 1"))),
        None => Ok(()),
    }
}

/// Returns the GB/s that the memory bus carries, read and written, if all ranks copy at once. A collective.
pub(super) fn memory_bus(group: &Group) -> Result<f64, Failure> {
    /// Bytes of all ranks together, more than caches hold.
    const ALL: usize = 256 << 20;
    let bytes = ALL / group.world_size();
    let (from, mut to) = (vec![1u8; bytes], vec![0u8; bytes]);
    let mut samples = Samples::default();
    for _ in 0..5 {
        group.barrier()?;
        let began = Instant::now();
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&mut to);
        samples.0.push(began.elapsed().as_secs_f64());
    }
    // The minimum: the first copy gets its pages from the system, and later ones may be disturbed.
    let seconds = samples.slowest(group)?.percentile(0.0);
    Ok((2 * bytes * group.world_size()) as f64 / seconds / 1e9)
}
