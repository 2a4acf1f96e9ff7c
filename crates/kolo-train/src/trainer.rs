//! The trainer of one's own model: what is set before the run begins.

use std::path::{PathBuf, absolute};
use std::sync::Arc;

use burn::module::Module;
use burn::tensor::Device;
use kolo_burn::Loss;
use kolo_comm::Rank;
use kolo_data::DataSet;

use crate::config::Recipe;
use crate::error::Error;
use crate::job::{Job, Membership, replaces_another};
use crate::meter::{EpochRow, StepRow};
use crate::metric::{Mean, Metric};
use crate::model::TrainingContext;
use crate::names;
use crate::run_folder::RunFolder;
use crate::signals;
use crate::sinks::{LiveMetrics, Record, SinkEntry};
use crate::task::Task;
use crate::trained::Trained;
use crate::worker::run;

/// In place of what the program says, the run folder: for those who run a program several times, as `kolo
/// verify` does.
pub const RUN_FOLDER: &str = "KOLO_RUN_FOLDER";

/// Trains a model of the user's own on all workers of a job: with everything that `kolo train` has.
///
/// The steps, what follows an epoch, recovery after a death, checkpoints and resuming are the trainer's; the
/// model, its loss, the data and the recipe are the user's. The weights are the same bits for any number of
/// workers, and whoever died on the way.
pub struct Trainer<M, D: DataSet + ?Sized> {
    job: Job,
    task: Task<M, D>,
    /// Where the run folder is to be, unless the job has one.
    place: Option<PathBuf>,
}

impl<M: Module, D: DataSet + ?Sized + 'static> Trainer<M, D> {
    /// A run of `recipe` over the training samples of `data`.
    ///
    /// `loss` gives the loss of one shard's samples. It may depend on nothing but the parameters and its
    /// arguments: then the result is the same for any number of workers. `recipe.model` and `recipe.data` are
    /// names for people here, which the run folder, the summary and messages show.
    pub fn new(
        recipe: Recipe,
        data: Arc<D>,
        loss: impl Fn(&M, D::Batch, &TrainingContext<'_>) -> Loss + Send + Sync + 'static,
    ) -> Self {
        Self::of(Job::new(recipe), data, loss)
    }

    /// The same for a job with a folder, sinks and a device of its own.
    pub fn of(
        job: Job,
        data: Arc<D>,
        loss: impl Fn(&M, D::Batch, &TrainingContext<'_>) -> Loss + Send + Sync + 'static,
    ) -> Self {
        let task = Task {
            data,
            loss: Box::new(loss),
            metrics: Vec::new(),
            evaluate: None,
            unit: "samples".into(),
            listeners: Vec::new(),
        };
        Trainer { job, task, place: None }
    }

    /// Judges the model after each epoch by these metrics of the test samples. `evaluate` gives each metric's
    /// part in a batch of them; the batches are divided among the workers, and every sample counts once.
    pub fn evaluate<const N: usize>(
        mut self,
        metrics: [Metric; N],
        evaluate: impl Fn(&M, D::Batch, &Device) -> [Mean; N] + 'static,
    ) -> Self {
        self.task.metrics = metrics.into();
        self.task.evaluate =
            Some(Box::new(move |model, batch, device| evaluate(model, batch, device).into()));
        self
    }

    /// What the loss counts, for people: `images`, `tokens`.
    pub fn counting(mut self, unit: impl Into<String>) -> Self {
        self.task.unit = unit.into();
        self
    }

    /// Writes the run to this folder: metrics, checkpoints, the summary. A folder that holds an earlier part
    /// of the run is gone on with.
    pub fn run_folder(mut self, path: impl Into<PathBuf>) -> Self {
        self.place = Some(path.into());
        self
    }

    /// Writes the run down in another way as well, on rank 0.
    pub fn sink(mut self, entry: SinkEntry) -> Self {
        self.job.sinks.push(entry);
        self
    }

    /// Lets the run be watched while it goes on.
    pub fn live(mut self, live: LiveMetrics) -> Self {
        self.job.live = live;
        self
    }

    /// Goes on with a run although its data, or what decides the order of its samples (batch size, shards,
    /// seed, growth), is not what its checkpoint was written with; without this the run is refused. It goes
    /// on after as many steps, and epochs are counted as if all of them had been over the new data.
    pub fn accept_changed_data(mut self) -> Self {
        self.job.accept_changed_data = true;
        self
    }

    /// Computes on this device instead of the CPU.
    pub fn on(mut self, device: Device) -> Self {
        self.job.device = device;
        self
    }

    /// Is called after each step, on rank 0; again if that dies before the next one is complete.
    pub fn on_step(self, mut listener: impl FnMut(&StepRow) + 'static) -> Self {
        self.on_record(move |record| {
            if let Record::Step { row, .. } = record {
                listener(row);
            }
        })
    }

    /// Is called after each epoch, when the model has been evaluated, on rank 0. At least once: where rank 0
    /// dies before the step that follows is complete, the next rank 0 cannot know that it was called. The others
    /// wait for it, and do not take a worker for hung that is in it.
    pub fn on_epoch(self, mut listener: impl FnMut(&EpochRow) + 'static) -> Self {
        self.on_record(move |record| {
            if let Record::Epoch(row) = record {
                listener(row);
            }
        })
    }

    /// Is called with all that happens, on rank 0.
    pub fn on_record(mut self, listener: impl FnMut(&Record<'_>) + 'static) -> Self {
        self.task.listeners.push(Box::new(listener));
        self
    }

    /// Trains the model as one of the workers that a launcher has started, or alone. Rank 0's initial values
    /// count. The model's device is the trainer's, with autodiff.
    ///
    /// # Errors
    ///
    /// The run cannot be made as it is configured, a step failed, or it has ended before its last step.
    pub fn train(self, model: M) -> Result<Trained<M>, Error> {
        // The group shares memory by files.
        signals::survive_large_files()?;
        let membership = Membership::for_run(&self.job.config)?;
        self.train_as(membership, model)
    }

    /// The same, as a member of a group that the program has formed.
    ///
    /// # Errors
    ///
    /// As [`Trainer::train`].
    pub fn train_as(mut self, mut membership: Membership, model: M) -> Result<Trained<M>, Error> {
        self.job.config.check()?;
        // Before there is a folder.
        names::check(&self.task.unit, &self.task.metrics)?;
        self.task.find_metric(&self.job.config)?;
        self.find_folder(&mut membership)?;
        run(&self.job, &mut self.task, membership, model)
    }

    /// Makes the run folder, or finds the one that is to be gone on with.
    fn find_folder(&mut self, membership: &mut Membership) -> Result<(), Error> {
        let place = std::env::var_os(RUN_FOLDER).map(PathBuf::from).or(self.place.take());
        let Some(path) = place.filter(|_| self.job.folder.is_none()) else { return Ok(()) };
        // Whoever goes on with the run may do so from another folder.
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
            // Rank 0 makes it.
            Membership::Fixed(_) => RunFolder::at(path),
        };
        self.job.resume = folder.has_checkpoints();
        if let Membership::Fixed(group) = membership {
            // The others may not see it yet.
            self.job.resume = group.broadcast_value(self.job.resume, Rank(0))?;
        }
        self.job.folder = Some(folder);
        Ok(())
    }
}
