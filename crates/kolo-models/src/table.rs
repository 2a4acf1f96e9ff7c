//! The models that Kolo knows by name. The command line, its help and the error messages read the table.

use std::sync::Arc;

use burn::tensor::Device;
use kolo_burn::{Ddp, Precision, check_precision};
use kolo_burn_train::{Job, Membership, Summary, Trainer};
use kolo_comm::Group;
use kolo_data::{ImageDataSet, SampleShape};
use kolo_ddp::optimizer::Optimizer;
use kolo_recipe::Recipe;
use kolo_weights::WeightsFile;

use crate::error::Error;
use crate::image_model::{Blueprint, ImageModel};
use crate::inference::{Classifier, ModelClassifier};
use crate::size::{Counted, ModelSize, size_for_images};
use crate::stepper::{DdpStepper, Stepper};
use crate::traits::{PLAIN, RESIDUAL, Traits, VGG};
use crate::{gpt2, mlp, resnets, vgg};

/// All models.
pub static MODELS: &[&dyn NamedModel] = &[
    &Entry {
        name: "small",
        about: "a residual network of 77 thousand parameters, for small images",
        traits: RESIDUAL,
        build: resnets::small,
    },
    &Entry {
        name: "resnet18",
        about: "torchvision's ResNet-18, 11.7 million parameters",
        traits: RESIDUAL,
        build: resnets::resnet18,
    },
    &Entry {
        name: "resnet34",
        about: "torchvision's ResNet-34, 21.8 million parameters",
        traits: RESIDUAL,
        build: resnets::resnet34,
    },
    &Entry {
        name: "resnet50",
        about: "torchvision's ResNet-50, 25.6 million parameters",
        traits: RESIDUAL,
        build: resnets::resnet50,
    },
    &Entry {
        name: "vgg16",
        about: "torchvision's VGG-16 without batch normalization, 138.4 million parameters, for 32×32 pixels or more",
        traits: VGG,
        build: vgg::vgg16,
    },
    &Entry {
        name: "mlp",
        about: "LeNet-300-100, a perceptron with two hidden layers, 267 thousand parameters on 28×28 pixels",
        traits: PLAIN,
        build: mlp::mlp,
    },
    &gpt2::SIZES[0],
    &gpt2::SIZES[1],
    &gpt2::SIZES[2],
    &gpt2::SIZES[3],
    &gpt2::SIZES[4],
];

/// A model of the table, of any type.
pub trait NamedModel: Counted + Sync {
    /// Name on the command line.
    fn name(&self) -> &'static str;

    /// One line for the help text.
    fn about(&self) -> &'static str;

    /// Parts and limits of the model.
    fn traits(&self) -> Traits;

    /// Returns the recipe of `kolo train` with this model and no other option.
    fn usual(&self) -> Recipe;

    /// Refuses a recipe with options for parts that the model lacks, and samples that it cannot see.
    ///
    /// # Errors
    ///
    /// The option, or the kind or size of the samples.
    fn check(&self, recipe: &Recipe, samples: SampleShape) -> Result<(), Error>;

    /// Trains the model on samples of its kind: see [`Trainer::train`].
    ///
    /// # Errors
    ///
    /// As [`NamedModel::check`] and [`Trainer::train`].
    fn train(
        &self,
        job: Job,
        data: Arc<dyn ImageDataSet>,
        membership: Membership,
    ) -> Result<Option<Summary>, Error>;

    /// Makes the model with trained weights, which computes in `precision`.
    ///
    /// # Errors
    ///
    /// The images are too small, the weights are of another model, or it is a language model.
    fn classifier(
        &self,
        blueprint: &Blueprint<'_>,
        weights: WeightsFile,
        precision: Precision,
    ) -> Result<Box<dyn Classifier>, Error>;

    /// Makes a replica of the model for single steps, as in benchmarks.
    ///
    /// # Errors
    ///
    /// The images are too small, or a collective failed (the error names the rank).
    fn stepper(
        &self,
        group: Group,
        blueprint: &Blueprint<'_>,
        config: &kolo_ddp::Config,
        optimizer: Box<dyn Optimizer>,
    ) -> Result<Box<dyn Stepper>, Error>;
}

/// A line of [`MODELS`].
pub struct Entry<M> {
    /// Name on the command line.
    pub name: &'static str,
    /// One line for the help text.
    pub about: &'static str,
    /// Parts and limits of the model.
    pub traits: Traits,
    /// Builds the model; every rank must get the same values.
    pub build: fn(&Blueprint<'_>) -> M,
}

kolo_comm::opaque_debug!([M] Entry<M> { name, about });

impl<M: ImageModel> Counted for Entry<M> {
    fn size(&self, vocabulary: Option<usize>) -> Result<ModelSize, Error> {
        size_for_images(self.name, self.build, vocabulary)
    }
}

impl<M: ImageModel + 'static> NamedModel for Entry<M> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn traits(&self) -> Traits {
        self.traits
    }

    fn usual(&self) -> Recipe {
        Recipe { model: self.name.into(), data: "fashion-mnist-small".into(), ..Recipe::default() }
    }

    fn check(&self, recipe: &Recipe, samples: SampleShape) -> Result<(), Error> {
        self.traits.check(self.name, recipe)?;
        let SampleShape { height, width, .. } = samples;
        if recipe.cutmix.is_some() && height.min(width) < 2 {
            return Err(Error::NothingToCut { height, width });
        }
        self.traits.check_samples(self.name, samples)
    }

    fn train(
        &self,
        job: Job,
        data: Arc<dyn ImageDataSet>,
        membership: Membership,
    ) -> Result<Option<Summary>, Error> {
        let (config, device) = (&job.config, Device::flex().autodiff());
        config.check()?;
        self.check(config, data.shape())?;
        let model = (self.build)(&Blueprint::of(config, data.shape(), &device));
        let job = Job { keeps_model: false, ..job };
        let unit = format!("{}s", data.preprocessing().map_or("image", |how| how.noun()));
        let trainer =
            Trainer::of(job, data, M::loss).counting(unit).tally(self.traits.metrics, M::classification);
        Ok(trainer.train_as(membership, model)?.summary)
    }

    fn classifier(
        &self,
        blueprint: &Blueprint<'_>,
        weights: WeightsFile,
        precision: Precision,
    ) -> Result<Box<dyn Classifier>, Error> {
        self.traits.check_samples(self.name, blueprint.samples)?;
        let device = Device::flex();
        check_precision(precision, &device)
            .map_err(|error| kolo_burn_train::Error::Precision(error.into()))?;
        let model = weights.into_module((self.build)(blueprint))?.valid();
        Ok(Box::new(ModelClassifier { model, device, precision }))
    }

    fn stepper(
        &self,
        group: Group,
        blueprint: &Blueprint<'_>,
        config: &kolo_ddp::Config,
        optimizer: Box<dyn Optimizer>,
    ) -> Result<Box<dyn Stepper>, Error> {
        self.traits.check_samples(self.name, blueprint.samples)?;
        let model = (self.build)(blueprint);
        let ddp = Ddp::new(group, model, config, optimizer).map_err(kolo_burn_train::Error::from)?;
        Ok(Box::new(DdpStepper { ddp, device: blueprint.device.clone(), loss: M::loss }))
    }
}

/// Returns the model `name`.
///
/// # Errors
///
/// No model has that name; lists the known ones.
pub fn find(name: &str) -> Result<&'static dyn NamedModel, kolo_recipe::Error> {
    let known = || MODELS.iter().map(|model| model.name());
    let found = MODELS.iter().find(|model| model.name() == name);
    found.copied().ok_or_else(|| kolo_recipe::Error::unknown("model", name, known()))
}

/// Returns true if a recipe without activation checkpointing could have it.
pub fn could_recompute(recipe: &Recipe) -> bool {
    !recipe.activation_checkpointing && find(&recipe.model).is_ok_and(|model| model.traits().reads_text)
}

#[cfg(test)]
mod tests {
    use kolo_weights::TORCHVISION_MODELS;

    use super::*;

    #[test]
    fn the_table_says_which_models_are_torchvisions() {
        let of_torchvision = MODELS.iter().filter(|model| model.about().starts_with("torchvision's"));
        assert!(of_torchvision.map(|model| model.name()).eq(TORCHVISION_MODELS));
    }

    #[test]
    fn names_are_found_and_unique() {
        for model in MODELS {
            assert_eq!(find(model.name()).ok().unwrap().name(), model.name());
            let same = MODELS.iter().filter(|other| other.name() == model.name());
            assert_eq!(same.count(), 1, "{}", model.name());
        }
    }

    #[test]
    fn an_unknown_name_is_told_with_the_known_ones() {
        let error = find("resnet19").err().unwrap().to_string();
        assert_eq!(
            error,
            "unknown model `resnet19`; known are small, resnet18, resnet34, resnet50, vgg16, mlp, gpt2:tiny, \
             gpt2:small, gpt2:medium, gpt2:large, gpt2:xl"
        );
    }
}
