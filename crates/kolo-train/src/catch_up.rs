//! A worker's progress and its role as a writer, when it joins and after a change of members.

use std::path::{Path, PathBuf};

use kolo_claim::Owner;
use kolo_comm::Rank;
use kolo_comm::env::LOCAL_RANK;
use kolo_data::{DataSet, Preprocessing};
use kolo_ddp::checkpoint::{self, Position};
use kolo_metrics::{Progress, Record, SinkContext, StepRow};
use kolo_recipe::Error::NotTheWriter;
use kolo_recipe::RunFolder;
use kolo_run_folder::ChangeRow;

use crate::checkpoints;
use crate::due::{Demand, Due};
use crate::error::Error;
use crate::framework::Framework;
use crate::resume_check::{changed, check_end, check_meaning, refuse, words};
use crate::run_writer::RunWriter;
use crate::worker::Worker;

impl<F: Framework<M>, M, D: DataSet + ?Sized + 'static> Worker<'_, F, M, D> {
    /// Sets the progress to the replica's step; if a run is resumed, sets both to the last checkpoint. A
    /// collective.
    pub(crate) fn catch_up(&mut self, progress: &mut Progress) -> Result<(), Error> {
        let (steps, calendar) = (self.ddp.steps(), self.calendar.clone());
        let resumes = self.job.folder.as_ref().filter(|_| self.job.resume && progress.step() == 0);
        let Some(folder) = resumes else {
            self.follow_replica(progress);
            return Ok(());
        };
        let position = match steps {
            0 => {
                check_meaning(folder, &self.job.config.data, self.task.data.preprocessing().as_ref())?;
                let position = checkpoints::resume(&mut self.ddp, folder, &self.job.config)?;
                self.check_position(folder, &position)?;
                Some(position)
            }
            // The others had read the checkpoint when one of them died.
            _ => checkpoints::position(folder, steps),
        };
        *progress = match &position {
            Some(position) => Progress::resumed(position, calendar),
            None => Progress::at(steps, calendar),
        };
        self.heed_patience(progress);
        Ok(())
    }

    /// Refuses to continue with settings that the checkpoint does not fit, with other samples than those of
    /// the checkpoint, unless the user accepts them, with another tokenizer, and from a checkpoint beyond the
    /// end of the run. Keeps the other changes of settings for the report.
    fn check_position(&mut self, folder: &RunFolder, position: &Position) -> Result<(), Error> {
        let path = checkpoint::path(&folder.checkpoints(), position.step);
        self.changes = changed(&self.job.config, position)?;
        refuse(&path, &self.changes)?;
        self.task.data.tokenizer().map_or(Ok(()), |own| folder.check_tokenizer(position, own))?;
        let checked = self.sampling.check(&path, position, &self.calendar.position(position.step));
        match checked {
            Err(Error::OtherSamples { setting, there, here, .. }) if self.job.accept_changed_data => {
                if self.ddp.rank().0 == 0 {
                    self.warnings.tell(format!("continuing with {setting} = {here}, which was {there}"));
                }
                Ok(())
            }
            checked => checked,
        }?;
        check_end(&self.job.config, &self.calendar, &path, position)
    }

    /// Moves the progress to the replica's step after a change of members. That may be an earlier step, or
    /// the end of a step or a round of islands that completed elsewhere only, or after which this worker
    /// failed: rows of such steps are added.
    fn follow_replica(&self, progress: &mut Progress) {
        let known = self.ddp.with_replica(|replica| replica.last_steps());
        let took = self.step_began.elapsed();
        progress.complete(&known, |last, epoch| StepRow::unseen(last, epoch, (self.rate)(last.step), took));
        progress.move_to(self.ddp.steps());
    }

    /// Makes rank 0 the writer, which may have been another worker before. `begins` is true for the first
    /// time. If rank 0 cannot begin to write, all ranks end with its reason. A collective.
    pub(crate) fn choose_writer(
        &mut self,
        progress: &Progress,
        writer: &mut Option<RunWriter>,
        begins: bool,
    ) -> Result<(), Error> {
        if let Some(earlier) = writer.take_if(|_| self.ddp.rank().0 > 0) {
            earlier.hand_on();
        }
        let claimed = self.claim_folder(progress, writer, begins)?;
        let opened = claimed.and_then(|folder| self.open_writer(folder, progress, writer, begins));
        let unwritten = opened.as_ref().err().map(ToString::to_string);
        match self.ddp.group().broadcast_value(unwritten, Rank(0))? {
            Some(unwritten) => opened.and(Err(Error::Unwritten(unwritten))),
            None => opened,
        }
    }

    /// Opens the writer on rank 0, unless it is open.
    fn open_writer(
        &mut self,
        folder: Option<RunFolder>,
        progress: &Progress,
        writer: &mut Option<RunWriter>,
        begins: bool,
    ) -> Result<(), Error> {
        if self.ddp.rank().0 > 0 {
            return Ok(());
        }
        if let Some(writer) = writer {
            writer.follow(progress);
            self.record_generation(writer, progress);
            return Ok(());
        }
        let folder = folder.as_ref();
        let (metrics, unit) = (self.task.measured(), &*self.task.unit);
        let (config, live) = (&self.job.config, &self.job.live);
        let run = SinkContext { folder, config, metrics, unit, live };
        if let Some(folder) = folder.filter(|folder| folder.is_complete() && progress.is_over()) {
            // Without a fresh start another worker was rank 0 at the last death, and has nevertheless
            // completed the run.
            if begins {
                let mut told =
                    RunWriter::new(&SinkContext { folder: None, ..run }, &self.job.sinks, &self.sampling);
                told.begin(progress)?;
                self.tell(&mut told, &Record::Note(&complete(folder, progress)), progress);
                self.report_changes(&mut told, progress);
            }
            return Ok(());
        }
        let has_steps = folder.filter(|_| self.job.resume && !progress.is_over());
        let longer = has_steps.map_or(Ok(Vec::new()), |folder| folder.extend(&self.job.config))?;
        let mut new = RunWriter::new(&run, &self.job.sinks, &self.sampling);
        match begins {
            true => {
                if let Some(folder) = folder {
                    folder.keep_config(&self.job.config)?;
                    keep_preprocessing(folder, self.task.data.preprocessing())?;
                    folder.keep_tokenizer(self.task.data.tokenizer())?;
                }
                new.begin(progress)?;
            }
            false => new.follow(progress),
        }
        if begins
            && progress.is_over()
            && let Some(folder) = folder
        {
            let note = format!("{}; only its summary was missing", complete(folder, progress));
            self.tell(&mut new, &Record::Note(&note), progress);
        } else if self.job.resume || progress.step() > 0 {
            let path = folder.map_or("the run".into(), |folder| folder.path().display().to_string());
            let note = format!("continuing {path} after step {}", progress.step());
            self.tell(&mut new, &Record::Note(&note), progress);
        }
        for words in &longer {
            self.tell(&mut new, &Record::Note(words), progress);
        }
        if begins && self.job.resume {
            self.report_changes(&mut new, progress);
        }
        self.tell(&mut new, &Record::Note(&self.describe()), progress);
        self.record_generation(&mut new, progress);
        let written = |folder: &RunFolder| folder.has_checkpoint(progress.step());
        if new.checkpoints.is_some()
            && progress.is_over()
            && !progress.is_unrecorded()
            && !self.job.folder.as_ref().is_some_and(written)
        {
            // The previous rank 0 died while it wrote the checkpoint.
            self.unsaved = Some(Due::last(progress, Demand::Routine));
        }
        *writer = Some(new);
        // The previous rank 0 may have died in the listeners of the epoch that has just ended.
        if let Some(row) =
            progress.epochs().last().filter(|_| !begins && progress.step() == progress.recorded())
        {
            self.call_listeners(&Record::Epoch(row), progress);
        }
        Ok(())
    }

    /// Tells the user which settings have changed since the checkpoint, and records them.
    fn report_changes(&mut self, writer: &mut RunWriter, progress: &Progress) {
        let (step, changes) = (progress.step(), std::mem::take(&mut self.changes));
        for change in &changes {
            self.tell(writer, &Record::Note(&words(change, step, progress.is_over())), progress);
        }
        if progress.is_over() {
            return;
        }
        let rows = changes.into_iter().map(|change| ChangeRow {
            step,
            setting: change.setting,
            before: change.before,
            after: change.after,
        });
        let rows: Vec<ChangeRow> = rows.collect();
        self.tell(writer, &Record::Continued { step, changes: &rows }, progress);
    }

    /// Claims the run folder for this generation on rank 0, and returns the folder with that claim, or the
    /// error if a folder that is away must not be. If the claim is refused, all ranks end with the same
    /// reason. A collective.
    fn claim_folder(
        &mut self,
        progress: &Progress,
        writer: &Option<RunWriter>,
        begins: bool,
    ) -> Result<Result<Option<RunFolder>, Error>, Error> {
        let generation = self.ddp.generation().map_or(1, |generation| generation.number);
        let mut candidate = self.lineage.announce(self.ddp.group(), generation)?;
        candidate.take_over = self.job.take_over && begins;
        let folder = self.job.folder.as_ref().filter(|_| self.ddp.rank().0 == 0);
        let is_written = |folder: &&RunFolder| !(folder.is_complete() && progress.is_over());
        let (claims, folder) = (folder.filter(is_written), folder.cloned());
        let (claimed, folder) = match (claims, writer) {
            (None, _) => (Ok(()), folder),
            (Some(_), Some(writer)) => (writer.renew(candidate), None),
            (Some(folder), None) => {
                let folder = folder.claimed(candidate);
                (folder.check().map_err(Error::from), Some(folder))
            }
        };
        let refusal = match &claimed {
            Err(Error::Recipe(NotTheWriter(refusal))) => Some(refusal.clone()),
            _ => None,
        };
        let held = claims.filter(|_| claimed.is_ok()).map(|folder| absolute(folder.path()));
        let (held, refusal) = self.ddp.group().broadcast_value((held, refusal), Rank(0))?;
        let is_held = held.is_some();
        if let Some(refusal) = refusal {
            return Err(NotTheWriter(refusal).into());
        }
        if let Some(written) = held.filter(|_| begins) {
            self.look_at_folder(&written);
        }
        if is_held {
            self.lineage.has_held = true;
        }
        Ok(match claimed {
            // A folder that is away is claimed when it is back, before any write.
            Err(error) if begins => Err(error),
            _ => Ok(folder),
        })
    }

    /// Warns if this node does not see the folder that rank 0 has claimed. One worker of each launcher looks.
    fn look_at_folder(&mut self, written: &Path) {
        let (rank, is_first) = (self.ddp.rank(), std::env::var(LOCAL_RANK).is_ok_and(|local| local == "0"));
        let Some(folder) = self.job.folder.as_ref().filter(|_| rank.0 > 0 && is_first) else { return };
        if !self.lineage.is_claimed(folder.path()) {
            let (own, host) = (absolute(folder.path()), Owner::this_process().host);
            self.warnings.tell(format!(
                "{rank} on {host} does not find in its run folder {} what rank 0 writes to {}: give all nodes the same \
                 folder on a disk that they share (--out), or the run is lost with rank 0's node",
                own.display(),
                written.display()
            ));
        }
    }

    fn record_generation(&mut self, writer: &mut RunWriter, progress: &Progress) {
        let world_size = self.ddp.group().world_size();
        if let Some(generation) = &self.ddp.generation() {
            self.tell(writer, &Record::Generation { generation, world_size }, progress);
        }
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or(path.into())
}

/// Keeps the preprocessing of a data set's images in the run folder, if the data set describes it.
fn keep_preprocessing(folder: &RunFolder, preprocessing: Option<Preprocessing>) -> Result<(), Error> {
    let Some(preprocessing) = preprocessing else { return Ok(()) };
    let text = serde_json::to_string_pretty(&preprocessing);
    let text = text.map_err(|e| kolo_recipe::Error::encode("preprocessing.json", e))?;
    Ok(folder.write(&folder.preprocessing(), (text + "\n").as_bytes())?)
}

/// Returns the note for a run without remaining steps.
fn complete(folder: &RunFolder, progress: &Progress) -> String {
    format!("the run in {} is complete: all {} steps are done", folder.path().display(), progress.total())
}
