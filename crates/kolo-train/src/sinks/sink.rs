//! What a sink is, and the records that it takes.

use kolo_comm::Generation;
use kolo_ddp::StepReport;

use super::live::LiveMetrics;
use crate::config::Recipe;
use crate::error::Error;
use crate::meter::{EpochRow, Meter, StepRow};
use crate::metric::Metric;
use crate::progress::Progress;
use crate::run_folder::RunFolder;
use crate::summary::Summary;

/// One side of a run that is written down.
pub trait MetricSink {
    /// Takes a record.
    ///
    /// # Errors
    ///
    /// It cannot be written. It need not be handed over again, if the sink keeps it for the next try.
    fn record(&mut self, record: &Record<'_>) -> Result<(), Error>;

    /// Makes what is written agree with `progress`: drops what will be done again, and adds what is missing.
    /// Called before the first record, and whenever the run goes on from another step or under another rank
    /// 0. Until it succeeds the sink gets no records.
    ///
    /// # Errors
    ///
    /// What is written cannot be read or changed.
    fn align(&mut self, progress: &Progress) -> Result<(), Error> {
        let _ = progress;
        Ok(())
    }

    /// Writes what waits.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// What happens in a run.
#[derive(Clone, Copy, Debug)]
pub enum Record<'a> {
    /// Something that the user should know.
    Note(&'a str),
    /// The job goes on with other workers.
    Generation {
        /// Its number, and why it has begun.
        generation: &'a Generation,
        /// Its workers.
        world_size: usize,
    },
    /// A step is done.
    Step {
        /// Its figures.
        row: &'a StepRow,
        /// What the step itself has reported.
        report: &'a StepReport,
        /// The figures of its epoch so far.
        epoch: &'a Meter,
    },
    /// An epoch is over, or the run within one.
    Epoch(&'a EpochRow),
    /// The run is over, and everything else has been written or tried to.
    Summary(&'a Summary),
}

/// A sink that a run can have.
#[derive(Clone, Copy)]
pub struct SinkEntry {
    /// What it writes to: a file of the run folder, or what else it may be.
    pub name: &'static str,
    /// One line that says what is in it.
    pub about: &'static str,
    /// Opens it, on rank 0; `None` where the run has no folder and the sink needs one, or was not asked for.
    pub open: fn(&SinkContext<'_>) -> Option<Box<dyn MetricSink>>,
}

/// What a sink has to know of the run that it writes down.
#[derive(Clone, Copy, Debug)]
pub struct SinkContext<'a> {
    /// Where its files are, if it has a folder.
    pub folder: Option<&'a RunFolder>,
    /// What it is.
    pub config: &'a Recipe,
    /// What its model is judged by.
    pub metrics: &'a [Metric],
    /// What its loss counts, as `images`.
    pub unit: &'a str,
    /// How it can be watched while it goes on.
    pub live: &'a LiveMetrics,
}
