//! The end of an epoch: the evaluation, its consequences on all workers, and checkpoints.

use kolo_comm::Op;
use kolo_data::{DataSet, Part};
use kolo_metrics::{Best, BestScore, Classification, EpochRow, Progress, Record, Scores};
use kolo_run_folder::in_line;
use kolo_trace::What;

use crate::due::{Demand, Due};
use crate::error::Error;
use crate::evaluate::{self, Evaluated};
use crate::flow::{Flow, Moment};
use crate::framework::Framework;
use crate::run_writer::RunWriter;
use crate::worker::Worker;

impl<F: Framework<M>, M, D: DataSet + ?Sized + 'static> Worker<'_, F, M, D> {
    /// Evaluates the model, and records an epoch, a part of it, or the last step. Returns false if the
    /// workers were signaled to end meanwhile; then the evaluation is left for the resumed run. A collective.
    pub(crate) fn record_epoch(
        &mut self,
        progress: &mut Progress,
        writer: &mut Option<RunWriter>,
    ) -> Result<bool, Error> {
        if let Some(writer) = writer {
            // The evaluation may outlast the grace period of a job that is ending.
            writer.flush(progress);
        }
        let Some(scores) = self.evaluate(self.task.judging_part(), progress.step())? else {
            self.gather_state()?;
            return Ok(false);
        };
        // Runs even if nothing is evaluated: from here on, writing needs no other rank, unless owners send
        // their parts of the state.
        self.gather_state()?;
        let noise_scale = self.ddp.with_replica(|replica| replica.noise_scale())?;
        let epoch = progress.epoch_meter();
        let row = EpochRow {
            epoch: progress.epochs_begun(),
            steps: progress.step(),
            epochs_done: progress.epoch_of_figures(progress.step()),
            world_size: self.ddp.group().world_size(),
            seconds_per_step: epoch.seconds_per_step(),
            samples_per_second: epoch.samples_per_second(),
            comm_fraction: epoch.comm_fraction(),
            exposed_comm_fraction: epoch.exposed_comm_fraction(),
            train_loss: epoch.train_loss(),
            scores,
            learning_rate: (self.rate)(progress.step() - 1),
            noise_scale,
        };
        self.warn_of_nan(&row);
        progress.add_epoch(row.clone());
        let stops = self.heed_patience(progress);
        // A range test ends in its curve alone.
        let is_test = self.job.range_test.is_some();
        if let Some(writer) = writer.as_mut().filter(|_| !is_test) {
            self.tell(writer, &Record::Epoch(&row), progress);
            if let Some(note) = stops {
                self.tell(writer, &Record::Note(&note), progress);
            }
        }
        self.agree(Moment::Epoch, progress)?;
        if let Some(writer) = writer.as_mut().filter(|_| progress.stopped_by().is_some()) {
            let done = progress.step();
            let note = match is_test {
                true => format!("the loss has diverged at step {done}: the test ends"),
                false => format!("a callback ends the run after step {done}"),
            };
            self.tell(writer, &Record::Note(&note), progress);
        }
        let best = self.job.config.best_metric.as_ref().and(self.best(progress));
        let is_best = best.is_some_and(|best| best.step == progress.step());
        let answers = [Moment::Step, Moment::Epoch].map(|moment| self.answers.at(moment, progress.step()));
        let asked = answers.contains(&Some(Flow::Checkpoint));
        let is_due = asked || progress.is_over() || self.calendar.after(progress.step()).checkpoint;
        let demand = if asked { Demand::Asked } else { Demand::Routine };
        let last = Due::last(progress, demand);
        self.save(progress, writer, Due { is_best, last: last.last.filter(|_| is_due), ..last })?;
        Ok(true)
    }

    /// Returns the scores over a part after so many steps; `None` if the workers were signaled to end
    /// meanwhile. A collective.
    fn evaluate(&mut self, part: Part, step: u64) -> Result<Option<Scores>, Error> {
        let config = &self.job.config;
        let sizes = [config.test_batch_size, config.input.data_threads];
        // The user's evaluation may wait for a device or for another program.
        let _working = kolo_elastic::working();
        let evaluated = kolo_trace::spanned(What::Evaluate, || {
            let stop =
                evaluate::Stop { asked: &|| self.stop.get(), is_fixed: self.ddp.generation().is_none() };
            evaluate::evaluate(&self.framework, &self.ddp, self.task, part, sizes, &stop)
        })?;
        let scores = evaluated.as_ref().map(|evaluated| evaluated.scores.clone());
        if let Some(classes) = evaluated.as_ref().and_then(|evaluated| evaluated.classification.as_ref()) {
            self.warn_of_not_finite(part, step, classes);
        }
        self.evaluated = evaluated.map(|evaluated| (step, evaluated)).or(self.evaluated.take());
        Ok(scores)
    }

    /// Evaluates the test samples at the end, or those that judge the model if there are none, unless all
    /// workers have just seen that: not if validation samples have judged, or a worker has come since.
    /// Returns false if the workers were signaled to end meanwhile. A collective.
    pub(crate) fn look_at_test(&mut self, step: u64) -> Result<bool, Error> {
        let part = if self.task.data.samples(Part::Test) > 0 { Part::Test } else { self.task.judging_part() };
        let is_it = |(at, last): &(u64, Evaluated)| (*at, last.part) == (step, part);
        let mut lacking = [i32::from(!self.evaluated.as_ref().is_some_and(is_it))];
        self.ddp.group().all_reduce(&mut lacking, Op::Max)?;
        Ok(lacking == [0] || self.evaluate(part, step)?.is_some())
    }

    /// Warns once of a part, on rank 0, about samples whose scores are not finite.
    fn warn_of_not_finite(&mut self, part: Part, step: u64, classes: &Classification) {
        let (count, all) = (classes.confusion.not_finite(), classes.confusion.samples());
        let part = match part {
            Part::Train => "training",
            Part::Test => "test",
            Part::Validation => "validation",
        };
        let words = format!("{part} samples whose scores are not finite count as wrong: ");
        if count > 0 && self.ddp.rank().0 == 0 && !self.warnings.has(&words) {
            self.warnings.tell(format!("{words}{count} of {all} after step {step}"));
        }
    }

    /// Warns once, on rank 0, about metrics that are NaN: no checkpoint can be the best by them.
    fn warn_of_nan(&mut self, row: &EpochRow) {
        for score in row.scores.0.iter().filter(|score| score.value.is_nan() && self.ddp.rank().0 == 0) {
            let words = format!("{} is not a number (NaN) after epoch ", in_line(score.metric.name));
            if !self.warnings.has(&words) {
                self.warnings.tell(format!("{words}{}", row.epoch));
            }
        }
    }

    /// Best evaluation of a run that is judged, with its score.
    pub(crate) fn best_score(&self, progress: &Progress) -> Option<BestScore> {
        let config = &self.job.config;
        let is_judged = config.best_metric.is_some() || config.patience.is_some();
        let best = self.best(progress).filter(|_| is_judged)?;
        let (index, _) = self.task.deciding_metric(config)?;
        let scores = progress.evaluations().scores(best.step, self.task.measured())?;
        Some(BestScore { step: best.step, scores: Scores(vec![*scores.0.get(index)?]) })
    }

    /// Best evaluation so far, by the deciding metric.
    fn best(&self, progress: &Progress) -> Option<Best> {
        let (index, metric) = self.task.deciding_metric(&self.job.config)?;
        progress.evaluations().best(metric, index)
    }

    /// Ends the run after too many evaluations in a row without an improvement, and returns a note about it.
    /// All workers know the same evaluations.
    pub(crate) fn heed_patience(&self, progress: &mut Progress) -> Option<String> {
        let patience = self.job.config.patience?;
        let (_, metric) = self.task.deciding_metric(&self.job.config)?;
        let best = self.best(progress);
        // Counts from the first evaluation, as among equal ones: later ones are not better.
        let since = best.map_or(progress.evaluations().count().saturating_sub(1), |best| best.since);
        let stops = since >= patience && !progress.is_unrecorded();
        progress.end_here(stops);
        let step = progress.step();
        stops.then(|| {
            let why = match best {
                Some(best) => format!("nothing better since step {}", best.step),
                None => format!("{} has been no number (NaN) in every evaluation", in_line(metric.name)),
            };
            format!("{why}: the run ends after step {step} (patience {patience})")
        })
    }
}
