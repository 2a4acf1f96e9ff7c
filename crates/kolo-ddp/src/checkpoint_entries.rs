//! Entries of a checkpoint for what a job keeps besides its arrays.

use kolo_checkpoint::{Outline, Reader};
use serde::{Deserialize, Serialize};

use crate::replica::Replica;
use kolo_reduction::Error;
use kolo_step::{LossScale, LossScaler, NoiseScale};
use kolo_sync::{JobNotes, Notes};

/// Name of a checkpoint's entry for the state of loss scaling.
const LOSS_SCALE: &str = "loss_scale";

/// Name of a checkpoint's entry for the state of the gradient's transforms.
const TRANSFORMS: &str = "transforms";

/// Name of a checkpoint's entry for the islands' loss scaling.
const ISLAND_LOSS_SCALES: &str = "island_loss_scales";

/// Name of a checkpoint's entry for the number of steps that the servers' optimizers have made.
const UPDATES: &str = "updates_of_servers";

/// Name of a checkpoint's entry for the expected uses of tensors where a gradient was in flight.
const LATE_USES: &str = "late_uses";

/// State of loss scaling in a job with islands.
#[derive(Default, Serialize, Deserialize)]
struct IslandScales {
    /// Number of skipped steps, counted for each island.
    skipped_steps: u64,
    islands: Vec<LossScale>,
}

/// Adds a job's notes to a checkpoint, each as far as the job has it.
pub(crate) fn with_notes(outline: Outline, notes: JobNotes, replica: &Replica) -> Result<Outline, Error> {
    let JobNotes {
        core: Notes { uses, noise_scale, loss_scale, transforms },
        islands,
        skipped_steps,
        updates,
        late_uses,
    } = notes;
    let of_islands = islands.iter().flat_map(|notes| &notes.uses).copied().collect();
    let uses = if islands.is_empty() { uses } else { of_islands };
    let scaled = replica.core.scaler.is_on() || loss_scale.skipped_steps > 0;
    let island_scales: Vec<LossScale> = islands.iter().map(|notes| notes.loss_scale).collect();
    let islands_scaled =
        skipped_steps > 0 || island_scales.iter().any(|scale| *scale != LossScaler::new(None).now());
    let words = |state: &Vec<f64>| state.iter().map(f64::to_string).collect::<Vec<_>>();
    let has_transforms = transforms.iter().any(|state| !state.is_empty());
    let transforms = has_transforms.then(|| transforms.iter().map(words).collect::<Vec<_>>());
    let outline = outline.with_uses(uses);
    let outline =
        outline.with_noise_scale(replica.core.observers.noise.is_on().then(|| noise_scale.to_text()));
    let outline = with_entry(outline, LOSS_SCALE, scaled.then_some(loss_scale))?;
    let outline = with_entry(outline, TRANSFORMS, transforms)?;
    let island_scales = islands_scaled.then_some(IslandScales { skipped_steps, islands: island_scales });
    let outline = with_entry(outline, ISLAND_LOSS_SCALES, island_scales)?;
    let outline = with_entry(outline, UPDATES, updates)?;
    with_entry(outline, LATE_USES, late_uses)
}

/// Adds an entry of that name, if it has a value.
fn with_entry<T: Serialize>(
    outline: Outline,
    name: &'static str,
    value: Option<T>,
) -> Result<Outline, Error> {
    let Some(value) = value else { return Ok(outline) };
    let value = serde_json::to_value(value).map_err(|e| Error::Setting(format!("{name}: {e}")))?;
    Ok(outline.with_entry(name, value))
}

/// Reads a job's notes; what the checkpoint does not have is as in a job that begins.
pub(crate) fn read_notes(reader: &Reader, replica: &Replica) -> Result<JobNotes, Error> {
    let (mut core, mut islands) = (replica.core.first_notes(), replica.mode.first_notes(&replica.core));
    let spans = core.uses.len();
    let uses: Option<Vec<u32>> = reader.uses()?.filter(|uses| uses.len() == spans * islands.len().max(1));
    let IslandScales { skipped_steps, islands: scales } =
        reader.entry(ISLAND_LOSS_SCALES)?.unwrap_or_default();
    if let Some(uses) = uses {
        match islands.is_empty() {
            true => core.uses = uses,
            false => islands
                .iter_mut()
                .zip(uses.chunks(spans.max(1)))
                .for_each(|(notes, uses)| notes.uses = uses.to_vec()),
        }
    }
    islands.iter_mut().zip(scales).for_each(|(notes, scale)| notes.loss_scale = scale);
    let saved: Vec<Vec<String>> = reader.entry(TRANSFORMS)?.unwrap_or_default();
    let number = |word: &String| word.parse::<f64>().map_err(|_| word.clone());
    let states: Result<Vec<Vec<f64>>, _> =
        saved.iter().map(|words| words.iter().map(number).collect()).collect();
    core.transforms = states.map_err(|word| {
        Error::Setting(format!("the checkpoint has `{word}` in place of a gradient transform's number"))
    })?;
    core.loss_scale = reader.entry(LOSS_SCALE)?.unwrap_or(core.loss_scale);
    core.noise_scale = reader.noise_scale()?.as_deref().and_then(NoiseScale::from_text).unwrap_or_default();
    let (updates, late_uses) = (reader.entry(UPDATES)?, reader.entry(LATE_USES)?);
    let late_uses = late_uses.filter(|uses: &Vec<u32>| uses.len() == spans);
    Ok(JobNotes { core, islands, skipped_steps, updates, late_uses })
}
