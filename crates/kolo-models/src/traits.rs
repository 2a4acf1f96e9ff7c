//! Parts and limits of the table's models, which decide the settings and images that they accept.

use kolo_data::SampleShape;
use kolo_recipe::{BatchNormalization, Recipe};

use crate::error::Error;
use crate::vgg::VggConfig;

/// Parts and limits of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// True for a stem, and residual blocks that end in a batch normalization.
    pub residual: bool,
    /// True for batch normalization.
    pub batch_norm: bool,
    /// Fewest rows and columns of an image.
    pub smallest_image: usize,
}

/// A residual network.
pub(super) const RESIDUAL: Traits = Traits { residual: true, batch_norm: true, smallest_image: 1 };

/// A model without normalizations.
pub(super) const PLAIN: Traits = Traits { residual: false, batch_norm: false, smallest_image: 1 };

/// A model without normalizations that halves the image several times.
pub(super) const VGG: Traits = Traits { smallest_image: VggConfig::SMALLEST_IMAGE, ..PLAIN };

impl Traits {
    /// Refuses a recipe with options for parts that the model lacks.
    pub(super) fn check(&self, model: &'static str, recipe: &Recipe) -> Result<(), Error> {
        let refused = |option, lacks| Err(Error::NotInModel { option, model, lacks });
        if recipe.stem.is_some() && !self.residual {
            return refused("--stem", "a stem");
        }
        if recipe.large_batch.zero_gamma && !self.residual {
            return refused("--zero-gamma", "residual blocks that end in a batch normalization");
        }
        if recipe.batch_norm != BatchNormalization::PerShard && !self.batch_norm {
            return refused("--batch-norm", "batch normalization");
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
