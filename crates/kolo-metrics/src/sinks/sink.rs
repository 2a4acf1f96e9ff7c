//! The sink trait, and the records that sinks take.

use kolo_comm::Generation;
use kolo_ddp::StepReport;
use kolo_recipe::Recipe;
use kolo_recipe::RunFolder;
use kolo_run_folder::ChangeRow;

use super::live::LiveMetrics;
use crate::meter::{EpochRow, Meter, StepRow};
use crate::metric::Metric;
use crate::progress::Progress;
use crate::summary::Summary;
use kolo_recipe::Error;

/// One file or view of a run.
///
/// ```
/// use kolo_metrics::{MetricSink, Record, SinkEntry};
/// use kolo_recipe::Error;
///
/// /// Prints the loss of each step.
/// struct Losses;
///
/// impl MetricSink for Losses {
///     fn record(&mut self, record: &Record<'_>) -> Result<(), Error> {
///         if let Record::Step { row, .. } = record {
///             println!("{} {}", row.step, row.loss);
///         }
///         Ok(())
///     }
/// }
///
/// // For `Trainer::sink`.
/// let entry = SinkEntry { name: "losses", about: "the loss of each step", open: |_| Some(Box::new(Losses)) };
/// # assert_eq!(entry.name, "losses");
/// ```
pub trait MetricSink {
    /// Takes a record.
    ///
    /// # Errors
    ///
    /// The write failed. The caller need not pass a record again that the sink keeps for the next try.
    fn record(&mut self, record: &Record<'_>) -> Result<(), Error>;

    /// Makes the written records agree with `progress`: drops steps that will be repeated, and adds missing
    /// ones. The writer calls this before the first record, and whenever the run continues from another step
    /// or under another rank 0. Until it succeeds the sink gets no records.
    ///
    /// # Errors
    ///
    /// The written records cannot be read or changed.
    fn align(&mut self, progress: &Progress) -> Result<(), Error> {
        let _ = progress;
        Ok(())
    }

    /// Writes the waiting records.
    ///
    /// # Errors
    ///
    /// They cannot be written.
    fn flush(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// An event of a run.
#[derive(Clone, Copy, Debug)]
pub enum Record<'a> {
    /// A message for the user.
    Note(&'a str),
    /// The run continues from a checkpoint, before the first step of its new part.
    Continued {
        /// Steps done at the checkpoint.
        step: u64,
        /// Settings that have changed since.
        changes: &'a [ChangeRow],
    },
    /// The job continues with other workers.
    Generation {
        /// The generation's number, and the reason for it.
        generation: &'a Generation,
        /// Number of its workers.
        world_size: usize,
    },
    /// A step is done.
    Step {
        /// Figures of the step.
        row: &'a StepRow,
        /// Report of the step itself.
        report: &'a StepReport,
        /// Figures of its epoch so far.
        epoch: &'a Meter,
    },
    /// An epoch is over, or the run within one.
    Epoch(&'a EpochRow),
    /// The run is over, and everything else has been written or tried.
    Summary(&'a Summary),
}

/// A kind of sink.
#[derive(Clone, Copy, Debug)]
pub struct SinkEntry {
    /// File of the run folder, or name of another output.
    pub name: &'static str,
    /// One line about its contents.
    pub about: &'static str,
    /// Opens the sink, on rank 0; `None` if it is not enabled, or needs a folder that the run lacks.
    pub open: fn(&SinkContext<'_>) -> Option<Box<dyn MetricSink>>,
}

/// Facts about a run for its sinks.
#[derive(Clone, Copy, Debug)]
pub struct SinkContext<'a> {
    /// Run folder, if the run has one.
    pub folder: Option<&'a RunFolder>,
    /// Recipe of the run.
    pub config: &'a Recipe,
    /// Metrics of its model.
    pub metrics: &'a [Metric],
    /// Unit that its loss counts, such as `images`.
    pub unit: &'a str,
    /// Live views of the run.
    pub live: &'a LiveMetrics,
}
