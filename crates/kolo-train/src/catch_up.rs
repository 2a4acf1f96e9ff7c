//! Where a worker is in the run when it comes, and after others have died or come: its progress, and whether
//! it writes.

use crate::checkpoints;
use crate::error::Error;
use crate::meter::StepRow;
use crate::model::Model;
use crate::progress::Progress;
use crate::run_writer::RunWriter;
use crate::sinks::Record;
use crate::worker::Worker;

impl<M: Model> Worker<'_, M> {
    /// Brings the progress to where the replica is; and both to the last checkpoint, where a run is resumed.
    /// A collective.
    pub(crate) fn catch_up(&mut self, progress: &mut Progress) -> Result<(), Error> {
        let (steps, epoch_steps, total) = (self.steps(), self.sampler.steps(), self.total);
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
            Some(position) => Progress::resumed(position, epoch_steps, total),
            None => Progress::at(steps, epoch_steps, total),
        };
        if progress.is_over() && !progress.is_unrecorded() {
            return Err(Error::Complete { path: folder.path().to_owned(), total });
        }
        Ok(())
    }

    /// After the members have changed: the progress goes where the replica is, which may be a step before or
    /// after. Of a step that has come to its end elsewhere only, or after which something failed here, the
    /// row is still missing.
    fn follow_replica(&self, progress: &mut Progress) {
        let (next, steps) = (progress.step(), self.steps());
        let last = self.ddp.with_replica(|replica| replica.last_step());
        if let Some(last) = last.filter(|last| last.step == next && steps == next + 1) {
            let (epoch, rate) = (progress.position.epoch, self.rate.at(next));
            progress.add_step(StepRow::unseen(&last, epoch, rate, self.step_began.elapsed()));
        }
        progress.move_to(steps);
    }

    /// Makes rank 0 the one that writes; that may have been another worker before. `begins`: for the first
    /// time.
    pub(crate) fn choose_writer(
        &self,
        progress: &Progress,
        writer: &mut Option<RunWriter>,
        begins: bool,
    ) -> Result<(), Error> {
        let Some(folder) = self.job.folder.as_ref().filter(|_| self.ddp.rank().0 == 0) else {
            *writer = None;
            return Ok(());
        };
        if let Some(writer) = writer {
            writer.follow(progress);
            self.record_generation(writer, progress);
            return Ok(());
        }
        if folder.is_complete() && progress.is_over() {
            // Another worker was rank 0 when the last death came, and has come to the end nevertheless.
            return Ok(());
        }
        let mut new = RunWriter::new(folder, &self.job.config, &self.job.sinks);
        match begins {
            true => new.begin(progress)?,
            false => new.follow(progress),
        }
        if self.job.resume || progress.step() > 0 {
            let (path, step) = (folder.path().display(), progress.step());
            new.record(&Record::Note(&format!("continuing {path} after step {step}")), progress);
        }
        new.record(&Record::Note(&self.describe()), progress);
        self.record_generation(&mut new, progress);
        if progress.is_over() && !progress.is_unrecorded() && !folder.has_checkpoint(progress.step()) {
            // The last rank 0 has died while it wrote it.
            new.checkpoints.take(&self.ddp, progress)?;
        }
        *writer = Some(new);
        Ok(())
    }

    fn record_generation(&self, writer: &mut RunWriter, progress: &Progress) {
        let world_size = self.ddp.group().world_size();
        if let Some(generation) = &self.ddp.with_replica(|replica| replica.generation()) {
            writer.record(&Record::Generation { generation, world_size }, progress);
        }
    }
}
