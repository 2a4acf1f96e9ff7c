//! Checks that a run can continue from its checkpoint with its present settings and data.

use std::collections::BTreeMap;
use std::path::Path;

use kolo_data::{DataSet, Part, Preprocessing};
use kolo_ddp::Sampler;
use kolo_ddp::checkpoint::{Position, Reader};
use kolo_metrics::Calendar;
use kolo_recipe::{OnResume, Recipe, RunFolder, SettingChange};

use crate::error::Error;
use crate::sampling::Sampling;

/// Key in a position's notes.
pub(crate) const RECIPE: &str = "recipe";

/// Settings that may shape the model or its state, or their sections.
const SHAPING: [&str; 5] = ["data", "input.", "groups", "optimizer.settings.", "own."];

/// Returns the settings that have changed since a checkpoint, those first for which the run is refused; none
/// for a checkpoint without such notes.
pub(crate) fn changed(config: &Recipe, position: &Position) -> Result<Vec<SettingChange>, Error> {
    let noted: Option<BTreeMap<String, String>> = serde_json::from_value(position.notes[RECIPE].clone()).ok();
    Ok(noted.map_or(Ok(Vec::new()), |noted| config.changes_since(&noted))?)
}

/// Names the changed setting to which an error of a checkpoint may be due, if there is one.
pub(crate) fn explained(folder: &RunFolder, config: &Recipe, error: kolo_ddp::Error) -> Error {
    use kolo_ddp::Error::{Checkpoint, CheckpointUnreadable, Setting};
    let found = folder
        .newest_checkpoint()
        .ok()
        .filter(|_| matches!(error, Checkpoint(_) | CheckpointUnreadable { .. } | Setting(_)));
    let position = found.as_ref().and_then(|found| Reader::open(&found.path).ok()?.position().ok());
    let may_explain = |change: &SettingChange| {
        change.on_resume == OnResume::Refused || SHAPING.iter().any(|name| change.setting.starts_with(name))
    };
    let change = position.and_then(|position| changed(config, &position).ok()?.into_iter().find(may_explain));
    match (found, change) {
        (Some(found), Some(change)) => other_state(&found.path, &change, error.to_string()),
        _ => error.into(),
    }
}

fn other_state(checkpoint: &Path, change: &SettingChange, problem: String) -> Error {
    let SettingChange { setting, before: there, after: here, .. } = change.clone();
    Error::OtherState { checkpoint: checkpoint.to_owned(), setting, there, here, problem }
}

/// Refuses a change of a setting whose consequences the checkpoint holds.
pub(crate) fn refuse(checkpoint: &Path, changes: &[SettingChange]) -> Result<(), Error> {
    match changes.iter().find(|change| change.on_resume == OnResume::Refused) {
        Some(change) => Err(other_state(checkpoint, change, change.why.into())),
        None => Ok(()),
    }
}

/// Describes a change for the user: what becomes of it after so many steps of a run, which `is_over` or not.
pub(crate) fn words(change: &SettingChange, step: u64, is_over: bool) -> String {
    let SettingChange { setting, before, after, on_resume, why } = change;
    match (is_over, on_resume) {
        (true, _) => format!("{setting} = {after} has no effect: the run is over, and had {before}"),
        (false, OnResume::Unused) => {
            format!(
                "{setting} = {after} has no effect where a run continues ({why}); before step {step} it was {before}"
            )
        }
        (false, _) => format!("{setting} = {after} from step {step} on, and {before} before"),
    }
}

/// Checks, without the model, that the run in a folder can continue from its newest good checkpoint.
///
/// # Errors
///
/// There is no good checkpoint, the checkpoint is of another model or tokenizer, or of other settings that it
/// depends on, or beyond the end of the run, or, unless `accept_changed_data`, it has other samples.
pub fn check_resume<D: DataSet + ?Sized>(
    folder: &RunFolder,
    config: &Recipe,
    data: &D,
    accept_changed_data: bool,
) -> Result<(), Error> {
    let found = folder.newest_checkpoint()?;
    let position = Reader::open(&found.path)?.position()?;
    check_meaning(folder, &config.data, data.preprocessing().as_ref())?;
    refuse(&found.path, &changed(config, &position)?)?;
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

/// Returns a sentence if the samples that judge trained weights have changed since their checkpoint.
pub fn changed_tests<D: DataSet + ?Sized>(position: &Position, data: &D) -> Option<String> {
    let (name, there, here) = Sampling::other_tests(position, data)?;
    Some(format!(
        "{name} has changed since these weights were saved: it was {there}, and is {here}; the scores are of the \
         samples of now"
    ))
}

/// Refuses data whose classes or columns are not those that the run has learned: its weights would get
/// another meaning, also where the samples may be others. A run without a description of its data is
/// accepted.
pub(crate) fn check_meaning(
    folder: &RunFolder,
    data: &str,
    here: Option<&Preprocessing>,
) -> Result<(), Error> {
    let kept = kolo_durable::read(&folder.preprocessing()).ok();
    let there = kept.and_then(|text| serde_json::from_slice::<Preprocessing>(&text).ok());
    let Some((there, here)) = there.as_ref().zip(here) else { return Ok(()) };
    let columns = |of: &Preprocessing| -> Vec<String> {
        of.table.iter().flat_map(|table| &table.numbers).map(|column| column.name.clone()).collect()
    };
    let lists = [
        ("classes", there.label_names.clone(), here.label_names.clone()),
        ("columns", columns(there), columns(here)),
    ];
    match lists.into_iter().find(|(_, there, here)| there != here) {
        None => Ok(()),
        Some((what, there, here)) => Err(Error::Recipe(kolo_recipe::Error::setting(
            "--data",
            data,
            format!(
                "its {what} are {}, and this run has learned {}; restore the data, or begin a new run with --init",
                here.join(", "),
                there.join(", ")
            ),
        ))),
    }
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
