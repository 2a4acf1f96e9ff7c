//! Parts and limits of the table's models, which decide the settings and images that they accept.

use kolo_burn_train::{Classification, Metric};
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
    /// True for a language model; the others see images.
    pub reads_text: bool,
    /// Metrics that judge it during the run.
    pub metrics: &'static [Metric],
}

/// A residual network.
pub(super) const RESIDUAL: Traits = Traits { residual: true, batch_norm: true, ..PLAIN };

/// A model without normalizations.
pub(super) const PLAIN: Traits = Traits {
    residual: false,
    batch_norm: false,
    smallest_image: 1,
    reads_text: false,
    metrics: &Classification::METRICS,
};

/// A language model.
pub(super) const TEXT: Traits =
    Traits { reads_text: true, metrics: &[Metric::PERPLEXITY, Metric::LOSS, Metric::BITS_PER_BYTE], ..PLAIN };

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
        if recipe.activation_checkpointing && !self.reads_text {
            return refused("--activation-checkpointing", "transformer blocks");
        }
        let mixed = [("--mixup", recipe.mixup), ("--cutmix", recipe.cutmix)];
        if !recipe.augment && self.reads_text {
            return refused("--no-augment", "images to alter");
        }
        if let Some((option, _)) = mixed.into_iter().find(|(_, mixed)| mixed.is_some() && self.reads_text) {
            return refused(option, "images to mix");
        }
        if recipe.batch_norm != BatchNormalization::PerShard && !self.batch_norm {
            return refused("--batch-norm", "batch normalization");
        }
        Ok(())
    }

    /// Refuses texts for a model of images, images for a language model, and images that are too small.
    pub(super) fn check_samples(&self, model: &'static str, samples: SampleShape) -> Result<(), Error> {
        let (smallest, SampleShape { height, width, is_text, .. }) = (self.smallest_image, samples);
        match (self.reads_text, is_text) {
            (true, false) => Err(Error::NeedsText { model }),
            (false, true) => Err(Error::NeedsImages { model }),
            (false, false) if height.min(width) < smallest => {
                Err(Error::ImageTooSmall { model, smallest, height, width })
            }
            _ => Ok(()),
        }
    }
}
