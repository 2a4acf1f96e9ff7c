//! `summary.json`: the whole run in one object.

use crate::models::ResNet;
use kolo_burn::Ddp;
use kolo_comm::{Group, Op};
use kolo_ddp::{Kind, checkpoint};
use serde::Serialize;

use crate::course::Course;
use crate::error::Error;
use crate::worker::Worker;

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
pub(crate) fn peak_rss(group: &Group) -> Result<u64, Error> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<i64>().ok());
    let mut peak = [kib.unwrap_or(0) * 1024];
    group.all_reduce(&mut peak, Op::Max)?;
    Ok(peak[0] as u64)
}

impl Worker<'_> {
    /// Needs the others no more: since the evaluation all updates are in.
    pub(crate) fn summary(
        &self,
        course: &Course,
        peak_rss_bytes: u64,
        seconds: f64,
    ) -> Result<Summary, Error> {
        let (whole, last) = (course.meter(), course.records().last());
        Ok(Summary {
            kolo: env!("CARGO_PKG_VERSION"),
            world_size: self.ddp.group().world_size(),
            shards: self.config.shards,
            transport: self.ddp.group().transport(),
            model: self.config.model.clone(),
            data: self.config.data.clone(),
            parameters: parameters(&self.ddp),
            epochs: course.epochs(),
            steps: course.position.step,
            train_seconds: seconds,
            images_per_second: whole.images_per_second(),
            step_seconds_p50: whole.step_percentile(50.0),
            step_seconds_p95: whole.step_percentile(95.0),
            comm_fraction: whole.comm_fraction(),
            exposed_comm_fraction: whole.exposed_comm_fraction(),
            train_loss: last.map_or(0.0, |row| row.train_loss),
            test_accuracy: last.map_or(0.0, |row| row.test_accuracy),
            weights_sha256: self.ddp.with_replica(checkpoint::weights_sha256)?,
            peak_rss_bytes,
        })
    }
}

/// Trained parameters of the model.
pub(crate) fn parameters(ddp: &Ddp<ResNet>) -> usize {
    let trained = ddp.layout().spans().iter().filter(|span| span.spec.kind != Kind::Statistic);
    trained.map(|span| span.len).sum()
}
