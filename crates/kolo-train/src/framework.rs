//! The interface between the trainer and a tensor library.

use kolo_data::Mixing;
use kolo_ddp::binding::{Binding, Loss};
use kolo_ddp::cross_shard::CrossShardPass;
use kolo_recipe::Recipe;

use crate::error::Error;

/// A tensor library whose models of type `M` a [`Trainer`](crate::Trainer) trains, on one device.
///
/// [`Framework::Model`] connects a model's values and gradients with the step. The methods here surround the
/// user's forward passes with whatever the library needs, such as its device or the type in which it
/// computes. The default is the library's usual device.
pub trait Framework<M>: Default + Sync {
    /// Model in training. Shards of one worker that compute together each have a clone.
    type Model: Binding<Loss = Self::Loss> + Clone + Send;

    /// Loss of one shard's samples.
    type Loss: Loss;

    /// Device that computes.
    type Device;

    /// Argument of a loss that says where in the training it is computed.
    type Context<'a>;

    /// Makes the library compute on `device`.
    fn on(device: Self::Device) -> Self;

    /// Makes the model ready for a run of `recipe`, on the recipe's device unless [`Framework::on`] has given
    /// one. If the run is new (not resumed), the model gets the initial weights that [`Recipe::init`] names.
    /// The parameters that [`Recipe::freeze`] selects are not trained.
    ///
    /// # Errors
    ///
    /// The library cannot train as the recipe says, or the weights cannot be loaded.
    fn prepare(&mut self, model: M, recipe: &Recipe, resumed: bool) -> Result<Self::Model, Error>;

    /// Calls `forward`, a forward pass in training.
    fn training<R>(&self, pass: &Pass<'_>, forward: impl FnOnce(&Self::Context<'_>) -> R) -> R;

    /// Calls `forward`, a forward pass in evaluation.
    fn evaluation<R>(&self, forward: impl FnOnce(&Self::Device) -> R) -> R;

    /// Returns the user's model.
    fn module(model: &Self::Model) -> &M;

    /// Returns a copy of the user's model for evaluation, which records no gradients.
    fn evaluated(model: &Self::Model) -> M;

    /// Returns the user's model after training.
    fn into_module(model: Self::Model) -> M;
}

/// Place of one shard's forward pass in a training.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    /// Recipe of the run.
    pub recipe: &'a Recipe,
    /// Epoch, from 0.
    pub epoch: usize,
    /// Step of the epoch, from 0.
    pub step: usize,
    /// Shard of the step, from 0.
    pub shard: usize,
    /// Present if the images of the batch are mixed: the loss mixes their labels alike.
    pub mixing: Option<&'a Mixing>,
    /// Present if normalizations are over the global batch.
    pub cross_shard: Option<&'a CrossShardPass>,
}
