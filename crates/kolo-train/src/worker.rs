//! One worker's run: its start, the epochs, the end. Every part with collectives can be repeated after the
//! death of another worker.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use kolo_claim::Candidate;
use kolo_comm::Rank;
use kolo_data::{DataSet, Loader, Part};
use kolo_ddp::optimizer::{Averaged, Optimizer};
use kolo_ddp::{Ddp, Sampler};
use kolo_metrics::{Calendar, Progress, Record, SampleCounts, Scores, Summary};

use crate::error::Error;
use crate::flow::{Answers, Moment};
use crate::framework::Framework;
use crate::job::{Job, Membership};
use crate::lineage::Lineage;
use crate::outcome::Outcome;
use crate::own_parts::SchedulePoint;
use crate::run_writer::RunWriter;
use crate::sampling::Sampling;
use crate::signals::{self, StopRequested};
use crate::slowdown::SlowData;
use crate::summarize::{parameters, peak_rss, skipped_warning, summary_of};
use crate::suspects::Suspects;
use crate::task::Task;
use crate::timeline::{self, Timeline};
use crate::trained::Trained;
use crate::warn::Warnings;

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
        // Other workers of an elastic job may continue, unless the input prevents all of them from starting.
        && (is_first || is_elastic && error.is_input() && !folder.is_claimed())
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

/// Converts the replica's error, which depends on the model, into the words of the command line.
fn refused_by_replica(job: &Job, error: kolo_ddp::Error) -> Error {
    use kolo_ddp::Error::{FirstNotFinite, Groups, ModelsDiffer, SettingsDiffer};
    let config = &job.config;
    match (error, &config.init) {
        (FirstNotFinite { parameter }, Some(file)) if !job.resume => {
            Error::InitNotFinite { file: file.clone(), parameter }
        }
        (error, _) => match error {
            Groups(error) => config.refused_group(error).into(),
            // The user started the workers with these differences.
            ModelsDiffer(_) | SettingsDiffer { .. } => Error::Refused(error),
            error => error.into(),
        },
    }
}

/// The end of a worker's part of the run.
pub(crate) enum Ended {
    /// The worker has left the job, which continues without it.
    Left,
    /// The run is over; rank 0 has the summary.
    Over(Option<Box<Summary>>),
}

/// State of every rank.
pub(crate) struct Worker<'a, F: Framework<M>, M, D: DataSet + ?Sized> {
    pub(crate) framework: F,
    pub(crate) job: &'a Job,
    pub(crate) task: &'a mut Task<F, M, D>,
    pub(crate) loader: Loader<SlowData<D>>,
    /// Sleep of the loader before each batch, in milliseconds.
    pub(crate) pause: Arc<AtomicU64>,
    pub(crate) calendar: Calendar,
    /// Learning rate of each step, from 0.
    pub(crate) rate: Box<dyn Fn(u64) -> f64>,
    pub(crate) ddp: Ddp<F::Model>,
    /// The facts that decide which samples come in which step.
    pub(crate) sampling: Sampling,
    pub(crate) stop: StopRequested,
    /// Start of this worker.
    pub(crate) began: Instant,
    /// Start of the present or last step.
    pub(crate) step_began: Instant,
    /// Reason of an early end, unless a signal caused it.
    pub(crate) too_few: Option<String>,
    /// Warnings that this worker's user has received.
    pub(crate) warnings: Warnings,
    /// Claims to the run folder that this worker knows of.
    pub(crate) lineage: Lineage,
    /// Samples of each shard in each step.
    pub(crate) sampler: Sampler,
    /// Scores on the test samples at the end, if validation samples have judged the model until then.
    pub(crate) test_scores: Scores,
    /// Workers that have failed in the present step.
    pub(crate) suspects: Suspects,
    /// Shards of each rank of the generation.
    pub(crate) division: Vec<Range<usize>>,
    /// Last answers of this worker's callbacks.
    pub(crate) answers: Answers,
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
            stop,
            began: Instant::now(),
            step_began: Instant::now(),
            too_few: None,
            warnings,
            lineage,
            sampler,
            test_scores: Scores::default(),
            suspects: Suspects::default(),
            division: Vec::new(),
            answers: Answers::default(),
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

    pub(crate) fn describe(&self) -> String {
        let (config, workers) = (&self.job.config, self.ddp.workers().len());
        let servers = match self.ddp.group().world_size() - workers {
            0 => String::new(),
            servers => format!(" and {servers} summation servers"),
        };
        format!(
            "{} ({} parameters) on {}: {} workers over {}{servers}, {} shards × {} samples a step{}, {} steps{}",
            config.model,
            parameters(&self.ddp),
            config.data,
            workers,
            self.ddp.group().transport(),
            config.shards,
            config.batch_size,
            config.large_batch.describe_growth(),
            self.calendar.total,
            config.describe_groups(self.ddp.layout()),
        )
    }

    fn run(&mut self) -> Result<Ended, Error> {
        let started = Instant::now();
        // A worker that joins later starts at the others' step.
        let mut progress = Progress::at(self.ddp.steps(), self.calendar.clone());
        let (mut writer, mut begins) = (None, true);
        loop {
            match self.go_on(&mut progress, &mut writer, begins) {
                Ok(Outcome::Over { peak_rss_bytes }) => {
                    let seconds = started.elapsed().as_secs_f64();
                    let ended = self.end(&progress, writer.take(), peak_rss_bytes, seconds);
                    match self.part(ended.as_ref().err()) {
                        Ok(unwritten) => {
                            let summary = ended?.map(Box::new);
                            return unwritten.map_or(Ok(Ended::Over(summary)), Err);
                        }
                        Err(error) => drop(self.carry_on(error, &mut progress, &mut writer)?),
                    }
                }
                Ok(Outcome::Left) => {
                    log::info!("this worker has left the job after step {}", progress.step());
                    return Ok(Ended::Left);
                }
                Ok(Outcome::AllLeft) => {
                    self.end_early(&progress, writer)?;
                    return self.end_with_others(&progress);
                }
                Ok(Outcome::Poisoned(why)) => return self.end_poisoned(why, &progress, writer),
                Ok(Outcome::Regrouped) => {}
                Err(error) => {
                    if self.carry_on(error, &mut progress, &mut writer)? {
                        return self.end_early(&progress, writer).map(|()| Ended::Left);
                    }
                }
            }
            begins = false;
        }
    }

    /// Makes and writes the summary on rank 0.
    fn end(
        &mut self,
        progress: &Progress,
        mut writer: Option<RunWriter>,
        peak_rss_bytes: u64,
        seconds: f64,
    ) -> Result<Option<Summary>, Error> {
        if self.ddp.rank().0 > 0 {
            return Ok(None);
        }
        if let Some(writer) = &mut writer {
            self.warnings.append(writer.take_warnings());
        }
        let (unit, metrics) = (&self.task.unit, self.task.measured());
        let mut summary =
            summary_of(&self.ddp, &self.job.config, unit, metrics, progress, peak_rss_bytes, seconds)?;
        summary.scores.0.append(&mut self.test_scores.0);
        summary.samples = SampleCounts::of(&*self.task.data);
        if let Some(words) = skipped_warning(&summary) {
            self.warnings.tell(words);
        }
        summary.warnings = self.warnings.lines();
        if let Some(writer) = writer {
            writer.end(&summary, progress)?;
            self.call_listeners(&Record::Summary(&summary), progress);
        }
        Ok(Some(summary))
    }

    /// Waits, in an elastic job, until rank 0 has written everything, because another worker may have to
    /// replace it. All workers receive rank 0's failure: the job has failed, whichever of them ends first.
    fn part(&self, unwritten: Option<&Error>) -> Result<Option<Error>, Error> {
        if self.ddp.generation().is_none() {
            return Ok(None);
        }
        let told: Vec<Option<String>> =
            self.ddp.group().all_gather_value(&unwritten.map(ToString::to_string))?;
        Ok(told.into_iter().flatten().next().map(Error::Unwritten))
    }

    /// Finds the remaining workers after a death. True if this one is alone and must save the work.
    fn carry_on(
        &mut self,
        error: Error,
        progress: &mut Progress,
        writer: &mut Option<RunWriter>,
    ) -> Result<bool, Error> {
        if !self.recover(error)? {
            return Ok(false);
        }
        self.catch_up(progress)?;
        self.agree_again(progress)?;
        // A single worker can write a missing summary.
        if progress.is_over() && !progress.is_unrecorded() {
            return Ok(false);
        }
        self.choose_writer(progress, writer, false).map_err(|error| self.nothing_kept(error, progress))?;
        Ok(true)
    }

    /// Continues from the ranks' present step until the run is over or the members change. `begins` is true
    /// for the first time.
    fn go_on(
        &mut self,
        progress: &mut Progress,
        writer: &mut Option<RunWriter>,
        begins: bool,
    ) -> Result<Outcome, Error> {
        let generation = self.ddp.generation().map_or(0, |generation| generation.number);
        kolo_trace::rank(self.ddp.rank().0, self.ddp.group().world_size(), generation);
        self.catch_up(progress)?;
        progress.synchronize(self.ddp.group())?;
        self.heed_patience(progress);
        let poisoned = self.compare_suspects(progress)?;
        self.choose_writer(progress, writer, begins)?;
        self.agree_again(progress)?;
        if let Some(why) = poisoned {
            return Ok(Outcome::Poisoned(why));
        }
        loop {
            if progress.is_unrecorded() {
                if !self.record_epoch(progress, writer)? {
                    return Ok(Outcome::AllLeft);
                }
                writer.as_ref().map_or(Ok(()), RunWriter::check)?;
            }
            if progress.is_over() {
                break;
            }
            if let Some(outcome) = self.epoch(progress, writer)? {
                return Ok(outcome);
            }
        }
        if !self.look_at_test()? {
            return Ok(Outcome::AllLeft);
        }
        timeline::close();
        Ok(Outcome::Over { peak_rss_bytes: peak_rss(self.ddp.group())? })
    }

    /// Passes a record to all sinks and listeners, on rank 0.
    pub(crate) fn tell(&mut self, writer: &mut RunWriter, record: &Record<'_>, progress: &Progress) {
        writer.record(record, progress);
        self.call_listeners(record, progress);
    }
}
