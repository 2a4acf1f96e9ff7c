//! Burn as the trainer's tensor library.

use burn::module::Module;
use burn::tensor::Device;
use kolo_burn::{BurnModel, DropoutKey, Loss, Precision, check_precision, with_precision};
use kolo_comm::env::local_rank;
use kolo_recipe::{DEVICES, Recipe};
use kolo_train::{Error, Framework, Pass};

use crate::context::TrainingContext;
use crate::device::device;
use crate::precision::precision;

/// Burn on one of its devices, by default the recipe's.
#[derive(Clone, Debug)]
pub struct Burn {
    /// True if the program gave the device.
    is_given: bool,
    device: Device,
    /// The same device with autodiff.
    trainable: Device,
    precision: Precision,
}

impl Default for Burn {
    fn default() -> Self {
        let device = Device::flex();
        Burn { is_given: false, trainable: device.clone().autodiff(), device, precision: Precision::F32 }
    }
}

impl<M: Module> Framework<M> for Burn {
    type Model = BurnModel<M>;
    type Loss = Loss;
    type Device = Device;
    type Context<'a> = TrainingContext<'a>;

    fn on(device: Device) -> Self {
        Burn { is_given: true, trainable: device.clone().autodiff(), device, ..Burn::default() }
    }

    fn prepare(&mut self, model: M, recipe: &Recipe, resumed: bool) -> Result<BurnModel<M>, Error> {
        let is_usual = recipe.device == DEVICES[0];
        if self.is_given && !is_usual {
            let problem = "the program gives the trainer a device; leave --device at its default, or leave out `Trainer::device`";
            return Err(kolo_recipe::Error::setting("--device", &recipe.device, problem).into());
        }
        if !is_usual {
            let device = device(recipe, local_rank().map_err(kolo_ddp::Error::from)?)?;
            *self = Burn { trainable: device.clone().autodiff(), device, ..self.clone() };
        }
        self.precision = precision(&recipe.precision)?;
        check_precision(self.precision, &self.device).map_err(|error| Error::Precision(error.into()))?;
        let model = match recipe.init.as_ref().filter(|_| !resumed) {
            Some(file) => kolo_weights::load_except(model, file, &recipe.init_skip).map_err(|error| {
                let is_input = error.is_input();
                Error::Weights { source: error.into(), is_input }
            })?,
            None => model,
        };
        let model = kolo_burn::freeze(model, &recipe.freeze).map_err(|e| recipe.refused_freeze(e))?;
        let model = if is_usual { model } else { model.fork(&self.trainable) };
        Ok(model.into())
    }

    fn training<R>(&self, pass: &Pass<'_>, forward: impl FnOnce(&TrainingContext<'_>) -> R) -> R {
        let &Pass { recipe, epoch, step, shard, mixing, cross_shard } = pass;
        let dropout = &DropoutKey { seed: recipe.seed, epoch, step, shard };
        let label_smoothing = recipe.large_batch.label_smoothing;
        let context =
            TrainingContext { dropout, cross_shard, device: &self.trainable, label_smoothing, mixing };
        with_precision(self.precision, || forward(&context))
    }

    fn evaluation<R>(&self, forward: impl FnOnce(&Device) -> R) -> R {
        with_precision(self.precision, || forward(&self.device))
    }

    fn module(model: &BurnModel<M>) -> &M {
        model
    }

    fn evaluated(model: &BurnModel<M>) -> M {
        model.valid()
    }

    fn into_module(model: BurnModel<M>) -> M {
        model.into_module()
    }
}
