//! A job that ends before its run: the last of its workers keep what it has come to.

use burn::module::Module;
use kolo_comm::Group;
use kolo_data::DataSet;

use crate::error::Error;
use crate::progress::Progress;
use crate::run_writer::RunWriter;
use crate::worker::Worker;

impl<M: Module, D: DataSet + ?Sized + 'static> Worker<'_, M, D> {
    /// After an error: goes on with those that are left. If they are too few, the first of them goes on
    /// alone, for as long as it takes to save what they have come to; `Ok(true)`: that can be done now.
    pub(crate) fn recover(&mut self, error: Error) -> Result<bool, Error> {
        let Error::Training(error) = error else { return Err(error) };
        let Err(error) = self.ddp.recover(error) else { return Ok(false) };
        if !is_the_first_of_too_few(&error) || self.ddp.steps() == 0 {
            return Err(error.into());
        }
        self.ddp.regroup(Group::alone())?;
        self.too_few = Some(error.to_string());
        if self.ddp.with_replica(|replica| replica.is_halfway()) {
            // One more step, and out.
            self.ddp.leave();
            return Ok(false);
        }
        Ok(true)
    }

    /// The error of those who are too few to go on and may not keep what they have come to.
    pub(crate) fn nothing_kept(&self, error: Error, progress: &Progress) -> Error {
        match (&self.too_few, &error) {
            (Some(_), Error::NotTheWriter(_)) => Error::EndedEarly {
                too_few: self.too_few.clone(),
                step: progress.step(),
                total: self.calendar.total,
                kept: format!("nothing of it is kept: {error}"),
            },
            _ => error,
        }
    }

    /// When all have left: writes a checkpoint, so that nothing is lost. Rank 0 ends with the error that says
    /// so.
    pub(crate) fn end_early(&self, progress: &Progress, writer: Option<RunWriter>) -> Result<(), Error> {
        let Some(writer) = writer else { return Ok(()) };
        let (step, total) = (progress.step(), self.calendar.total);
        let kept = match writer.end_early(&self.ddp, progress) {
            Ok(()) => "a checkpoint holds all of it".into(),
            Err(failure) => {
                // A launcher that was asked to end does not show the error itself.
                kolo_ddp::checkpoint::tell(&failure);
                format!("what has been done since the last checkpoint is lost: {failure}")
            }
        };
        Err(Error::EndedEarly { too_few: self.too_few.clone(), step, total, kept })
    }
}

fn is_the_first_of_too_few(error: &kolo_ddp::Error) -> bool {
    use kolo_comm::Error::TooFew;
    matches!(error, kolo_ddp::Error::Comm(TooFew { first: true, .. }))
}
