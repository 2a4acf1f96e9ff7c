//! Where a worker is in the run when it comes, and after others have died or come: its progress, and whether
//! it writes.

use burn::module::Module;
use kolo_data::DataSet;

use crate::checkpoints;
use crate::error::Error;
use crate::meter::StepRow;
use crate::progress::Progress;
use crate::run_folder::RunFolder;
use crate::run_writer::RunWriter;
use crate::sinks::{Record, SinkContext};
use crate::weights;
use crate::worker::Worker;

impl<M: Module, D: DataSet + ?Sized + 'static> Worker<'_, M, D> {
    /// Brings the progress to where the replica is; and both to the last checkpoint, where a run is resumed.
    /// A collective.
    pub(crate) fn catch_up(&mut self, progress: &mut Progress) -> Result<(), Error> {
        let (steps, calendar) = (self.ddp.steps(), self.calendar.clone());
        let resumes = self.job.folder.as_ref().filter(|_| self.job.resume && progress.step() == 0);
        let Some(folder) = resumes else {
            self.follow_replica(progress);
            return Ok(());
        };
        let position = match steps {
            0 => Some(checkpoints::resume(&mut self.ddp, folder)?),
            // The others had read it when one of them died.
            _ => checkpoints::position(folder, steps),
        };
        *progress = match &position {
            Some(position) => Progress::resumed(position, calendar),
            None => Progress::at(steps, calendar),
        };
        self.heed_patience(progress);
        if progress.is_over() && !progress.is_unrecorded() {
            return Err(Error::Complete { path: folder.path().to_owned(), total: progress.total() });
        }
        Ok(())
    }

    /// After the members have changed: the progress goes where the replica is, which may be before it, or a
    /// step or a round of islands after. Of what has come to its end elsewhere only, or after which something
    /// failed here, the rows are still missing.
    fn follow_replica(&self, progress: &mut Progress) {
        let known = self.ddp.with_replica(|replica| replica.last_steps());
        let took = self.step_began.elapsed();
        progress.complete(&known, |last, epoch| StepRow::unseen(last, epoch, self.rate.at(last.step), took));
        progress.move_to(self.ddp.steps());
    }

    /// Makes rank 0 the one that writes; that may have been another worker before. `begins`: for the first
    /// time.
    pub(crate) fn choose_writer(
        &mut self,
        progress: &Progress,
        writer: &mut Option<RunWriter>,
        begins: bool,
    ) -> Result<(), Error> {
        if self.ddp.rank().0 > 0 {
            *writer = None;
            return Ok(());
        }
        if let Some(writer) = writer {
            writer.follow(progress);
            self.record_generation(writer, progress);
            return Ok(());
        }
        let folder = self.job.folder.as_ref();
        if folder.is_some_and(|folder| folder.is_complete()) && progress.is_over() {
            // Another worker was rank 0 when the last death came, and has come to the end nevertheless.
            return Ok(());
        }
        let (metrics, unit) = (self.task.measured(), &*self.task.unit);
        let run = SinkContext { folder, config: &self.job.config, metrics, unit };
        let mut new = RunWriter::new(&run, &self.job.sinks);
        match begins {
            true => {
                if let Some(folder) = folder {
                    weights::keep_preprocessing(folder, self.task.data.preprocessing())?;
                }
                new.begin(progress)?;
            }
            false => new.follow(progress),
        }
        if self.job.resume || progress.step() > 0 {
            let path = folder.map_or("the run".into(), |folder| folder.path().display().to_string());
            let note = format!("continuing {path} after step {}", progress.step());
            self.tell(&mut new, &Record::Note(&note), progress);
        }
        self.tell(&mut new, &Record::Note(&self.describe()), progress);
        self.record_generation(&mut new, progress);
        let written = |folder: &RunFolder| folder.has_checkpoint(progress.step());
        if let Some(checkpoints) = &mut new.checkpoints
            && progress.is_over()
            && !progress.is_unrecorded()
            && !self.job.folder.as_ref().is_some_and(written)
        {
            // The last rank 0 has died while it wrote it.
            checkpoints.take(&self.ddp, progress)?;
        }
        *writer = Some(new);
        Ok(())
    }

    fn record_generation(&mut self, writer: &mut RunWriter, progress: &Progress) {
        let world_size = self.ddp.group().world_size();
        if let Some(generation) = &self.ddp.generation() {
            self.tell(writer, &Record::Generation { generation, world_size }, progress);
        }
    }
}
