//! candle as the tensor library of Kolo's trainer.

use candle_core::Device;
use kolo_recipe::{BatchNormalization, Recipe};
use kolo_train::{Error, Framework, Pass};

use crate::{CandleModel, Loss};

/// Trainer of a candle model `N` on a data set `D`: the whole run, with its folder, metrics, checkpoints and
/// recovery.
///
/// A loss gets the [`Pass`], which [`cross_entropy`](crate::cross_entropy) and
/// [`dropout_key`](crate::dropout_key) take. An error of candle in the loss ends the run with one sentence.
///
/// ```no_run
/// use candle_core::Result;
/// use candle_nn::{Linear, Module, VarMap, linear};
/// use kolo_candle::{CandleModel, Loss, Trainer, classification, cross_entropy, image_tensors};
/// use kolo_data::Batch;
/// use kolo_train::{Metric, Pass, Recipe};
///
/// fn loss(model: &CandleModel<Linear>, batch: &Batch, pass: &Pass<'_>) -> Result<Loss> {
///     let (images, labels) = image_tensors(batch)?;
///     cross_entropy(&model.forward(&images.flatten_from(1)?)?, &labels, pass)
/// }
///
/// let model = CandleModel::build(&VarMap::new(), |builder| linear(28 * 28, 10, builder))?;
/// let recipe = Recipe { epochs: 5, shards: 4, batch_size: 32, ..Recipe::default() };
/// let data = kolo_data::open("fashion-mnist-small")?;
/// let trained = Trainer::new(recipe, data, |model, batch, pass| loss(model, &batch, pass).into())
///     .tally([Metric::ACCURACY], |model, batch, _| {
///         let (images, labels) = image_tensors(&batch).unwrap();
///         let scores = model.forward(&images.flatten_from(1).unwrap()).unwrap();
///         classification(&scores, &labels).unwrap()
///     })
///     .run_folder("runs/linear")
///     .train(model)?;
/// trained.model.iter().try_for_each(|model| model.vars().save("linear.safetensors"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub type Trainer<N, D> = kolo_train::Trainer<Candle, CandleModel<N>, D>;

/// candle on the CPU.
#[derive(Clone, Debug)]
pub struct Candle {
    device: Device,
}

impl Default for Candle {
    fn default() -> Self {
        Candle { device: Device::Cpu }
    }
}

impl<N: Send> Framework<CandleModel<N>> for Candle {
    type Model = CandleModel<N>;
    type Loss = Loss;
    type Device = Device;
    type Context<'a> = Pass<'a>;

    fn on(device: Device) -> Self {
        Candle { device }
    }

    /// Refuses what a program does with its `VarMap` and its builder instead, and what candle lacks.
    fn prepare(
        &mut self,
        model: CandleModel<N>,
        recipe: &Recipe,
        resumed: bool,
    ) -> Result<CandleModel<N>, Error> {
        let refused = |option, value: &dyn ToString, problem: &str| {
            Err(kolo_recipe::Error::setting(option, value.to_string(), problem).into())
        };
        if recipe.precision.compute != "f32" {
            let problem = format!("candle models compute in f32, not in {}", recipe.precision.compute);
            return Err(Error::Precision(problem.into()));
        }
        if !self.device.is_cpu() || recipe.device != Recipe::default().device {
            return refused("--device", &recipe.device, "candle models are trained on the CPU; leave it out");
        }
        if recipe.batch_norm == BatchNormalization::Sync {
            let problem = "candle's normalization cannot wait for other shards; take per-shard";
            return refused("--batch-norm", &"sync", problem);
        }
        if let Some(selector) = recipe.freeze.first() {
            return refused("--freeze", selector, "freeze a candle model by `kolo_candle::Options::freeze`");
        }
        match recipe.init.as_ref().filter(|_| !resumed) {
            Some(file) => {
                let problem = "load a candle model's weights by `VarMap::load` before the training";
                refused("--init", &file.display(), problem)
            }
            None => Ok(model),
        }
    }

    fn training<R>(&self, pass: &Pass<'_>, forward: impl FnOnce(&Pass<'_>) -> R) -> R {
        forward(pass)
    }

    fn evaluation<R>(&self, forward: impl FnOnce(&Device) -> R) -> R {
        forward(&self.device)
    }

    fn module(model: &CandleModel<N>) -> &CandleModel<N> {
        model
    }

    fn evaluated(model: &CandleModel<N>) -> CandleModel<N> {
        model.clone()
    }

    fn into_module(model: CandleModel<N>) -> CandleModel<N> {
        model
    }
}
