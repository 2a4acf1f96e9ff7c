//! What a tensor library's binding gives to [`Ddp`](crate::Ddp), and what it gets from there: the whole of
//! the seam.
//!
//! A binding is a type that holds one model of its library and implements [`Binding`]: it lists the model's
//! tensors, writes new values into them, and runs a backward pass whose gradients it hands to a
//! [`GradientSink`] as they are computed. All else (ranks, shards, reductions, optimizer, recovery) is not
//! its business.

use std::sync::{Arc, Mutex};

pub use crate::error::BindingError;
use crate::replica::Replica;
use crate::shard_pass::lock;
use kolo_optim::{Layout, ParamSpec, SpanId};

/// A model of some tensor library, as data parallelism needs it.
///
/// The model's tensors have an order that never changes; a [`SpanId`] counts in it.
pub trait Binding {
    /// What a forward pass ends in, and a backward pass begins with.
    type Loss: Loss;

    /// Lists the model's tensors and reads their values.
    ///
    /// # Errors
    ///
    /// The model cannot be trained: names the tensor or device, and says what to do.
    fn inventory(&self, which: Which) -> Result<Inventory, BindingError>;

    /// Replaces values: those of statistics and of what is frozen at once, those of trained parameters now
    /// or, where the library can make a parameter wait, when it is next used. Then the forward pass begins
    /// while later layers' gradients are on the wire.
    fn write(&mut self, which: Which, values: &Values);

    /// Runs the backward pass of `loss` and hands each contribution to the gradient of a trained parameter to
    /// `sink`, best at the moment when it has been computed. `sink` has no effect after that.
    ///
    /// # Errors
    ///
    /// The loss is not one of this model, or a gradient cannot be read.
    fn backward(&self, loss: Self::Loss, sink: Arc<dyn GradientSink>) -> Result<(), BindingError>;

    /// After a shard's passes: says whether what is frozen ([`Kind::Frozen`](crate::Kind::Frozen)) is still
    /// what [`Binding::write`] has made it. What a forward pass changes and no rank knows of would come apart.
    ///
    /// # Errors
    ///
    /// It is not: names the tensor.
    fn expect_frozen_unchanged(&self) -> Result<(), BindingError> {
        Ok(())
    }

    /// Waits until no parameter waits for its values any more; nothing, for a library whose parameters never
    /// do.
    fn wait_for_values(&self) {}
}

/// A shard's loss.
pub trait Loss {
    /// Sum over what [`Loss::count`] counts. May wait for a device.
    fn sum(&self) -> f64;

    /// Samples (or tokens, or whatever the loss is a sum over). Gradients are divided by the count of the
    /// whole global batch, so that a short shard weighs what it should.
    fn count(&self) -> f64;

    /// The loss whose gradients are those of this one times `factor`
    /// ([`Config::loss_scaling`](crate::Config)). Nobody asks it for its sum.
    fn scaled(self, factor: f32) -> Self
    where
        Self: Sized;
}

/// The loss as its backward pass begins.
pub(crate) fn scaled<L: Loss>(loss: L, factor: f32) -> L {
    if factor == 1.0 { loss } else { loss.scaled(factor) }
}

/// Takes gradients as they are computed, on the thread that runs the backward pass.
pub trait GradientSink: Send + Sync {
    /// A contribution to the gradient of one parameter, in the parameter's memory order; several to the same
    /// one are added.
    ///
    /// # Panics
    ///
    /// If its length is not the parameter's.
    fn ready(&self, span: SpanId, gradient: &[f32]);
}

/// Which of a model's tensors are listed or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All of them.
    All,
    /// Those that a step changes: all but those of [`Kind::Frozen`](crate::Kind::Frozen).
    Changing,
    /// Those that the forward pass changes, of [`Kind::Statistic`](crate::Kind::Statistic).
    Statistics,
}

/// Tensors of a model, in its order, and their values, one tensor after another, each in its memory order.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    /// Names, shapes and kinds.
    pub specs: Vec<ParamSpec>,
    /// As many values as the tensors have in flat memory ([`Element::values`](crate::Element::values)).
    pub values: Vec<f32>,
    /// What the user must know before these are trained: [`Warning::Model`](crate::Warning::Model).
    pub warnings: Vec<String>,
}

/// The newest values of all tensors, from which a binding takes what it writes.
#[derive(Clone)]
pub struct Values {
    pub(crate) layout: Arc<Layout>,
    pub(crate) replica: Arc<Mutex<Replica>>,
}

impl Values {
    /// Names, shapes and kinds of the tensors.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The values of one tensor, which are yet to be waited for.
    pub fn of(&self, span: SpanId) -> SpanValues {
        SpanValues { span, replica: self.replica.clone() }
    }
}

/// The values of one tensor, once its gradient has been reduced and applied.
#[derive(Clone)]
pub struct SpanValues {
    span: SpanId,
    replica: Arc<Mutex<Replica>>,
}

impl SpanValues {
    /// Waits for them, and gives them in the tensor's memory order. Must not be called while the replica is
    /// in use by [`Ddp::with_replica`](crate::Ddp::with_replica).
    pub fn wait(self) -> Vec<f32> {
        lock(&self.replica).latest(self.span).to_vec()
    }
}
