//! The start of one worker's run: the replica, the data, and all that every worker must have the same.

use std::sync::Arc;
use std::time::Instant;

use kolo_claim::Candidate;
use kolo_comm::Rank;
use kolo_data::{DataSet, Loader, Part};
use kolo_ddp::Ddp;
use kolo_ddp::checkpoint::tell;
use kolo_ddp::optimizer::{Averaged, Optimizer, StoreFault};
use kolo_metrics::Calendar;
use kolo_recipe::{RateConfig, Recipe};

use crate::error::Error;
use crate::flow::{Answers, Moment};
use crate::framework::Framework;
use crate::job::{Job, Membership};
use crate::lineage::Lineage;
use crate::own_parts::SchedulePoint;
use crate::sampling::Sampling;
use crate::signals::{self, StopRequested};
use crate::slowdown::SlowData;
use crate::suspects::Suspects;
use crate::task::Task;
use crate::timeline::Timeline;
use crate::trained::Trained;
use crate::warn::Warnings;
use crate::worker::{Ended, Worker};

/// Runs this worker's part of a training. Rank 0 writes to the folder; if the run is resumed, all ranks read
/// from it.
/// Fails if the run cannot be made as configured, if a step failed, or if the run ended before its last
/// step.
pub(crate) fn run<F: Framework<M>, M, D: DataSet + ?Sized + 'static>(
    framework: F,
    job: &Job,
    task: &mut Task<F, M, D>,
    membership: Membership,
    model: M,
) -> Result<Trained<M>, Error> {
    // A fixed group fails as a whole, and its rank 0 has made the folder.
    let is_first = matches!(&membership, Membership::Fixed(group) if group.rank() == Rank(0));
    let is_elastic = matches!(&membership, Membership::Elastic(_));
    let ended = work(framework, job, task, membership, model);
    if let (Err(error), Some(folder), false) = (&ended, &job.folder, job.resume)
        // Other workers of an elastic job may continue, unless this error prevents all of them from starting.
        && (is_first || is_elastic && (error.is_input() || lacks_room(error)) && !folder.is_claimed())
        // Its configuration shows why.
        && !matches!(error, Error::Diverged(_))
    {
        match error.is_input() {
            true => folder.discard_without_checkpoint(),
            false => folder.discard_unused(),
        }
    }
    ended
}

fn work<F: Framework<M>, M, D: DataSet + ?Sized + 'static>(
    framework: F,
    job: &Job,
    task: &mut Task<F, M, D>,
    membership: Membership,
    model: M,
) -> Result<Trained<M>, Error> {
    signals::survive_large_files()?;
    let timeline = Timeline::begin(&job.live)?;
    match Worker::new(framework, job, task, membership, model) {
        Ok(mut worker) => {
            let ended = worker.run();
            timeline.end(matches!(ended, Ok(Ended::Over(Some(_)))));
            let ended = ended?;
            let summary = match ended {
                Ended::Over(summary) if !worker.ddp.is_server() => summary.map(|summary| *summary),
                _ => return Ok(Trained { model: None, averaged: None, summary: None }),
            };
            if !job.keeps_model {
                worker.ddp.end()?;
                return Ok(Trained { model: None, averaged: None, summary });
            }
            let averaged = worker.ddp.averaged_model()?.map(F::into_module);
            Ok(Trained { model: Some(F::into_module(worker.ddp.into_model()?)), averaged, summary })
        }
        // The worker replaced one that died at the very end, and the others have completed the run.
        Err(Error::Training(kolo_ddp::Error::Comm(kolo_comm::Error::Orphaned)))
            if job.folder.as_ref().is_some_and(|folder| folder.is_complete()) =>
        {
            Ok(Trained { model: None, averaged: None, summary: None })
        }
        Err(error) => Err(error),
    }
}

fn lacks_room(error: &Error) -> bool {
    let Error::Training(kolo_ddp::Error::Offload { failure, .. }) = error else { return false };
    failure.fault == StoreFault::NoRoom
}

/// Describes settings of the job that have no effect, or do less than they seem to.
fn surprises(job: &Job, workers: usize, samples: usize) -> Vec<String> {
    let mut config = Recipe { nproc: workers, ..job.config.clone() };
    if job.range_test.is_some() {
        // The test has rates of its own, and no warm-up.
        config.rate = RateConfig { warmup_steps: 0, ..RateConfig::default() };
    }
    config.surprises(samples, !job.resume)
}

/// Converts the replica's error, which depends on the model, into the words of the command line.
fn refused_by_replica(job: &Job, error: kolo_ddp::Error) -> Error {
    use kolo_ddp::Error::{FirstNotFinite, Groups, ModelsDiffer, Setting, SettingsDiffer};
    let config = &job.config;
    match (error, &config.init) {
        (FirstNotFinite { parameter }, Some(file)) if !job.resume => {
            Error::InitNotFinite { file: file.clone(), parameter }
        }
        (error, _) => match error {
            Groups(error) => config.refused_group(error).into(),
            // The user started the workers with these differences, or this setting.
            ModelsDiffer(_) | SettingsDiffer { .. } | Setting(_) => Error::Refused(error),
            error => error.into(),
        },
    }
}

impl<'a, F: Framework<M>, M, D: DataSet + ?Sized + 'static> Worker<'a, F, M, D> {
    fn new(
        mut framework: F,
        job: &'a Job,
        task: &'a mut Task<F, M, D>,
        membership: Membership,
        model: M,
    ) -> Result<Self, Error> {
        let config = &job.config;
        config.check()?;
        config.check_samples(task.data.samples(Part::Train))?;
        // A resumed run gets its weights from a checkpoint.
        let model = framework.prepare(model, config, job.resume)?;
        let optimizer = match task.own.optimizer.take() {
            Some(own) => own,
            None => config.optimizer.build()?,
        };
        let optimizer: Box<dyn Optimizer> = match config.ema {
            Some(decay) => Box::new(Averaged::new(optimizer, decay, config.ema_warmup)),
            None => optimizer,
        };
        let mut membership = membership;
        let lineage = Lineage::new(match &mut membership {
            Membership::Elastic(member) => member.job_id()?,
            Membership::Fixed(_) => Candidate::new_id(),
        });
        let sampling = Sampling::of(config, &*task.data);
        let mut stated = Self::stated(job, task, &sampling)?;
        if let Membership::Fixed(_) = membership {
            // Later workers of an elastic job find checkpoints that the first ones did not.
            stated.push(("resume".into(), job.resume.to_string()));
        }
        let mut settings = kolo_ddp::Config { stated, ..config.ddp()? };
        if let Some(own) = task.own.reduction.take() {
            settings.reduction = own;
        }
        let ddp = match membership {
            Membership::Fixed(group) => Ddp::new(group, model, &settings, optimizer),
            Membership::Elastic(member) => Ddp::elastic(member, model, &settings, optimizer),
        };
        let ddp = ddp.map_err(|error| refused_by_replica(job, error))?;
        for (_, add) in task.own.transforms.drain(..) {
            ddp.with_replica(add);
        }
        // While workers wait for each other there is nothing to save yet: a signal ends them.
        let stop = StopRequested::begin(&job.stop_on)?;
        let samples = task.data.samples(Part::Train);
        let growth = &config.large_batch.grow_batch;
        let sampler = ddp.growing_sampler(samples, config.batch_size, growth, config.seed);
        let sampler = sampler.map_err(Error::Refused)?;
        let calendar = Calendar::new(config, &sampler);
        let rates = config.rate(&sampler)?;
        let rate: Box<dyn Fn(u64) -> f64> = match task.own.schedule.take() {
            Some(own) => {
                let (epochs, sampler) = (config.epochs, sampler.clone());
                Box::new(move |step| own(SchedulePoint::of(step, epochs, &sampler)))
            }
            None => Box::new(move |step| rates.at(step)),
        };
        let pause = Arc::default();
        let data = SlowData::new(task.data.clone(), Arc::clone(&pause));
        let mut loader = Loader::new(Arc::new(data), sampler.clone()).on_threads(config.input.data_threads);
        if config.augment {
            loader = loader.augmented(config.seed);
        }
        let mut warnings = Warnings::default();
        if ddp.rank().0 == 0 {
            let blind_spot = sampling.blind_spot().map(String::from);
            task.data.warnings().into_iter().chain(blind_spot).for_each(|words| warnings.tell(words));
            surprises(job, ddp.workers().len(), samples).iter().for_each(|words| tell(words));
        }
        Ok(Worker {
            framework,
            job,
            task,
            loader,
            pause,
            calendar,
            rate,
            ddp,
            sampling,
            changes: Vec::new(),
            stop,
            began: Instant::now(),
            step_began: Instant::now(),
            too_few: None,
            time_is_over: None,
            warnings,
            lineage,
            sampler,
            evaluated: None,
            suspects: Suspects::default(),
            division: Vec::new(),
            answers: Answers::default(),
            unsaved: None,
        })
    }

    /// Returns what must be the same on all workers, with names: the recipe, the data, and their results.
    fn stated(job: &Job, task: &Task<F, M, D>, sampling: &Sampling) -> Result<Vec<(String, String)>, Error> {
        let metrics: Vec<&str> = task.measured().iter().map(|metric| metric.name).collect();
        let mut stated = job.config.stated()?;
        stated.extend(sampling.stated_data());
        stated.push(("what the model is judged by".into(), metrics.join(", ")));
        stated.push(("what the loss counts".into(), task.unit.clone()));
        let decides = [Moment::Step, Moment::Epoch].map(|moment| task.decides(moment).to_string());
        stated.push(("callbacks that decide after steps, epochs".into(), decides.join(", ")));
        // Each worker decides by this number whether a slow one is dropped.
        stated.push(("min_workers".into(), job.min_workers.to_string()));
        Ok(stated)
    }
}
