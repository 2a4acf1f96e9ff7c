//! Answers of callbacks, on which all workers agree between two steps.

use kolo_comm::Rank;
use kolo_data::DataSet;
use kolo_ddp::StepReport;
use kolo_recipe::Recipe;

use crate::error::Error;
use crate::framework::Framework;
use crate::progress::Progress;
use crate::sinks::Record;
use crate::worker::Worker;

/// Answer of a callback: what the run does next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flow {
    /// The run continues.
    #[default]
    Continue,
    /// The run writes a checkpoint now, and continues.
    Checkpoint,
    /// The run ends here, as after its last step: the model is evaluated, and a checkpoint and the summary
    /// are written.
    Stop,
}

/// Value that a callback returns: a [`Flow`], or nothing.
pub trait Answer {
    /// True if all workers have to agree on the answer.
    const DECIDES: bool;

    /// Returns the answer.
    fn flow(self) -> Flow;
}

impl Answer for () {
    const DECIDES: bool = false;

    fn flow(self) -> Flow {
        Flow::Continue
    }
}

impl Answer for Flow {
    const DECIDES: bool = true;

    fn flow(self) -> Flow {
        self
    }
}

/// Moment at which callbacks answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Step,
    Epoch,
}

/// Last answers of this worker's callbacks, by moment, each with the number of steps done then.
#[derive(Debug, Default)]
pub(crate) struct Answers([Option<(u64, Flow)>; 2]);

impl Answers {
    /// Answer at this moment after so many steps; `None` if no callback was asked here.
    pub(crate) fn at(&self, moment: Moment, steps: u64) -> Option<Flow> {
        self.0[moment as usize].filter(|(at, _)| *at == steps).map(|(_, flow)| flow)
    }

    fn keep(&mut self, record: &Record<'_>, steps: u64, flow: Flow) {
        match record {
            Record::Step { row, .. } => self.0[Moment::Step as usize] = Some((row.step + 1, flow)),
            Record::Epoch(_) => self.0[Moment::Epoch as usize] = Some((steps, flow)),
            _ => {}
        }
    }
}

/// Refuses callbacks that decide after each step if workers do not have one model then.
pub(crate) fn check(decides_after_steps: bool, recipe: &Recipe) -> Result<(), Error> {
    if !decides_after_steps || has_one_model(recipe) {
        return Ok(());
    }
    let problem = "the workers have one model only after some of the steps, so that no `on_step` can decide on the \
                   run; return a `Flow` from `on_epoch`";
    Err(Error::setting("--sync", &recipe.sync.mode, problem))
}

/// True if all workers have the same model and losses after each step.
pub(crate) fn has_one_model(recipe: &Recipe) -> bool {
    let mode = &recipe.sync.mode;
    !mode.is_rare() && !mode.is_delayed() && mode.staleness_bound().is_none()
}

impl<F: Framework<M>, M, D: DataSet + ?Sized + 'static> Worker<'_, F, M, D> {
    /// Calls the listeners on rank 0, and keeps their answer.
    pub(crate) fn call_listeners(&mut self, record: &Record<'_>, progress: &Progress) {
        let flow = self.task.tell(record, F::module(self.ddp.model()));
        self.answers.keep(record, progress.step(), flow);
    }

    /// Agrees on rank 0's answer at this moment: a [`Flow::Stop`] ends the run here. A collective, if a
    /// callback decides at such moments.
    pub(crate) fn agree(&mut self, moment: Moment, progress: &mut Progress) -> Result<Flow, Error> {
        if !self.task.decides(moment) {
            return Ok(Flow::Continue);
        }
        let own = self.answers.at(moment, progress.step()).unwrap_or_default();
        let mut agreed = [own as u8];
        self.ddp.group().broadcast(&mut agreed, Rank(0))?;
        let flow = [Flow::Continue, Flow::Checkpoint, Flow::Stop]
            .into_iter()
            .find(|flow| *flow as u8 == agreed[0])
            .unwrap_or_default();
        if flow == Flow::Stop {
            progress.stop_here();
        }
        Ok(flow)
    }

    /// Agrees on the answers after the present step with the ranks of a new generation. A rank may have died
    /// before all knew them; the callbacks are asked again if no rank has their answer. A collective, if a
    /// callback decides.
    pub(crate) fn agree_again(&mut self, progress: &mut Progress) -> Result<(), Error> {
        for moment in [Moment::Step, Moment::Epoch] {
            if !self.task.decides(moment) {
                continue;
            }
            let own = self.answers.at(moment, progress.step()).map(|flow| flow as u8);
            let known: Vec<Option<u8>> = self.ddp.group().all_gather_value(&own)?;
            if known.iter().all(Option::is_none) {
                self.ask_again(moment, progress);
                self.agree(moment, progress)?;
            } else if known.contains(&Some(Flow::Stop as u8)) {
                progress.stop_here();
            }
        }
        Ok(())
    }

    /// Calls the listeners of rank 0 once more with the last step. Those of an epoch have been called when
    /// this worker became the writer.
    fn ask_again(&mut self, moment: Moment, progress: &Progress) {
        let last = progress.steps().last().filter(|row| row.step + 1 == progress.step()).cloned();
        if let (Moment::Step, 0, Some(row)) = (moment, self.ddp.rank().0, last) {
            let (report, epoch) = (StepReport::default(), progress.epoch_meter());
            self.call_listeners(&Record::Step { row: &row, report: &report, epoch }, progress);
        }
    }
}
