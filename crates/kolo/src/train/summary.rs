//! `summary.json`: the whole run in one object.

use kolo_comm::{Group, Op};
use serde::Serialize;

use crate::fail::Failure;

/// See the module's text.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) kolo: &'static str,
    pub(crate) world_size: usize,
    pub(crate) shards: usize,
    pub(crate) transport: &'static str,
    pub(crate) model: String,
    pub(crate) data: String,
    pub(crate) parameters: usize,
    pub(crate) epochs: usize,
    pub(crate) steps: u64,
    pub(crate) train_seconds: f64,
    pub(crate) images_per_second: f64,
    pub(crate) step_seconds_p50: f64,
    pub(crate) step_seconds_p95: f64,
    pub(crate) comm_fraction: f64,
    pub(crate) exposed_comm_fraction: f64,
    pub(crate) train_loss: f64,
    pub(crate) test_accuracy: f64,
    pub(crate) weights_sha256: String,
    /// The largest of all workers.
    pub(crate) peak_rss_bytes: u64,
}

/// The most memory that any worker had at once. A collective.
pub(crate) fn peak_rss(group: &Group) -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<i64>().ok());
    let mut peak = [kib.unwrap_or(0) * 1024];
    group.all_reduce(&mut peak, Op::Max)?;
    Ok(peak[0] as u64)
}
