//! Mixtures of a shard's images (`--mixup`, `--cutmix`), between loading and the forward pass.

use std::any::{Any, TypeId};

use kolo_data::{Batch, Mixing, MixingKey, Mixtures};
use kolo_recipe::Recipe;

use crate::error::Error;

/// Refuses mixtures of batches that are no images.
pub(crate) fn check<B: 'static>(recipe: &Recipe) -> Result<(), Error> {
    let given = [("--mixup", recipe.mixup), ("--cutmix", recipe.cutmix)];
    let given = given.into_iter().find_map(|(option, alpha)| Some((option, alpha?)));
    match given.filter(|_| TypeId::of::<B>() != TypeId::of::<Batch>()) {
        Some((option, alpha)) => {
            let problem = "only batches of images (`kolo_data::Batch`) can be mixed; leave it out";
            Err(Error::setting(option, alpha, problem))
        }
        None => Ok(()),
    }
}

/// Mixes the batch of a shard if the recipe says so, and returns how. `place` is the epoch, and the step in
/// it, both from 0.
pub(crate) fn mix<B: 'static>(
    recipe: &Recipe,
    place: (usize, usize),
    shard: usize,
    batch: &mut B,
) -> Option<Mixing> {
    let Recipe { mixup, cutmix, seed, .. } = *recipe;
    let batch = (batch as &mut dyn Any).downcast_mut::<Batch>()?;
    Mixtures { mixup, cutmix }.mix(MixingKey { seed, epoch: place.0, step: place.1, shard }, batch)
}
