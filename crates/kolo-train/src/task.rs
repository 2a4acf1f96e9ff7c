//! The user's own code in a run: the loss, the data, and the metrics.

use std::sync::Arc;

use kolo_data::{DataSet, Part};
use kolo_metrics::{Classification, Metric, Record, Tally};
use kolo_recipe::Recipe;

use crate::error::Error;
use crate::flow::{Flow, Moment};
use crate::framework::Framework;
use crate::own_parts::Own;

/// Loss of one shard's samples in training.
pub(crate) type LossOf<F, M, B> =
    dyn Fn(&M, B, &<F as Framework<M>>::Context<'_>) -> <F as Framework<M>>::Loss + Send + Sync;

/// The user's evaluation, with tallies as bytes.
pub(crate) struct Evaluate<F: Framework<M>, M, B> {
    /// Tally of one batch.
    pub(crate) batch: Box<BatchTally<F, M, B>>,
    /// Merges the tallies of all batches, in their order.
    pub(crate) finish: Finish,
}

type Finish = fn(&[&[u8]]) -> Result<Finished, Error>;
/// Values of the metrics, and the counts of classes if the tally has some.
pub(crate) type Finished = (Vec<f64>, Option<Classification>);
type BatchTally<F, M, B> = dyn Fn(&M, B, &<F as Framework<M>>::Device) -> Result<Vec<u8>, Error>;

impl<F: Framework<M>, M, B> Evaluate<F, M, B> {
    pub(crate) fn of<T: Tally>(evaluate: impl Fn(&M, B, &F::Device) -> T + 'static) -> Self {
        let batch = move |model: &M, batch, device: &F::Device| {
            postcard::to_allocvec(&evaluate(model, batch, device)).map_err(not_encoded)
        };
        Evaluate { batch: Box::new(batch), finish: finished::<T> }
    }
}

fn finished<T: Tally>(batches: &[&[u8]]) -> Result<Finished, Error> {
    let mut all: Option<T> = None;
    for bytes in batches {
        let tally: T = postcard::from_bytes(bytes).map_err(not_encoded)?;
        match &mut all {
            Some(all) => all.merge(tally),
            None => all = Some(tally),
        }
    }
    Ok(all.map(|all| (all.finish(), all.classification())).unwrap_or_default())
}

fn not_encoded(error: postcard::Error) -> Error {
    kolo_recipe::Error::encode("the tally of a batch", error).into()
}

/// The user's input besides the model and the recipe.
pub(crate) struct Task<F: Framework<M>, M, D: DataSet + ?Sized> {
    pub(crate) data: Arc<D>,
    pub(crate) loss: Box<LossOf<F, M, D::Batch>>,
    pub(crate) metrics: Vec<Metric>,
    pub(crate) evaluate: Option<Evaluate<F, M, D::Batch>>,
    /// Unit that the loss counts: images, tokens.
    pub(crate) unit: String,
    pub(crate) own: Own,
    /// Callbacks for every record, on rank 0.
    pub(crate) listeners: Vec<Listener<M>>,
}

impl<F: Framework<M>, M, D: DataSet + ?Sized> Task<F, M, D> {
    /// Part that judges the model during the run.
    pub(crate) fn judging_part(&self) -> Part {
        if self.data.samples(Part::Validation) > 0 { Part::Validation } else { Part::Test }
    }

    /// Metrics to measure during the run: none without samples to judge by.
    pub(crate) fn measured(&self) -> &[Metric] {
        if self.data.samples(self.judging_part()) > 0 { &self.metrics } else { &[] }
    }

    /// Metric that decides the best model, and the time to stop.
    pub(crate) fn deciding_metric(&self, config: &Recipe) -> Option<(usize, Metric)> {
        deciding(config, self.measured())
    }

    /// Calls the listeners, and returns the strongest of their answers. Meanwhile this worker counts as busy,
    /// because a listener may upload something.
    pub(crate) fn tell(&mut self, record: &Record<'_>, model: &M) -> Flow {
        let _working = kolo_elastic::working();
        let answers = self.listeners.iter_mut().map(|listener| (listener.call)(record, model));
        answers.max().unwrap_or_default()
    }

    /// True if a callback decides on the run at such moments.
    pub(crate) fn decides(&self, moment: Moment) -> bool {
        self.listeners.iter().any(|listener| listener.decides == Some(moment))
    }
}

fn deciding(config: &Recipe, measured: &[Metric]) -> Option<(usize, Metric)> {
    let wanted = |metric: &Metric| config.best_metric.as_ref().is_none_or(|name| name == metric.name);
    measured.iter().copied().enumerate().find(|(_, metric)| wanted(metric))
}

/// Checks that the metric by which the recipe decides is one of `metrics`, and that the data has samples to
/// measure it on.
///
/// # Errors
///
/// Names the option, its value, and the metrics that there are.
pub fn check_metric<D: DataSet + ?Sized>(config: &Recipe, metrics: &[Metric], data: &D) -> Result<(), Error> {
    let is_judged = [Part::Validation, Part::Test].into_iter().any(|part| data.samples(part) > 0);
    let measured = if is_judged { metrics } else { &[] };
    let unjudged = match metrics.is_empty() {
        true => "nothing is measured; give the trainer metrics by `evaluate`",
        false => "the data has no samples for validation or tests that could decide; give --val-split",
    };
    match (&config.best_metric, config.patience) {
        _ if deciding(config, measured).is_some() => Ok(()),
        (Some(name), _) if measured.is_empty() => Err(Error::setting("--best-metric", name, unjudged)),
        (Some(name), _) => {
            let known = measured.iter().map(|metric| metric.name);
            Err(kolo_recipe::Error::unknown("--best-metric", name, known).into())
        }
        (None, Some(epochs)) => Err(Error::setting("--patience", epochs, unjudged)),
        (None, None) => Ok(()),
    }
}

type Callback<M> = dyn FnMut(&Record<'_>, &M) -> Flow;

/// A callback for records.
pub(crate) struct Listener<M> {
    pub(crate) call: Box<Callback<M>>,
    /// Moment at which its answer decides on the run.
    pub(crate) decides: Option<Moment>,
}
