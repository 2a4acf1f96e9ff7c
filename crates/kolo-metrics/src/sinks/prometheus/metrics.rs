//! The metrics of a run for Prometheus: names, descriptions, and their newest values.

use std::collections::HashMap;

use kolo_data::Part;
use prometheus::core::Collector;
use prometheus::{Counter, Gauge, Histogram, HistogramOpts, Opts, Registry};

use crate::meter::{EpochRow, StepRow};
use crate::metric::{Metric, Scores};
use crate::names::plain;
use crate::progress::Progress;
use crate::sinks::sink::{Record, SinkContext};

const PREFIX: &str = "kolo_train";
/// Smallest bound of the histogram of steps, in seconds; each further bound is twice as long.
const SHORTEST_STEP: f64 = 0.001;
const STEP_BUCKETS: usize = 17;

struct Registrar {
    registry: Registry,
    labels: HashMap<String, String>,
}

pub(super) struct Metrics {
    registrar: Registrar,
    steps: Counter,
    epoch: Gauge,
    loss: Gauge,
    learning_rate: Gauge,
    speed: Gauge,
    exposed: Gauge,
    step_seconds: Histogram,
    epoch_loss: Gauge,
    generation: Gauge,
    world_size: Gauge,
    planned_steps: Gauge,
    /// Metrics that only some runs have, once they have a value.
    others: HashMap<String, Gauge>,
}

impl Metrics {
    pub(super) fn new(run: &SinkContext<'_>) -> Self {
        let label = |name: &str, value: &String| (name.to_string(), value.clone());
        let labels = [label("model", &run.config.model), label("data", &run.config.data)].into();
        let registrar = Registrar { registry: Registry::new(), labels };
        let (gauge, unit) = (|name: &str, help: &str| registrar.gauge(name, help), run.unit);
        let world_size = gauge("world_size", "Workers of the job.");
        world_size.set(run.config.nproc as f64);
        let exposed = "Share of the epoch's time in which the training thread of rank 0 waited for messages.";
        let speed = format!("Of all workers, the {unit} of the epoch by the time of its steps.");
        Metrics {
            steps: registrar.register(Counter::with_opts(registrar.opts("step_total", "Steps done."))),
            planned_steps: gauge("planned_steps", "Steps of the whole run, if it does not end early."),
            epoch: gauge("epoch", "Epochs begun."),
            loss: gauge("loss", "Mean loss over the global batch of the last step."),
            learning_rate: gauge("learning_rate", "Learning rate of the last step."),
            speed: gauge(&format!("{unit}_per_second"), &speed),
            exposed: gauge("exposed_comm_fraction", exposed),
            step_seconds: registrar.step_seconds(),
            epoch_loss: gauge("epoch_loss", "Mean loss over the samples of the last whole epoch."),
            generation: gauge("generation", "Generation of the elastic job; 0 where the job is none."),
            world_size,
            others: HashMap::new(),
            registrar,
        }
    }

    pub(super) fn registry(&self) -> Registry {
        self.registrar.registry.clone()
    }

    /// Takes over the progress of the run, which may be before the served one.
    pub(super) fn align(&mut self, progress: &Progress) {
        self.planned_steps.set(progress.total() as f64);
        self.set_steps(progress.step());
        if let Some(row) = progress.steps().last() {
            self.step(row);
        }
        if let Some(row) = progress.epochs().last() {
            self.epoch(row);
        }
    }

    pub(super) fn record(&mut self, record: &Record<'_>) {
        match record {
            Record::Step { row, epoch, .. } => {
                self.step(row);
                self.set_steps(row.step + 1);
                self.step_seconds.observe(row.seconds);
                self.speed.set(epoch.samples_per_second());
                self.exposed.set(epoch.exposed_comm_fraction());
            }
            Record::Epoch(row) => self.epoch(row),
            Record::Generation { generation, world_size } => {
                self.generation.set(generation.number as f64);
                self.world_size.set(*world_size as f64);
            }
            Record::Summary(_) | Record::Note(_) | Record::Continued { .. } => {}
        }
    }

    fn set_steps(&self, steps: u64) {
        // A counter can only go back to 0, which Prometheus takes for a restart.
        if (steps as f64) < self.steps.get() {
            self.steps.reset();
        }
        self.steps.inc_by(steps as f64 - self.steps.get());
    }

    fn step(&mut self, row: &StepRow) {
        self.epoch.set(row.epoch as f64 + 1.0);
        self.loss.set(row.loss);
        self.learning_rate.set(row.learning_rate);
        let norm = "Norm of the last step's gradient before clipping.";
        self.set("gradient_norm", norm, row.gradient_norm);
        let noise = row.noise_scale.and_then(|noise| noise.samples());
        self.set("noise_scale", "Noise scale of the gradient, in samples.", noise);
        let scale = row.loss_scale.map(f64::from);
        self.set("loss_scale", "What the losses of the last step were multiplied by.", scale);
    }

    fn epoch(&mut self, row: &EpochRow) {
        self.epoch_loss.set(row.train_loss);
        let Scores(scores) = &row.scores;
        for score in scores {
            let Metric { name, part, .. } = score.metric;
            let part = if part == Part::Validation { "validation" } else { "test" };
            let help = format!("The {name} over the {part} samples after the last whole epoch.");
            self.set(&score.metric.column(), &help, Some(score.value));
        }
    }

    /// Sets a metric that only some runs have.
    fn set(&mut self, name: &str, help: &str, value: Option<f64>) {
        let Some(value) = value else { return };
        let gauge = self.others.entry(plain(name)).or_insert_with(|| self.registrar.gauge(name, help));
        gauge.set(value);
    }
}

impl Registrar {
    fn gauge(&self, name: &str, help: &str) -> Gauge {
        self.register(Gauge::with_opts(self.opts(&plain(name), help)))
    }

    fn step_seconds(&self) -> Histogram {
        let buckets = prometheus::exponential_buckets(SHORTEST_STEP, 2.0, STEP_BUCKETS);
        let help = "Time of a step on rank 0, as far as this process has seen the steps.";
        let opts = HistogramOpts::from(self.opts("step_seconds", help)).buckets(valid(buckets));
        self.register(Histogram::with_opts(opts))
    }

    fn opts(&self, name: &str, help: &str) -> Opts {
        Opts::new(format!("{PREFIX}_{name}"), help).const_labels(self.labels.clone())
    }

    fn register<C: Collector + Clone + 'static>(&self, metric: prometheus::Result<C>) -> C {
        let metric = valid(metric);
        valid(self.registry.register(Box::new(metric.clone())));
        metric
    }
}

/// Unwraps a result: names are valid and unique, both those above and the run's own.
fn valid<T>(result: prometheus::Result<T>) -> T {
    result.unwrap_or_else(|error| unreachable!("every metric has a valid name of its own: {error}"))
}
