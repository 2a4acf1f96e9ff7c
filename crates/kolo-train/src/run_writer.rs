//! What rank 0 does besides training: it writes the run down.

use std::time::Instant;

use burn::module::Module;
use kolo_burn::Ddp;
use kolo_claim::{Candidate, Refusal};

use crate::checkpoints::Checkpoints;
use crate::error::Error;
use crate::patience::{PATIENCE, patiently};
use crate::progress::Progress;
use crate::run_folder::RunFolder;
use crate::sampling::Sampling;
use crate::sinks::{MetricSink, Record, SinkContext, SinkEntry};
use crate::summary::Summary;
use crate::warn::Warnings;

/// Steps between two tries to align sinks that are behind.
const EVERY: u64 = 50;

/// Rank 0's sinks and checkpoints.
pub(crate) struct RunWriter {
    folder: Option<RunFolder>,
    sinks: Vec<Opened>,
    /// `None` for a run without a folder.
    pub(crate) checkpoints: Option<Checkpoints>,
    /// What could not be written at once, of which the user has been told.
    warnings: Warnings,
    /// Why nothing may be written any more: another process writes the folder.
    refusal: Option<Box<Refusal>>,
}

struct Opened {
    sink: Box<dyn MetricSink>,
    /// The sink may hold steps that will be done again, or lack some that a dead rank 0 has not come to
    /// write. Until it is aligned it gets no records: the progress knows all that is missing.
    is_behind: bool,
    /// What it has could not be written, of which the user has been told.
    is_stuck: bool,
}

/// What one sink has come to.
struct Written {
    result: Result<(), Error>,
    /// The user knows that it cannot be written.
    is_told: bool,
}

impl RunWriter {
    /// Opens the sinks; they are behind until [`RunWriter::begin`] or [`RunWriter::follow`].
    pub(crate) fn new(run: &SinkContext<'_>, sinks: &[SinkEntry], sampling: &Sampling) -> Self {
        let open =
            |entry: &SinkEntry| Some(Opened { sink: (entry.open)(run)?, is_behind: true, is_stuck: false });
        let checkpoints = run.folder.map(|folder| Checkpoints::new(folder, run.config, sampling));
        RunWriter {
            folder: run.folder.cloned(),
            sinks: sinks.iter().filter_map(open).collect(),
            checkpoints,
            warnings: Warnings::default(),
            refusal: None,
        }
    }

    /// Claims the folder for another generation.
    pub(crate) fn renew(&self, candidate: Candidate) -> Result<(), Error> {
        let claim = self.folder.as_ref().and_then(RunFolder::run_claim);
        claim.map_or(Ok(()), |claim| claim.renew(candidate))
    }

    /// Ends where another rank of the job writes from now on: waits for what is being written.
    pub(crate) fn hand_on(self) {
        let RunWriter { folder, sinks, checkpoints, .. } = self;
        drop((sinks, checkpoints));
        if let Some(claim) = folder.as_ref().and_then(RunFolder::run_claim) {
            claim.hand_on();
        }
    }

    /// Whether this process may write, as far as has been found out by writing.
    ///
    /// # Errors
    ///
    /// [`Error::NotTheWriter`].
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.refusal.clone().map_or(Ok(()), |refusal| Err(Error::NotTheWriter(refusal)))
    }

    /// Tells what could not be written, once until it has been, and keeps in mind if that is because another
    /// process writes.
    fn note(&mut self, Written { result, is_told }: Written) {
        match result {
            Ok(()) => {}
            Err(Error::NotTheWriter(refusal)) => self.refusal = Some(refusal),
            Err(error) => {
                let words = format!("{error}; training goes on and tries again later");
                if is_told { self.warnings.keep(words) } else { self.warnings.tell(words) }
            }
        }
    }

    /// Before the first step, where a folder that cannot be written to ends the run.
    pub(crate) fn begin(&mut self, progress: &Progress) -> Result<(), Error> {
        self.sinks.iter_mut().try_for_each(|opened| opened.align(progress))?;
        self.checkpoints.as_mut().map_or(Ok(()), Checkpoints::open)
    }

    /// Goes on where the progress is, after others may have written. What is in the way is told and tried
    /// again later.
    pub(crate) fn follow(&mut self, progress: &Progress) {
        self.sinks.iter_mut().for_each(|opened| opened.is_behind = true);
        self.align(progress);
    }

    fn align(&mut self, progress: &Progress) {
        let behind = self.sinks.iter_mut().filter(|opened| opened.is_behind);
        let aligned: Vec<_> = behind.map(|opened| opened.note(|opened| opened.align(progress))).collect();
        aligned.into_iter().for_each(|aligned| self.note(aligned));
    }

    /// Hands a record, which is the last of `progress`, to all sinks.
    pub(crate) fn record(&mut self, record: &Record<'_>, progress: &Progress) {
        let ready = self.sinks.iter_mut().filter(|opened| !opened.is_behind);
        let recorded: Vec<_> = ready.map(|opened| opened.recorded(record)).collect();
        recorded.into_iter().for_each(|recorded| self.note(recorded));
        match record {
            Record::Step { row, .. } if row.step.is_multiple_of(EVERY) => self.align(progress),
            Record::Epoch(_) => self.flush(progress),
            _ => {}
        }
    }

    /// Writes what waits. What cannot be written now is tried again later.
    pub(crate) fn flush(&mut self, progress: &Progress) {
        self.align(progress);
        let ready = self.sinks.iter_mut().filter(|opened| !opened.is_behind);
        let flushed: Vec<_> = ready.map(|opened| opened.note(|opened| opened.sink.flush())).collect();
        flushed.into_iter().for_each(|flushed| self.note(flushed));
    }

    /// What the user has been told so far of what could not be written.
    pub(crate) fn take_warnings(&mut self) -> Warnings {
        if let Some(checkpoints) = &mut self.checkpoints {
            self.warnings.append(checkpoints.take_warnings());
        }
        std::mem::take(&mut self.warnings)
    }

    /// Takes a checkpoint, where the run has a folder.
    pub(crate) fn checkpoint<M: Module>(&mut self, ddp: &Ddp<M>, progress: &Progress) -> Result<(), Error> {
        self.checkpoints.as_mut().map_or(Ok(()), |checkpoints| checkpoints.take(ddp, progress))
    }

    /// Where the run ends early: writes all that there is, and a checkpoint to go on from.
    pub(crate) fn end_early<M: Module>(mut self, ddp: &Ddp<M>, progress: &Progress) -> Result<(), Error> {
        self.flush(progress);
        self.check()?;
        let Some(mut checkpoints) = self.checkpoints else { return Err(Error::NoFolder) };
        let until = Instant::now() + PATIENCE;
        checkpoints.take(ddp, progress)?;
        checkpoints.finish(until)?;
        // Lines for which there was no room before it. The checkpoint comes first, since it holds the work.
        for opened in &mut self.sinks {
            if let Err(error) = patiently(until, || opened.flush_aligned(progress)) {
                kolo_ddp::checkpoint::tell(&format_args!("{error}; the lines that waited are lost"));
            }
        }
        Ok(())
    }

    /// At the end of the run. What cannot be written is tried again for a while, and all that can be is,
    /// before the first failure ends it.
    pub(crate) fn end(self, summary: &Summary, progress: &Progress) -> Result<(), Error> {
        let (RunWriter { mut sinks, checkpoints, .. }, until) = (self, Instant::now() + PATIENCE);
        let flush = |opened: &mut Opened| patiently(until, || opened.flush_aligned(progress));
        let flushed = sinks.iter_mut().map(flush).collect::<Vec<_>>();
        let checkpoint = checkpoints.map_or(Ok(()), |checkpoints| checkpoints.finish(until));
        // The summary comes last: it says that no step is missing.
        flushed.into_iter().collect::<Result<(), Error>>()?;
        let record = Record::Summary(summary);
        let end = |opened: &mut Opened| patiently(until, || opened.sink.record(&record));
        let ended = sinks.iter_mut().map(end).collect::<Vec<_>>();
        ended.into_iter().collect::<Result<(), Error>>()?;
        checkpoint
    }
}

impl Opened {
    /// Writes, and keeps in mind whether that was possible.
    fn note(&mut self, write: impl FnOnce(&mut Opened) -> Result<(), Error>) -> Written {
        let result = write(self);
        let is_told = std::mem::replace(&mut self.is_stuck, result.is_err());
        Written { result, is_told }
    }

    /// Hands it a record. Where that goes well it may be that the record waits, and was not written.
    fn recorded(&mut self, record: &Record<'_>) -> Written {
        let result = self.sink.record(record);
        let is_told = self.is_stuck;
        self.is_stuck |= result.is_err();
        Written { result, is_told }
    }

    fn align(&mut self, progress: &Progress) -> Result<(), Error> {
        self.sink.align(progress)?;
        self.is_behind = false;
        Ok(())
    }

    fn flush_aligned(&mut self, progress: &Progress) -> Result<(), Error> {
        if self.is_behind {
            self.align(progress)?;
        }
        self.sink.flush()
    }
}
