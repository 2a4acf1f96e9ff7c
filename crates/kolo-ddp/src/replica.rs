//! One worker's share of the model: flat parameters, the reducer and the optimizer. What a binding talks to.

use std::sync::Arc;
use std::time::Duration;

use kolo_comm::{Group, Rank};

use crate::agree;
use crate::buckets::{Bucket, BucketCaps};
use crate::clip;
use crate::error::Error;
use crate::layout::{Kind, Layout, ParamSpec, SpanId};
use crate::optimizer::Optimizer;
use crate::reducer::{BucketTiming, Reducer};

/// How a job divides and reduces its steps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Config {
    /// Equal parts of every global batch. Belongs to the job: with the same number, any world size ends in the
    /// same bits. `None`: one for each rank.
    pub shards: Option<usize>,
    /// How large buckets may be.
    pub caps: BucketCaps,
    /// Clips gradients to this global norm.
    pub clip_norm: Option<f64>,
}

/// What a step gave.
#[derive(Clone, Debug)]
pub struct StepReport {
    /// Mean loss over the global batch.
    pub loss: f64,
    /// What the mean is over: samples of the global batch.
    pub count: f64,
    /// Global norm of the gradient before clipping; measured only where it is clipped.
    pub gradient_norm: Option<f64>,
    /// The buckets' reductions, in their order.
    pub buckets: Vec<BucketTiming>,
    /// Time in which this rank's thread waited for communication.
    pub exposed: Duration,
    /// Buckets whose reduction had been started before the last backward pass was over.
    pub started_early: usize,
}

impl StepReport {
    /// Seconds in which at least one bucket was being reduced.
    pub fn comm_seconds(&self) -> f64 {
        self.buckets.iter().map(|bucket| bucket.seconds).sum()
    }
}

/// See the module's text.
pub struct Replica {
    group: Arc<Group>,
    layout: Arc<Layout>,
    values: Vec<f32>,
    reducer: Reducer,
    optimizer: Box<dyn Optimizer>,
    clip_norm: Option<f64>,
    steps: u64,
}

impl Replica {
    /// A replica of the model with these tensors, whose `values` follow one another in the same order. Afterwards all
    /// ranks have rank 0's values.
    ///
    /// # Errors
    ///
    /// The ranks hold different models (naming the parameter), a setting is wrong, or a collective failed.
    pub fn new(
        group: Arc<Group>,
        specs: Vec<ParamSpec>,
        mut values: Vec<f32>,
        config: &Config,
        optimizer: impl FnOnce(usize) -> Box<dyn Optimizer>,
    ) -> Result<Self, Error> {
        let layout = Arc::new(Layout::new(specs));
        assert_eq!(values.len(), layout.len(), "as many values as the tensors have elements");
        agree::check(&group, &layout)?;
        group.broadcast(&mut values, Rank(0))?;
        if config.clip_norm.is_some_and(|norm| norm.is_nan() || norm <= 0.0) {
            return Err(Error::Setting("the norm to clip to must be greater than 0".into()));
        }
        let shards = config.shards.unwrap_or(group.world_size());
        let reducer = Reducer::new(group.clone(), layout.clone(), shards, config.caps)?;
        let optimizer = optimizer(layout.len());
        Ok(Replica { group, layout, values, reducer, optimizer, clip_norm: config.clip_norm, steps: 0 })
    }

    /// The ranks that train together.
    pub fn group(&self) -> &Arc<Group> {
        &self.group
    }

    /// Where each tensor lives.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// All values of the model, in the order of the layout.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Takes gradients during a backward pass.
    pub fn reducer(&mut self) -> &mut Reducer {
        &mut self.reducer
    }

    /// Steps so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Ends a step: waits for the reductions and updates the values, each range as soon as its gradient is there.
    ///
    /// # Errors
    ///
    /// As [`Reducer::finish`].
    pub fn step(&mut self, learning_rate: f64) -> Result<StepReport, Error> {
        self.optimizer.begin(self.steps + 1, learning_rate);
        let at_once = self.clip_norm.is_none();
        let mut update =
            Update { layout: &self.layout, values: &mut self.values, optimizer: &mut *self.optimizer };
        let reduction = self.reducer.finish(self.steps, |bucket, gradient, count| {
            if at_once {
                update.bucket(bucket, gradient, 1.0 / count, 1.0);
            }
        })?;
        let scale = 1.0 / reduction.count;
        let mut gradient_norm = None;
        if let Some(limit) = self.clip_norm {
            let norm = scale * gradient_norm_of(&mut self.reducer, &self.layout);
            for (bucket, gradient) in self.reducer.results() {
                update.bucket(bucket, gradient, scale, clip::factor(norm, limit));
            }
            gradient_norm = Some(norm);
        }
        self.reducer.end_step()?;
        self.steps += 1;
        Ok(StepReport {
            loss: reduction.loss * scale,
            count: reduction.count,
            gradient_norm,
            buckets: reduction.buckets,
            exposed: reduction.exposed,
            started_early: reduction.started_early,
        })
    }

    /// What a checkpoint has to hold: the values and the optimizer's state, by name.
    pub(crate) fn parts(&mut self) -> (&Layout, &mut [f32], &mut dyn Optimizer) {
        (&self.layout, &mut self.values, &mut *self.optimizer)
    }

    pub(crate) fn resume(&mut self, steps: u64) {
        self.steps = steps;
    }
}

/// The norm over all parameters. Spans are added in the model's order, so that buckets do not matter.
fn gradient_norm_of(reducer: &mut Reducer, layout: &Layout) -> f64 {
    let mut squares = vec![0.0; layout.spans().len()];
    for (bucket, gradient) in reducer.results() {
        for &(id, offset) in &bucket.spans {
            let span = layout.span(id);
            if span.spec.kind != Kind::Statistic {
                squares[id.0] = clip::sum_of_squares(&gradient[offset..offset + span.len]);
            }
        }
    }
    squares.iter().sum::<f64>().sqrt()
}

/// What an update touches.
struct Update<'a> {
    layout: &'a Layout,
    values: &'a mut [f32],
    optimizer: &'a mut dyn Optimizer,
}

impl Update<'_> {
    fn bucket(&mut self, bucket: &Bucket, gradient: &[f32], scale: f64, clip: f64) {
        for &(id, offset) in &bucket.spans {
            self.span(id, &gradient[offset..offset + self.layout.span(id).len], scale, clip);
        }
    }

    fn span(&mut self, id: SpanId, gradient: &[f32], scale: f64, clip: f64) {
        let span = self.layout.span(id);
        let values = &mut self.values[span.range()];
        match span.spec.kind {
            Kind::Parameter { decay } => {
                self.optimizer.update(span.range(), values, gradient, (scale * clip) as f32, decay);
            }
            Kind::Statistic => {
                let scale = scale as f32;
                values.iter_mut().zip(gradient).for_each(|(value, change)| *value += change * scale);
            }
        }
    }
}
