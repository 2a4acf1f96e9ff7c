//! What a model of the table has, and so which settings it takes and which images.

use kolo_data::SampleShape;

use super::vgg::VggConfig;
use crate::config::{BatchNormalisation, Recipe};
use crate::error::Error;

/// What a model has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// A stem, and residual blocks that end in a batch normalisation.
    pub residual: bool,
    /// Batch normalisation.
    pub batch_norm: bool,
    /// The fewest rows and columns that an image may have.
    pub smallest_image: usize,
}

/// A residual network.
pub(super) const RESIDUAL: Traits = Traits { residual: true, batch_norm: true, smallest_image: 1 };

/// No normalisations.
pub(super) const PLAIN: Traits = Traits { residual: false, batch_norm: false, smallest_image: 1 };

/// No normalisations, and one pool after another.
pub(super) const VGG: Traits = Traits { smallest_image: VggConfig::SMALLEST_IMAGE, ..PLAIN };

impl Traits {
    /// Refuses a recipe that asks for what the model does not have.
    pub(super) fn check(&self, model: &'static str, recipe: &Recipe) -> Result<(), Error> {
        let refused = |option, lacks| Err(Error::NotInModel { option, model, lacks });
        if recipe.stem.is_some() && !self.residual {
            return refused("--stem", "a stem");
        }
        if recipe.large_batch.zero_gamma && !self.residual {
            return refused("--zero-gamma", "residual blocks that end in a batch normalisation");
        }
        if recipe.batch_norm != BatchNormalisation::PerShard && !self.batch_norm {
            return refused("--batch-norm", "batch normalisation");
        }
        Ok(())
    }

    /// Refuses images that are too small.
    pub(super) fn check_samples(&self, model: &'static str, samples: SampleShape) -> Result<(), Error> {
        let (smallest, SampleShape { height, width, .. }) = (self.smallest_image, samples);
        match height.min(width) < smallest {
            true => Err(Error::ImageTooSmall { model, smallest, height, width }),
            false => Ok(()),
        }
    }
}
