//! Agreement of all workers on the answers of callbacks, between two steps.

use kolo_comm::Rank;
use kolo_data::DataSet;
use kolo_ddp::StepReport;
use kolo_metrics::{Progress, Record};

use crate::error::Error;
use crate::flow::{Flow, Moment};
use crate::framework::Framework;
use crate::worker::Worker;

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
