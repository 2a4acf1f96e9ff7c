//! The trainer of your own model: its settings before the run begins.

use std::fmt;
use std::path::{PathBuf, absolute};
use std::sync::Arc;

use kolo_comm::Rank;
use kolo_data::{DataSet, Part};
use kolo_ddp::Replica;
use kolo_ddp::optimizer::Optimizer;
use kolo_ddp::reduction::Reducer;
use kolo_ddp::transform::GradientTransform;
use kolo_metrics::{EpochRow, LiveMetrics, Mean, Metric, Record, SinkEntry, StepRow, Tally, check_names};
use kolo_recipe::Recipe;
use kolo_recipe::RunFolder;

use crate::error::Error;
use crate::flow::{self, Answer, Flow, Moment};
use crate::framework::Framework;
use crate::job::{Job, Membership, replaces_another};
use crate::mixing;
use crate::own_parts::{Own, SchedulePoint, described};
use crate::range_test::RangeTest;
use crate::signals;
use crate::start::run;
use crate::task::{Evaluate, Listener, Task, check_metric};
use crate::trained::Trained;

/// Environment variable that overrides the program's run folder, for repeated runs of a program, as
/// `kolo verify` makes them.
pub const RUN_FOLDER: &str = "KOLO_RUN_FOLDER";

/// Trains your own model on all workers of a job, with all features of `kolo train`.
///
/// The trainer takes the steps, evaluates after each epoch, recovers after a death, writes checkpoints and
/// resumes; you provide the model, its loss, the data and the recipe. `F` is the model's tensor library. The
/// weights are the same bits for any number of workers, and after any death.
pub struct Trainer<F: Framework<M>, M, D: DataSet + ?Sized> {
    framework: F,
    job: Job,
    task: Task<F, M, D>,
    /// Path of the run folder, unless the job has one.
    place: Option<PathBuf>,
}

impl<F: Framework<M>, M, D: DataSet + ?Sized> fmt::Debug for Trainer<F, M, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trainer")
            .field("recipe", &self.job.config)
            .field("run_folder", &self.place)
            .finish_non_exhaustive()
    }
}

impl<F: Framework<M>, M, D: DataSet + ?Sized + 'static> Trainer<F, M, D> {
    /// Makes a run of `recipe` over the training samples of `data`.
    ///
    /// `loss` returns the loss of one shard's samples. It must depend on nothing but the parameters and its
    /// arguments: then the result is the same for any number of workers. `recipe.model` and `recipe.data` are
    /// names for people here, which the run folder, the summary and messages show.
    pub fn new(
        recipe: Recipe,
        data: Arc<D>,
        loss: impl Fn(&M, D::Batch, &F::Context<'_>) -> F::Loss + Send + Sync + 'static,
    ) -> Self {
        Self::of(Job::new(recipe), data, loss)
    }

    /// Like [`Trainer::new`], for a job with a folder and sinks of its own.
    pub fn of(
        job: Job,
        data: Arc<D>,
        loss: impl Fn(&M, D::Batch, &F::Context<'_>) -> F::Loss + Send + Sync + 'static,
    ) -> Self {
        let task = Task {
            data,
            loss: Box::new(loss),
            metrics: Vec::new(),
            evaluate: None,
            unit: "samples".into(),
            own: Own::default(),
            listeners: Vec::new(),
        };
        Trainer { framework: F::default(), job, task, place: None }
    }

    /// Judges the model after each epoch by these metrics of the validation samples, and by those of the test
    /// samples once at the end; without validation samples, by the test samples after each epoch. `evaluate`
    /// returns each metric's part in a batch; the batches are divided among the workers, and every sample
    /// counts once.
    pub fn evaluate<const N: usize>(
        self,
        metrics: [Metric; N],
        evaluate: impl Fn(&M, D::Batch, &F::Device) -> [Mean; N] + 'static,
    ) -> Self {
        self.tally(metrics, move |model, batch, device| Vec::from(evaluate(model, batch, device)))
    }

    /// Judges the model as [`Trainer::evaluate`] does, by metrics that are no means: `evaluate` returns the
    /// [`Tally`] of a batch, whose values are those of `metrics`, in their order.
    pub fn tally<T: Tally>(
        mut self,
        metrics: impl Into<Vec<Metric>>,
        evaluate: impl Fn(&M, D::Batch, &F::Device) -> T + 'static,
    ) -> Self {
        self.task.metrics = metrics.into();
        self.task.evaluate = Some(Evaluate::of(evaluate));
        self
    }

    /// Sets the name of the unit that the loss counts: `images`, `tokens`.
    pub fn counting(mut self, unit: impl Into<String>) -> Self {
        self.task.unit = unit.into();
        self
    }

    /// Steps by this optimizer in place of the recipe's, which must be left at its default.
    pub fn optimizer(mut self, optimizer: impl Optimizer) -> Self {
        self.task.own.optimizer = Some(Box::new(optimizer));
        self
    }

    /// Reduces the shards' gradients by this reduction in place of the recipe's, which must be left at its
    /// default.
    pub fn reduction(mut self, reduction: impl Reducer) -> Self {
        self.task.own.reduction = Some(Arc::new(reduction));
        self
    }

    /// Adds a gradient transform behind those of the recipe, and those added before.
    pub fn transform(mut self, transform: impl GradientTransform) -> Self {
        let name = described(transform.name(), &transform.settings());
        let add = Box::new(move |replica: &mut Replica| replica.add_transform(transform));
        self.task.own.transforms.push((name, add));
        self
    }

    /// Takes each step's learning rate from this function in place of [`Recipe::rate`], which must be left at
    /// its default. The rate must depend on nothing but the argument; workers compare it in each step.
    pub fn schedule(mut self, rate: impl Fn(SchedulePoint) -> f64 + 'static) -> Self {
        self.task.own.schedule = Some(Box::new(rate));
        self
    }

    /// Writes the run to this folder: metrics, checkpoints, the summary. If the folder holds an earlier part
    /// of the run, the run continues.
    pub fn run_folder(mut self, path: impl Into<PathBuf>) -> Self {
        self.place = Some(path.into());
        self
    }

    /// Adds a sink that records the run on rank 0.
    pub fn sink(mut self, entry: SinkEntry) -> Self {
        self.job.sinks.push(entry);
        self
    }

    /// Enables live views of the run.
    pub fn live(mut self, live: LiveMetrics) -> Self {
        self.job.live = live;
        self
    }

    /// Continues a run although its data, or the order of its samples (batch size, shards, seed, growth),
    /// differs from its checkpoint; without this the run is refused. The run continues after the same number
    /// of steps, and epochs are counted as if all of them had been over the new data.
    pub fn accept_changed_data(mut self) -> Self {
        self.job.accept_changed_data = true;
        self
    }

    /// Computes on this device in place of the recipe's, which must be left at its default.
    pub fn device(mut self, device: F::Device) -> Self {
        self.framework = F::on(device);
        self
    }

    /// Calls `listener` after each step, on rank 0; again if rank 0 dies before the next step is complete.
    ///
    /// It gets the model as it is now, and returns nothing or a [`Flow`], which all workers
    /// follow after the same step. Its answer may depend on nothing but its arguments: then the result is the
    /// same for any number of workers, and after any death. Where workers have different models meanwhile
    /// (`--sync`), a `Flow` is refused.
    pub fn on_step<A: Answer>(self, mut listener: impl FnMut(&StepRow, &M) -> A + 'static) -> Self {
        let call = move |record: &Record<'_>, model: &M| match record {
            Record::Step { row, .. } => listener(row, model).flow(),
            _ => Default::default(),
        };
        self.with_listener(call, A::DECIDES.then_some(Moment::Step))
    }

    /// Calls `listener` after each epoch's evaluation, on rank 0, at least once: if rank 0 dies before the
    /// next step is complete, the next rank 0 cannot know of the call. The other workers wait for a worker in
    /// a listener, and do not take it for hung. It gets the model, and may answer: see [`Trainer::on_step`].
    pub fn on_epoch<A: Answer>(self, mut listener: impl FnMut(&EpochRow, &M) -> A + 'static) -> Self {
        let call = move |record: &Record<'_>, model: &M| match record {
            Record::Epoch(row) => listener(row, model).flow(),
            _ => Default::default(),
        };
        self.with_listener(call, A::DECIDES.then_some(Moment::Epoch))
    }

    /// Calls `listener` with every record, on rank 0.
    pub fn on_record(self, mut listener: impl FnMut(&Record<'_>) + 'static) -> Self {
        let call = move |record: &Record<'_>, _: &M| {
            listener(record);
            Default::default()
        };
        self.with_listener(call, None)
    }

    fn with_listener(
        mut self,
        call: impl FnMut(&Record<'_>, &M) -> Flow + 'static,
        decides: Option<Moment>,
    ) -> Self {
        self.task.listeners.push(Listener { call: Box::new(call), decides });
        self
    }

    /// Trains the model as one of a launcher's workers, or alone. The initial values of rank 0 count. The
    /// model must be on the trainer's device, where gradients are recorded.
    ///
    /// # Errors
    ///
    /// The run cannot be made as configured, a step failed, or the run ended before its last step.
    pub fn train(self, model: M) -> Result<Trained<M>, Error> {
        // The group shares memory by files.
        signals::survive_large_files()?;
        let membership = Membership::for_run(&self.job.config)?;
        self.train_as(membership, model)
    }

    /// Like [`Trainer::train`], as a member of a group that the program has formed. Fails as
    /// [`Trainer::train`] does.
    pub fn train_as(mut self, mut membership: Membership, model: M) -> Result<Trained<M>, Error> {
        let samples = self.task.data.samples(Part::Train);
        let test = self.job.range_test.clone();
        if let Some(test) = &test {
            self = self.find_rate(test, samples)?;
        }
        self.task.own.name_in(&mut self.job.config, samples)?;
        self.job.config.check()?;
        mixing::check::<D::Batch>(&self.job.config)?;
        flow::check(self.task.decides(Moment::Step), &self.job.config)?;
        // Before the run folder exists.
        check_names(&self.task.unit, &self.task.metrics)?;
        let part = self.task.judging_part();
        self.task.metrics.iter_mut().for_each(|metric| metric.part = part);
        check_metric(&self.job.config, &self.task.metrics, &*self.task.data)?;
        if test.is_none() {
            self.find_folder(&mut membership)?;
        }
        match run(self.framework, &self.job, &mut self.task, membership, model) {
            // The end of a range test, unless it has seen no loss.
            Err(Error::Diverged(failure)) if test.is_some() && !is_of_first_step(&failure) => {
                Ok(Trained { model: None, averaged: None, summary: None })
            }
            ended => ended,
        }
    }

    /// Prepares a range test. Rank 0 ends it when the loss has diverged.
    fn find_rate(mut self, test: &RangeTest, samples: usize) -> Result<Self, Error> {
        self.job.folder = None;
        test.fit(&mut self.job.config, samples)?;
        (self.task.evaluate, self.task.metrics) = (None, Vec::new());
        let (rates, losses) = (test.clone(), test.clone());
        let flow = move |row: &StepRow, _: &M| if losses.note(row) { Flow::Stop } else { Flow::Continue };
        Ok(self.schedule(move |point| rates.rate(point.step)).on_step(flow))
    }

    fn find_folder(&mut self, membership: &mut Membership) -> Result<(), Error> {
        let place = std::env::var_os(RUN_FOLDER).map(PathBuf::from).or(self.place.take());
        let Some(path) = place.filter(|_| self.job.folder.is_none()) else { return Ok(()) };
        // A later part of the run may start in another working directory.
        self.job.config.init = self.job.config.init.take().map(|file| absolute(&file).unwrap_or(file));
        let config = &self.job.config;
        let folder = match membership {
            Membership::Elastic(member) if replaces_another() => {
                RunFolder::of_running_job(Some(path), &member.job_id()?)?
            }
            Membership::Elastic(member) => {
                RunFolder::create_or_continue(path, config, Some(&member.job_id()?))?
            }
            Membership::Fixed(group) if group.rank().0 == 0 => {
                RunFolder::create_or_continue(path, config, None)?
            }
            // Rank 0 makes the folder.
            Membership::Fixed(_) => RunFolder::at(path),
        };
        self.job.resume = folder.has_checkpoints();
        if let Membership::Fixed(group) = membership {
            // Other ranks may not see the checkpoints yet.
            self.job.resume = group.broadcast_value(self.job.resume, Rank(0))?;
        }
        self.job.folder = Some(folder);
        Ok(())
    }
}

/// True if the first step has changed nothing.
fn is_of_first_step(failure: &kolo_ddp::Error) -> bool {
    use kolo_ddp::Error::{GradientNotFinite, LossNotFinite, StatisticNotFinite};
    matches!(
        failure,
        LossNotFinite { step: 0, .. }
            | GradientNotFinite { step: 0, .. }
            | StatisticNotFinite { step: 0, .. }
    )
}
