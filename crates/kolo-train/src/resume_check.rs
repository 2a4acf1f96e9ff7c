//! Checks that a run can continue from its checkpoint with its present settings and data.

use std::collections::BTreeMap;
use std::path::Path;

use kolo_data::{DataSet, Part};
use kolo_ddp::Sampler;
use kolo_ddp::checkpoint::{Position, Reader};
use kolo_metrics::Calendar;
use kolo_recipe::{Recipe, RunFolder};

use crate::error::Error;
use crate::sampling::Sampling;

/// Key in a position's notes.
pub(crate) const STATE: &str = "state";

/// Settings that decide which state a checkpoint has, by their names in `config.toml`.
const DECIDING: [&str; 8] =
    [MODEL, "stem", "batch_norm", "optimizer.name", "ema", "reduction", "sync.mode", "sync.islands"];
const MODEL: &str = "model";

/// Returns the settings that decide which state a checkpoint has, as a note in it.
pub(crate) fn state_settings(config: &Recipe) -> Result<BTreeMap<String, String>, Error> {
    let all = config.stated()?;
    Ok(all.into_iter().filter(|(name, _)| DECIDING.contains(&name.as_str())).collect())
}

/// Returns the first of those settings that is not what the checkpoint was written with; `None`, too, for a
/// checkpoint of an older version without such notes.
fn changed(config: &Recipe, position: &Position) -> Result<Option<(&'static str, String, String)>, Error> {
    let noted = serde_json::from_value(position.notes[STATE].clone());
    let noted: BTreeMap<String, String> = noted.unwrap_or_default();
    let here = state_settings(config)?;
    let pair = |name: &'static str| Some((name, noted.get(name)?.clone(), here.get(name)?.clone()));
    Ok(DECIDING.into_iter().filter_map(pair).find(|(_, there, here)| there != here))
}

/// Names the changed setting to which an error of a checkpoint is due, if there is one.
pub(crate) fn explained(folder: &RunFolder, config: &Recipe, error: kolo_ddp::Error) -> Error {
    use kolo_ddp::Error::{Checkpoint, CheckpointUnreadable, Setting};
    let found = folder
        .newest_checkpoint()
        .ok()
        .filter(|_| matches!(error, Checkpoint(_) | CheckpointUnreadable { .. } | Setting(_)));
    let position = found.as_ref().and_then(|found| Reader::open(&found.path).ok()?.position().ok());
    let setting = position.and_then(|position| changed(config, &position).ok()?);
    match (found, setting) {
        (Some(found), Some((setting, there, here))) => {
            Error::OtherState { checkpoint: found.path, setting, there, here, problem: error.to_string() }
        }
        _ => error.into(),
    }
}

/// Checks, without the model, that the run in a folder can continue from its newest good checkpoint.
///
/// # Errors
///
/// There is no good checkpoint, the checkpoint is of another model or tokenizer or beyond the end of the
/// run, or, unless `accept_changed_data`, it has other samples.
pub fn check_resume<D: DataSet + ?Sized>(
    folder: &RunFolder,
    config: &Recipe,
    data: &D,
    accept_changed_data: bool,
) -> Result<(), Error> {
    let found = folder.newest_checkpoint()?;
    let position = Reader::open(&found.path)?.position()?;
    if let Some((setting @ MODEL, there, here)) = changed(config, &position)? {
        let problem = "its weights are those of another model".into();
        return Err(Error::OtherState { checkpoint: found.path, setting, there, here, problem });
    }
    data.tokenizer().map_or(Ok(()), |tokenizer| folder.check_tokenizer(&position, tokenizer))?;
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
