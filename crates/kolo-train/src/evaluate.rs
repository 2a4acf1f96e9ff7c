//! Exact evaluation, spread over the workers: every sample of a part counts once, on any number of ranks, and
//! tallies are merged in the order of the batches.

use kolo_data::{DataSet, Part, Prefetch};
use kolo_ddp::Ddp;
use kolo_metrics::{Classification, Metric, Score, Scores};

use crate::error::Error;
use crate::framework::Framework;
use crate::task::Task;

/// Signals that end an evaluation early.
pub(crate) struct Stop<'a> {
    /// Returns true if this worker was signaled to end.
    pub(crate) asked: &'a dyn Fn() -> bool,
    /// True if no worker continues without the others.
    pub(crate) is_fixed: bool,
}

/// Tallies of a worker's batches, as bytes.
type Tallies = Vec<Vec<u8>>;

/// True if a worker was signaled to end; true if it has evaluated all of its batches; their results.
type Told = (bool, bool, Tallies);

/// Result of an evaluation.
pub(crate) struct Evaluated {
    pub(crate) part: Part,
    pub(crate) scores: Scores,
    /// Counts of classes, if the user's tally has some.
    pub(crate) classification: Option<Classification>,
}

/// Returns the model's scores over all samples of `part`, computed in batches of `batch_size`, which
/// `threads` threads prepare. The scores are empty without metrics or samples. Returns `None` if the job was
/// signaled to end before all samples were evaluated. A collective.
pub(crate) fn evaluate<F: Framework<M>, M, D: DataSet + ?Sized + 'static>(
    framework: &F,
    ddp: &Ddp<F::Model>,
    task: &Task<F, M, D>,
    part: Part,
    [batch_size, threads]: [usize; 2],
    stop: &Stop<'_>,
) -> Result<Option<Evaluated>, Error> {
    // Servers hold no model.
    let workers = ddp.workers();
    let place = workers.iter().position(|worker| *worker == ddp.rank());
    let (metrics, samples) = (&task.metrics, task.data.samples(part));
    let Some(evaluate) = task.evaluate.as_ref().filter(|_| samples > 0 && !metrics.is_empty()) else {
        return Ok(Some(Evaluated { part, scores: Scores::default(), classification: None }));
    };
    // The averages of the weights, if the run has them.
    let averaged = ddp.averaged_model()?;
    let model = F::evaluated(averaged.as_ref().unwrap_or(ddp.model()));
    let indices: Vec<usize> = (0..samples).collect();
    let own = indices.chunks(batch_size).skip(place.unwrap_or(samples)).step_by(workers.len());
    let own: Vec<Vec<usize>> = own.map(<[usize]>::to_vec).collect();
    let (data, count) = (task.data.clone(), own.len());
    // One batch waits, or is being prepared: they are large.
    let mut batches = Prefetch::new(own, 0, threads, move |indices| data.batch(part, &indices, None))?;
    let mut next = || {
        let batch = batches.next().ok_or(Error::DataEnded)??.map_err(Error::from)?;
        framework.evaluation(|device| (evaluate.batch)(&model, batch, device))
    };
    let mut tallies: Tallies = Vec::new();
    while !(stop.asked)() && tallies.len() < count {
        tallies.push(next()?);
    }
    ddp.expect_values()?;
    let told: Vec<Told> =
        ddp.group().all_gather_value(&((stop.asked)(), tallies.len() == count, tallies.clone()))?;
    let of_workers = || workers.iter().map(|worker| &told[worker.0]);
    let all: Vec<Tallies> = if told.iter().all(|(_, is_done, _)| *is_done) {
        told.into_iter().map(|(_, _, tallies)| tallies).collect()
    } else if of_workers().all(|(is_asked, ..)| *is_asked)
        || stop.is_fixed && told.iter().any(|(is_asked, ..)| *is_asked)
    {
        return Ok(None);
    } else {
        // The other workers continue without the signaled ones, once they have all scores.
        while tallies.len() < count {
            tallies.push(next()?);
        }
        ddp.expect_values()?;
        ddp.group().all_gather_value(&tallies)?
    };
    let in_order = (0..samples.div_ceil(batch_size)).filter_map(|batch| {
        let (worker, number) = (workers[batch % workers.len()], batch / workers.len());
        all[worker.0].get(number).map(Vec::as_slice)
    });
    let (values, classification) = (evaluate.finish)(&in_order.collect::<Vec<_>>())?;
    if values.len() != metrics.len() {
        return Err(Error::Tally { metrics: metrics.len(), values: values.len() });
    }
    let of_part = |metric: &Metric| Metric { part, ..*metric };
    let score = |(metric, value)| Score { metric, value };
    let scores = Scores(metrics.iter().map(of_part).zip(values).map(score).collect());
    Ok(Some(Evaluated { part, scores, classification }))
}
