//! Latency of a model's scores.

use std::time::Instant;

use kolo_data::{DataError, ImageDataSet, Part};
use kolo_run_folder::percentile;
use serde::Serialize;

use super::classifier::{Classifier, test_batch};

/// Uncounted first passes, which allocate memory and fill caches.
const WARM_UP: usize = 3;

/// Time to score a batch: from normalized images in the host's memory to scores there.
#[derive(Clone, Debug, Serialize)]
pub struct Latency {
    /// Images of a batch.
    pub batch_size: usize,
    /// Batches that were timed.
    pub repeats: usize,
    /// Median time of a batch, in milliseconds.
    pub p50_ms: f64,
    /// 95th percentile, in milliseconds.
    pub p95_ms: f64,
    /// 99th percentile, in milliseconds.
    pub p99_ms: f64,
    /// Images of all batches, divided by the time of all.
    pub images_per_second: f64,
}

/// Times `repeats` batches of test images, each of `batch_size`, one after the other. A data set with fewer
/// images has some of them several times in a batch; it must have at least one.
///
/// # Errors
///
/// An image cannot be read.
pub fn latency(
    classifier: &dyn Classifier,
    data: &dyn ImageDataSet,
    batch_size: usize,
    repeats: usize,
) -> Result<Latency, DataError> {
    let samples = data.samples(Part::Test).max(1);
    let batch = |number: usize| {
        let indices: Vec<usize> = (0..batch_size).map(|i| (number * batch_size + i) % samples).collect();
        test_batch(data, &indices)
    };
    for number in 0..WARM_UP {
        drop(classifier.scores(batch(number)?));
    }
    let times = (0..repeats).map(|number| {
        let batch = batch(number)?;
        let began = Instant::now();
        let scores = classifier.scores(batch);
        let seconds = began.elapsed().as_secs_f64();
        drop(scores);
        Ok(seconds)
    });
    let times = times.collect::<Result<Vec<f64>, DataError>>()?;
    let [p50_ms, p95_ms, p99_ms] =
        [50.0, 95.0, 99.0].map(|percent| 1e3 * percentile(times.iter().copied(), percent).unwrap_or(0.0));
    let images_per_second = (batch_size * repeats) as f64 / times.iter().sum::<f64>().max(1e-9);
    Ok(Latency { batch_size, repeats, p50_ms, p95_ms, p99_ms, images_per_second })
}
