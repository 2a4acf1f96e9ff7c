//! Checks that a run can continue from its checkpoint with its present settings and data.

use std::path::Path;

use kolo_data::{DataSet, Part};
use kolo_ddp::Sampler;
use kolo_ddp::checkpoint::{Position, Reader};
use kolo_recipe::{Recipe, RunFolder};

use crate::calendar::Calendar;
use crate::error::Error;
use crate::sampling::Sampling;

/// Checks, without the model, that the run in a folder can continue from its newest good checkpoint.
///
/// # Errors
///
/// There is no good checkpoint, the checkpoint is beyond the end of the run, or, unless
/// `accept_changed_data`, it has other samples.
pub fn check_resume<D: DataSet + ?Sized>(
    folder: &RunFolder,
    config: &Recipe,
    data: &D,
    accept_changed_data: bool,
) -> Result<(), Error> {
    let found = folder.newest_checkpoint()?;
    let position = Reader::open(&found.path)?.position()?;
    let growth = &config.large_batch.grow_batch;
    let samples = data.samples(Part::Train);
    let sampler = Sampler::growing(samples, config.batch_size, growth, config.shards, config.seed);
    let calendar = Calendar::new(config, &sampler.map_err(|error| Error::Refused(error.into()))?);
    let expected = calendar.position(position.step);
    match Sampling::of(config, data).check(&found.path, &position, &expected) {
        Err(Error::OtherSamples { .. }) if accept_changed_data => {}
        checked => checked?,
    }
    check_end(config, &calendar, &found.path, &position)
}

/// Refuses a checkpoint after more steps than the run has: its weights are not those of the run's end.
pub(crate) fn check_end(
    config: &Recipe,
    calendar: &Calendar,
    checkpoint: &Path,
    position: &Position,
) -> Result<(), Error> {
    let (step, total) = (position.step, calendar.total);
    if step <= total {
        return Ok(());
    }
    let setting = match config.steps {
        Some(steps) if steps == total => format!("steps = {steps}"),
        _ => format!("epochs = {}", config.epochs),
    };
    Err(Error::BeyondEnd { checkpoint: checkpoint.to_owned(), step, total, setting })
}
