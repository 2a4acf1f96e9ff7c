//! The writer of rank 0, which records the run.

use std::time::Instant;

use kolo_claim::{Candidate, Refusal};
use kolo_ddp::Ddp;
use kolo_ddp::binding::Binding;
use kolo_metrics::{Error as RecordError, MetricSink, Progress, Record, SinkContext, SinkEntry, Summary};
use kolo_recipe::Error::NotTheWriter;
use kolo_recipe::RunFolder;
use kolo_trace::What;

use crate::checkpoints::Checkpoints;
use crate::due::{Demand, Due};
use crate::error::Error;
use crate::patience::{PATIENCE, patiently};
use crate::sampling::Sampling;
use crate::warn::Warnings;

/// Steps between two tries to align sinks that are behind.
const EVERY: u64 = 50;

/// Rank 0's sinks and checkpoints.
pub(crate) struct RunWriter {
    folder: Option<RunFolder>,
    sinks: Vec<Opened>,
    /// `None` for a run without a folder.
    pub(crate) checkpoints: Option<Checkpoints>,
    /// Warnings about delayed writes that the user has received.
    warnings: Warnings,
    /// Refusal of further writes: another process writes the folder.
    refusal: Option<Box<Refusal>>,
}

struct Opened {
    sink: Box<dyn MetricSink>,
    /// True if the sink may hold steps that will be repeated, or lack some that a dead rank 0 did not write.
    /// Until it is aligned it gets no records; the progress has all of them.
    is_behind: bool,
    /// True after a failed write, of which the user was warned.
    is_stuck: bool,
}

struct Written {
    result: Result<(), RecordError>,
    /// True if the user was warned already.
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

    pub(crate) fn renew(&self, candidate: Candidate) -> Result<(), Error> {
        let claim = self.folder.as_ref().and_then(RunFolder::run_claim);
        Ok(claim.map_or(Ok(()), |claim| claim.renew(candidate))?)
    }

    /// Waits for writes in progress and releases the folder to another rank of the job.
    pub(crate) fn hand_on(self) {
        let RunWriter { folder, sinks, checkpoints, .. } = self;
        drop((sinks, checkpoints));
        if let Some(claim) = folder.as_ref().and_then(RunFolder::run_claim) {
            claim.hand_on();
        }
    }

    /// Checks that no write so far was refused.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.refusal.clone().map_or(Ok(()), |refusal| Err(NotTheWriter(refusal).into()))
    }

    /// Warns about a failed write, once until a write succeeds, and records a refusal by another process's
    /// claim.
    fn note(&mut self, Written { result, is_told }: Written) {
        match result {
            Ok(()) => {}
            Err(NotTheWriter(refusal)) => self.refusal = Some(refusal),
            Err(error) => {
                let words = format!("{error}; training continues and tries again later");
                if is_told { self.warnings.keep(words) } else { self.warnings.tell(words) }
            }
        }
    }

    /// Prepares for the first step; a folder that cannot be written to ends the run here.
    pub(crate) fn begin(&mut self, progress: &Progress) -> Result<(), Error> {
        self.sinks.iter_mut().try_for_each(|opened| opened.align(progress))?;
        self.checkpoints.as_mut().map_or(Ok(()), |checkpoints| checkpoints.open(progress.step()))
    }

    /// Continues at the progress after other workers may have written. Failures give warnings and are tried
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

    /// Passes a record, the last of `progress`, to all sinks.
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

    /// Writes pending lines. Failed writes are tried again later.
    pub(crate) fn flush(&mut self, progress: &Progress) {
        self.align(progress);
        let ready = self.sinks.iter_mut().filter(|opened| !opened.is_behind);
        let flushed: Vec<_> = ready.map(|opened| opened.note(|opened| opened.sink.flush())).collect();
        flushed.into_iter().for_each(|flushed| self.note(flushed));
    }

    /// Takes the warnings that the user has received about failed writes.
    pub(crate) fn take_warnings(&mut self) -> Warnings {
        if let Some(checkpoints) = &mut self.checkpoints {
            self.warnings.append(checkpoints.take_warnings());
        }
        std::mem::take(&mut self.warnings)
    }

    /// Saves the checkpoints that are due.
    pub(crate) fn save<B: Binding>(
        &mut self,
        ddp: &Ddp<B>,
        progress: &Progress,
        due: &Due,
    ) -> Result<(), Error> {
        let Some(checkpoints) = &mut self.checkpoints else { return Ok(()) };
        kolo_trace::spanned(What::Checkpoint, || checkpoints.take(ddp, progress, due))
    }

    /// Ends the run early: writes all pending lines, and a checkpoint to continue from.
    pub(crate) fn end_early<B: Binding>(mut self, ddp: &Ddp<B>, progress: &Progress) -> Result<(), Error> {
        let _saving = kolo_elastic::saving();
        self.flush(progress);
        self.check()?;
        let Some(mut checkpoints) = self.checkpoints else { return Err(Error::NoFolder) };
        let until = Instant::now() + PATIENCE;
        // Where ranks hold parts of the state, they have saved it together.
        if !ddp.with_replica(|replica| replica.divides_state()) {
            checkpoints.take(ddp, progress, &Due::last(progress, Demand::Routine))?;
        }
        let kept = checkpoints.finish(until);
        // Lines without space before the checkpoint. The checkpoint comes first, since it holds the work.
        for opened in &mut self.sinks {
            if let Err(error) = patiently(until, || opened.flush_aligned(progress)) {
                kolo_ddp::checkpoint::tell(&format_args!("{error}; the lines that waited are lost"));
            }
        }
        kept
    }

    /// Ends the run. Failed writes are tried again for a while, and all possible ones are made before the
    /// first failure is returned.
    pub(crate) fn end(self, summary: &Summary, progress: &Progress) -> Result<(), Error> {
        let _saving = kolo_elastic::saving();
        let (RunWriter { mut sinks, checkpoints, .. }, until) = (self, Instant::now() + PATIENCE);
        let flush = |opened: &mut Opened| patiently(until, || opened.flush_aligned(progress));
        let flushed = sinks.iter_mut().map(flush).collect::<Vec<_>>();
        let checkpoint = checkpoints.map_or(Ok(()), |checkpoints| checkpoints.finish(until));
        // The summary comes last: it certifies that no step is missing.
        flushed.into_iter().collect::<Result<(), Error>>()?;
        let record = Record::Summary(summary);
        let end = |opened: &mut Opened| patiently(until, || opened.sink.record(&record));
        let ended = sinks.iter_mut().map(end).collect::<Vec<_>>();
        ended.into_iter().collect::<Result<(), Error>>()?;
        checkpoint
    }
}

impl Opened {
    fn note(&mut self, write: impl FnOnce(&mut Opened) -> Result<(), RecordError>) -> Written {
        let result = write(self);
        let is_told = std::mem::replace(&mut self.is_stuck, result.is_err());
        Written { result, is_told }
    }

    /// Passes a record to the sink. Success does not prove a write, because the record may be pending.
    fn recorded(&mut self, record: &Record<'_>) -> Written {
        let result = self.sink.record(record);
        let is_told = self.is_stuck;
        self.is_stuck |= result.is_err();
        Written { result, is_told }
    }

    fn align(&mut self, progress: &Progress) -> Result<(), RecordError> {
        self.sink.align(progress)?;
        self.is_behind = false;
        Ok(())
    }

    fn flush_aligned(&mut self, progress: &Progress) -> Result<(), RecordError> {
        if self.is_behind {
            self.align(progress)?;
        }
        self.sink.flush()
    }
}
