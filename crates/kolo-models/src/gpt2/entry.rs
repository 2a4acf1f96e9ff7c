//! Lines of the table of models.

use std::sync::Arc;

use burn::tensor::Device;
use kolo_burn::{Ddp, Precision};
use kolo_burn_train::{Job, Membership, Summary, Trainer};
use kolo_comm::Group;
use kolo_data::{ImageDataSet, SampleShape};
use kolo_ddp::Selector;
use kolo_ddp::optimizer::Optimizer;
use kolo_ddp::table::Choice;
use kolo_recipe::{OptimizerChoice, RateConfig, Recipe, TransformChoices};
use kolo_weights::WeightsFile;

use super::model::{Gpt2, Gpt2Config, lengths};
use crate::error::Error;
use crate::image_model::Blueprint;
use crate::inference::Classifier;
use crate::size::{Counted, ModelSize};
use crate::stepper::{DdpStepper, Stepper};
use crate::table::NamedModel;
use crate::traits::{TEXT, Traits};

/// A GPT-2 of the table.
pub(crate) struct Gpt2Entry {
    /// Name on the command line.
    pub name: &'static str,
    /// One line for the help text.
    pub about: &'static str,
    /// Number of blocks.
    pub layers: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Most tokens that the model sees at once.
    pub positions: usize,
    /// Usual learning rate.
    pub rate: f64,
}

/// The smallest, for trials, and those that are published.
pub(crate) static SIZES: [Gpt2Entry; 5] = [
    Gpt2Entry {
        name: "gpt2:tiny",
        about: "a language model of 0.9 million parameters, with the layers of GPT-2, for at most 256 tokens",
        layers: 4,
        width: 128,
        positions: 256,
        rate: 2e-3,
    },
    Gpt2Entry {
        name: "gpt2:small",
        about: "GPT-2: 86 million parameters with bytes as tokens; for at most 1024 tokens",
        layers: 12,
        width: 768,
        positions: 1024,
        rate: 6e-4,
    },
    Gpt2Entry {
        name: "gpt2:medium",
        about: "the same with 24 layers, 304 million parameters",
        layers: 24,
        width: 1024,
        positions: 1024,
        rate: 3e-4,
    },
    Gpt2Entry {
        name: "gpt2:large",
        about: "the same with 36 layers, 710 million parameters",
        layers: 36,
        width: 1280,
        positions: 1024,
        rate: 2.5e-4,
    },
    Gpt2Entry {
        name: "gpt2:xl",
        about: "the same with 48 layers, 1.5 billion parameters",
        layers: 48,
        width: 1600,
        positions: 1024,
        rate: 2e-4,
    },
];

impl Counted for Gpt2Entry {
    fn size(&self, vocabulary: Option<usize>) -> Result<ModelSize, Error> {
        let vocabulary = vocabulary.unwrap_or(kolo_data::BYTE_VOCABULARY);
        let rows = [vocabulary, self.positions, 4 * self.width];
        let largest = rows.map(|rows| rows * self.width).into_iter().max().unwrap_or(0);
        Ok(ModelSize { all: self.parameters(vocabulary), largest })
    }
}

impl Gpt2Entry {
    /// Returns the number of parameters: of blocks, of the vectors of tokens and positions, and of the last
    /// normalization.
    fn parameters(&self, vocabulary: usize) -> usize {
        let width = self.width;
        self.layers * (12 * width + 13) * width + (self.positions + vocabulary + 2) * width
    }

    pub(super) fn build(&self, blueprint: &Blueprint<'_>) -> Gpt2 {
        let Blueprint { samples, dropout, activation_checkpointing, .. } = *blueprint;
        let (layers, width, positions) = (self.layers, self.width, self.positions);
        let vocabulary = samples.classes;
        let config = Gpt2Config { layers, width, positions, vocabulary, dropout, activation_checkpointing };
        config.init(blueprint.seed, blueprint.device)
    }

    fn check_samples(&self, samples: SampleShape) -> Result<(), Error> {
        TEXT.check_samples(self.name, samples)?;
        let context = samples.width - 1;
        match context > self.positions {
            true => Err(Error::ContextTooLong { model: self.name, context, positions: self.positions }),
            false => Ok(()),
        }
    }
}

impl NamedModel for Gpt2Entry {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn traits(&self) -> Traits {
        TEXT
    }

    /// Returns AdamW with the settings of GPT-3's appendix B
    /// ([arXiv:2005.14165](https://arxiv.org/abs/2005.14165)): β₂ 0.95, weight decay 0.1 of all matrices,
    /// gradients clipped to a norm of 1.
    fn usual(&self) -> Recipe {
        let adamw = Choice::new("adamw").with("weight_decay", 0.1).with("beta2", 0.95);
        Recipe {
            model: self.name.into(),
            data: "kolo-documents".into(),
            batch_size: 8,
            test_batch_size: 8,
            optimizer: OptimizerChoice(adamw),
            rate: RateConfig { lr: self.rate, ..RateConfig::default() },
            transforms: TransformChoices(vec![Choice::new("clip").with("clip_norm", 1.0)]),
            no_decay: vec![Selector::from("1d")],
            ..Recipe::default()
        }
    }

    fn check(&self, recipe: &Recipe, samples: SampleShape) -> Result<(), Error> {
        TEXT.check(self.name, recipe)?;
        self.check_samples(samples)
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
        let model = self.build(&Blueprint::of(config, data.shape(), &device));
        let lengths = lengths(&*data);
        let job = Job { keeps_model: false, ..job };
        let trainer = Trainer::of(job, data, Gpt2::loss)
            .counting("tokens")
            .tally(TEXT.metrics, move |model: &Gpt2, batch, device| model.tally(batch, device, &lengths));
        Ok(trainer.train_as(membership, model)?.summary)
    }

    fn classifier(
        &self,
        _: &Blueprint<'_>,
        _: WeightsFile,
        _: Precision,
    ) -> Result<Box<dyn Classifier>, Error> {
        Err(Error::NoClasses { model: self.name })
    }

    fn stepper(
        &self,
        group: Group,
        blueprint: &Blueprint<'_>,
        config: &kolo_ddp::Config,
        optimizer: Box<dyn Optimizer>,
    ) -> Result<Box<dyn Stepper>, Error> {
        self.check_samples(blueprint.samples)?;
        let model = self.build(blueprint);
        let ddp = Ddp::new(group, model, config, optimizer).map_err(kolo_burn_train::Error::from)?;
        Ok(Box::new(DdpStepper { ddp, device: blueprint.device.clone(), loss: Gpt2::loss }))
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Module;
    use kolo_burn::BurnModel;
    use kolo_ddp::binding::{Binding, Which};

    use super::*;

    #[test]
    fn the_help_rounds_the_number_of_parameters() {
        let (device, tiny) = (Device::flex().autodiff(), &SIZES[0]);
        let (layers, width, positions) = (tiny.layers, tiny.width, tiny.positions);
        let built = Gpt2Config {
            layers,
            width,
            positions,
            vocabulary: 300,
            dropout: 0.0,
            activation_checkpointing: false,
        };
        let built = built.init(0, &device);
        for vocabulary in [300, 50_257] {
            let size = tiny.size(Some(vocabulary)).unwrap();
            assert_eq!(size.all, built.num_params() + (vocabulary - 300) * width);
            let layout = BurnModel::from(built.clone()).inventory(Which::All).unwrap().specs;
            let largest = layout.iter().map(|spec| spec.shape.iter().product::<usize>()).max().unwrap();
            assert_eq!(size.largest, largest.max(vocabulary * width));
        }
        // Of the published model, with its 50,257 tokens.
        let published = ModelSize { all: 124_439_808, largest: 50_257 * 768 };
        assert_eq!(SIZES[1].size(Some(50_257)).unwrap(), published);
        for size in &SIZES {
            let all = size.parameters(kolo_data::BYTE_VOCABULARY) as f64;
            let words = match all {
                _ if all < 1e6 => format!(" {:.1} million parameters", all / 1e6),
                _ if all < 1e9 => format!(" {:.0} million parameters", all / 1e6),
                _ => format!(" {:.1} billion parameters", all / 1e9),
            };
            assert!(size.about.contains(&words), "{}: {words}", size.about);
        }
    }
}
