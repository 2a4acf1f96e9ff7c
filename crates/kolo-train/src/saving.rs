//! Checkpoints, for all ranks: where each holds a part of the state, all of them save together.

use kolo_comm::Rank;
use kolo_data::DataSet;
use kolo_metrics::Progress;

use crate::due::{Demand, Due};
use crate::error::Error;
use crate::framework::Framework;
use crate::run_writer::RunWriter;
use crate::worker::Worker;

impl<F: Framework<M>, M, D: DataSet + ?Sized + 'static> Worker<'_, F, M, D> {
    /// True if each rank holds a part of the state only.
    pub(crate) fn divides_state(&self) -> bool {
        self.ddp.with_replica(|replica| replica.divides_state())
    }

    /// Brings to rank 0 the state that a checkpoint needs, unless its owners send it when it is written. A
    /// collective.
    pub(crate) fn gather_state(&self) -> Result<(), Error> {
        match self.divides_state() {
            true => Ok(()),
            false => Ok(self.ddp.with_replica(|replica| replica.gather_residuals())?),
        }
    }

    /// Saves what rank 0 finds to be due after this step. A collective if the state is divided: if it fails,
    /// the remaining ranks save again ([`Worker::save_again`]).
    pub(crate) fn save(
        &mut self,
        progress: &Progress,
        writer: &mut Option<RunWriter>,
        due: Due,
    ) -> Result<(), Error> {
        let may_write = |writer: &RunWriter| writer.checkpoints.is_some() && writer.check().is_ok();
        let is_written = writer.as_ref().is_some_and(may_write);
        let mut due = Some(due).filter(|due| is_written && (due.is_best || due.last.is_some()));
        let is_divided = self.divides_state();
        if is_divided {
            // Rank 0 alone knows whether there is a folder, and what its callbacks have answered.
            due = self.ddp.group().broadcast_value(due, Rank(0))?;
        }
        let Some(due) = due else { return Ok(()) };
        self.unsaved = Some(due);
        let saved = writer.as_mut().map_or(Ok(()), |writer| writer.save(&self.ddp, progress, &due));
        let served = self.ddp.with_replica(|replica| match (is_divided, replica.group().rank()) {
            (false, _) => Ok(()),
            (true, Rank(0)) => replica.end_serving(),
            (true, _) => replica.serve_state(),
        });
        saved?;
        served?;
        self.unsaved = None;
        Ok(())
    }

    /// Saves what was due after this step when a worker died. A collective, if the job can divide its state.
    pub(crate) fn save_again(
        &mut self,
        progress: &Progress,
        writer: &mut Option<RunWriter>,
    ) -> Result<(), Error> {
        let mut due = self.unsaved.take().filter(|due| due.step == progress.step());
        if self.job.config.is_divided() {
            let known: Vec<Option<Due>> = self.ddp.group().all_gather_value(&due)?;
            due = known.into_iter().flatten().next();
        }
        // An epoch that is not recorded yet is saved when it is.
        match due.filter(|_| !progress.is_unrecorded()) {
            Some(due) => self.save(progress, writer, due),
            None => Ok(()),
        }
    }

    /// Saves divided state for the last time, while all ranks are there that end together. A collective.
    pub(crate) fn save_before_end(
        &mut self,
        progress: &Progress,
        writer: &mut Option<RunWriter>,
    ) -> Result<(), Error> {
        if !self.divides_state() {
            return Ok(());
        }
        let _saving = kolo_elastic::saving();
        if let Some(writer) = writer {
            writer.flush(progress);
        }
        let due = Due { at_end: true, ..Due::last(progress, Demand::Routine) };
        self.save(progress, writer, due)
    }
}
