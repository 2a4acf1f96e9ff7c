//! Exact evaluation, spread over the workers: every test sample counts once, on any number of ranks, and sums
//! are added in the order of the batches.

use burn::module::Module;
use burn::tensor::Device;
use kolo_burn::{Ddp, Precision, with_precision};
use kolo_data::{DataSet, Part};

use crate::error::Error;
use crate::metric::{Mean, Score, Scores};
use crate::task::Task;

/// The model's scores over all test samples, computed in `precision`, in batches of `batch_size`; none where
/// nothing is measured or there are no samples. A collective.
pub(crate) fn scores<M: Module, D: DataSet + ?Sized>(
    ddp: &Ddp<M>,
    task: &Task<M, D>,
    batch_size: usize,
    precision: Precision,
    device: &Device,
) -> Result<Scores, Error> {
    // Servers hold no model.
    let workers = ddp.workers();
    let place = workers.iter().position(|worker| *worker == ddp.rank());
    let (metrics, samples) = (task.measured(), task.data.samples(Part::Test));
    let Some(evaluate) = task.evaluate.as_ref().filter(|_| !metrics.is_empty()) else {
        return Ok(Scores::default());
    };
    let model = ddp.model().valid();
    let indices: Vec<usize> = (0..samples).collect();
    let own = indices.chunks(batch_size).skip(place.unwrap_or(samples)).step_by(workers.len());
    let mean_of = |batch: &[usize]| {
        let batch = task.data.batch(Part::Test, batch, None);
        with_precision(precision, || evaluate(&model, batch, device))
    };
    let means = own.map(mean_of);
    let means: Vec<Vec<(f64, f64)>> =
        means.map(|means| means.into_iter().map(|Mean { sum, count }| (sum, count)).collect()).collect();
    let all: Vec<Vec<Vec<(f64, f64)>>> = ddp.group().all_gather_value(&means)?;
    let mut total = vec![(0.0, 0.0); metrics.len()];
    for batch in 0..samples.div_ceil(batch_size) {
        let (worker, number) = (workers[batch % workers.len()], batch / workers.len());
        let Some(means) = all[worker.0].get(number) else { continue };
        for ((sum, count), mean) in total.iter_mut().zip(means) {
            (*sum, *count) = (*sum + mean.0, *count + mean.1);
        }
    }
    let score = |(metric, (sum, count)): (_, (f64, f64))| Score { metric, value: sum / count };
    Ok(Scores(metrics.iter().copied().zip(total).map(score).collect()))
}
