//! The figures about a whole run, collected at its end.

use kolo_comm::schedule::words::counted;
use kolo_comm::{Group, Op};
use kolo_ddp::Ddp;
use kolo_ddp::binding::Binding;
use kolo_ddp::sync::SyncMode;
use kolo_metrics::{Metric, NoiseSummary, Progress, SampleCounts, Speed, StalenessSummary, Summary};
use kolo_recipe::Recipe;

use crate::error::Error;

/// Makes the summary after the evaluation. All updates are complete then, so this needs no other rank.
pub(crate) fn summary_of<B: Binding>(
    ddp: &Ddp<B>,
    config: &Recipe,
    unit: &str,
    metrics: &[Metric],
    progress: &Progress,
    peak_rss_bytes: u64,
    train_seconds: f64,
) -> Result<Summary, Error> {
    // This worker may not have seen the last epoch. If a run lacks only its summary, the checkpoint has
    // the figures.
    let last = progress.epochs().last();
    let scores = || progress.evaluations().scores(progress.step(), metrics).unwrap_or_default();
    let whole = progress.meter();
    let noise_scale = ddp.with_replica(|replica| replica.noise_scale())?;
    Ok(Summary {
        kolo: env!("CARGO_PKG_VERSION"),
        world_size: ddp.workers().len(),
        workers_per_core: ddp.group().network().crowding,
        shards: config.shards,
        transport: ddp.group().transport(),
        model: config.model.clone(),
        data: config.data.clone(),
        samples: SampleCounts::default(),
        parameters: parameters(ddp),
        epochs: progress.epochs_begun(),
        steps: progress.step(),
        stopped_by: progress.stopped_by(),
        skipped_steps: config
            .precision
            .loss_scaling()?
            .map(|_| ddp.with_replica(|replica| replica.skipped_steps())),
        train_seconds,
        steps_seconds: whole.seconds(),
        speed: Speed { unit: unit.into(), per_second: whole.samples_per_second() },
        step_seconds_p50: whole.step_percentile(50.0),
        step_seconds_p95: whole.step_percentile(95.0),
        comm_fraction: whole.comm_fraction(),
        exposed_comm_fraction: whole.exposed_comm_fraction(),
        sync: config.sync.mode.to_string(),
        synchronized_steps: progress.summed().0,
        summed_bytes: progress.summed().1,
        staleness: progress.staleness().map(StalenessSummary::of),
        train_loss: last.map_or(progress.epoch_meter().train_loss(), |row| row.train_loss),
        scores: last.map_or_else(scores, |row| row.scores.clone()),
        best: None,
        classification: None,
        noise_scale: noise_scale.map(|noise| NoiseSummary::of(&noise, progress)),
        weights_sha256: ddp.weights_sha256()?,
        peak_rss_bytes,
        warnings: Vec::new(),
    })
}

/// Returns a warning if most steps of the run changed nothing because they overflowed.
pub(crate) fn skipped_warning(summary: &Summary) -> Option<String> {
    // Where islands are synchronized rarely, each skips steps of its own.
    let is_rare = summary.sync.parse().is_ok_and(|mode: SyncMode| mode.traits().rounds.is_some());
    summary.skipped_steps.filter(|_| !is_rare).and_then(|skipped| mostly_skipped(skipped, summary.steps))
}

fn mostly_skipped(skipped: u64, steps: u64) -> Option<String> {
    (skipped > steps / 2).then(|| {
        format!(
            "{skipped} of {} trained nothing, because they overflowed; give a smaller --loss-scale or \
             --loss-scale-backoff, or --precision bf16",
            counted(steps, "step")
        )
    })
}

/// Returns the peak memory of any worker. A collective.
pub(crate) fn peak_rss(group: &Group) -> Result<u64, Error> {
    let mut peak = [peak_bytes() as i64];
    group.all_reduce(&mut peak, Op::Max)?;
    Ok(peak[0] as u64)
}

/// Returns the largest amount of memory that this process has had, in bytes; 0 without `/proc`.
///
/// ```
/// assert!(kolo_train::peak_bytes() > 0);
/// ```
pub fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

pub(crate) fn parameters<B: Binding>(ddp: &Ddp<B>) -> usize {
    let trained = ddp.layout().spans().iter().filter(|span| span.spec.kind.is_trained());
    trained.map(|span| span.len).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_mostly_skipped_steps_warns() {
        assert_eq!((mostly_skipped(0, 1), mostly_skipped(5, 10)), (None, None));
        assert!(mostly_skipped(6, 10).unwrap().contains("6 of 10 steps trained nothing"));
        assert!(mostly_skipped(1, 1).is_some());
    }
}
