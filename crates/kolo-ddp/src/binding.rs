//! The interface between a tensor library's binding and [`Ddp`](crate::Ddp), in both directions.
//!
//! A binding is a type that holds one model of its library and implements [`Binding`]: it lists the model's
//! tensors, writes new values into them, and runs a backward pass whose gradients it hands to a
//! [`GradientSink`] as they are computed. Ranks, shards, reductions, optimizer and recovery are `Ddp`'s
//! business.

use std::sync::{Arc, Mutex};

use crate::replica::Replica;
use crate::shard_pass::lock;
use kolo_optim::{Layout, ParamSpec, SpanId};
pub use kolo_reduction::BindingError;
pub use kolo_sync::TakeValues;
pub use kolo_values::freed_memory::give_back;
use kolo_values::{DividedValues, Loan};

/// A model of some tensor library, as data parallelism needs it.
///
/// The model's tensors have an order that never changes; a [`SpanId`] is an index in it.
pub trait Binding {
    /// Result of a forward pass, with which a backward pass begins.
    type Loss: Loss;

    /// Lists the model's tensors and reads their values.
    ///
    /// # Errors
    ///
    /// The model cannot be trained: the error names the tensor or device, and the remedy.
    fn inventory(&self, which: Which) -> Result<Inventory, BindingError>;

    /// Number of the model's values, if it is known without making them.
    fn count(&self) -> Option<usize> {
        None
    }

    /// Does the same as [`Binding::inventory`] of all tensors, but hands the values to `taker`, tensor by
    /// tensor. It may make the values of each tensor just before, and free those of each large trained one
    /// afterwards: [`Binding::write`] replaces them before they are used. The result has no values. Fails as
    /// [`Binding::inventory`] does.
    fn hand_over(&mut self, taker: &mut dyn TakeValues) -> Result<Inventory, BindingError> {
        let Inventory { specs, values, warnings } = self.inventory(Which::All)?;
        taker.begin(&specs);
        let layout = Layout::new(specs.clone());
        layout.spans().iter().for_each(|span| taker.take(&values[span.range()]));
        Ok(Inventory { specs, values: Vec::new(), warnings })
    }

    /// Replaces values: those of statistics and frozen tensors at once, those of trained parameters now or,
    /// if the library can make a parameter wait, at their next use. In the second case the forward pass
    /// begins while later layers' gradients are in flight.
    fn write(&mut self, which: Which, values: &Values);

    /// Gives up the values of trained parameters, before a step changes them: each takes those of `values` at
    /// its next use. A binding does this if its parameters may lie in the replica's memory
    /// ([`SpanValues::lend`]); in a step that finds them there, all values move to other memory.
    fn release(&mut self, _values: &Values) {}

    /// Runs the backward pass of `loss` and hands each contribution to the gradient of a trained parameter
    /// to `sink`, best as soon as it has been computed. `sink` has no effect after that.
    ///
    /// # Errors
    ///
    /// The loss is not one of this model, or a gradient cannot be read.
    fn backward(&self, loss: Self::Loss, sink: Arc<dyn GradientSink>) -> Result<(), BindingError>;

    /// Checks, after a shard's passes, that frozen tensors ([`Kind::Frozen`](crate::Kind::Frozen)) still
    /// have the values of [`Binding::write`]. If a forward pass changed them, the ranks' models would
    /// diverge.
    ///
    /// # Errors
    ///
    /// A frozen tensor has changed: the error names it.
    fn expect_frozen_unchanged(&self) -> Result<(), BindingError> {
        Ok(())
    }

    /// Takes all values into the model itself, if some are gathered at each use ([`Values::divided`]), so
    /// that it needs no other rank any more. The others must still serve theirs.
    fn take_values(&mut self) {}

    /// Waits until no parameter waits for its values any more. Does nothing in a library whose parameters
    /// never wait.
    fn wait_for_values(&self) {}
}

/// A shard's loss.
pub trait Loss {
    /// Sum over the samples of [`Loss::count`]. May wait for a device.
    fn sum(&self) -> f64;

    /// Number of samples, tokens or other items that the loss is a sum over. Gradients are divided by the
    /// count of the whole global batch, so that a short shard has its proper weight.
    fn count(&self) -> f64;

    /// Returns the loss whose gradients are those of this one times `factor`
    /// ([`Config::loss_scaling`](crate::Config)). Its sum is never requested.
    fn scaled(self, factor: f32) -> Self
    where
        Self: Sized;
}

/// Returns the loss with which the backward pass begins.
pub(crate) fn scaled<L: Loss>(loss: L, factor: f32) -> L {
    if factor == 1.0 { loss } else { loss.scaled(factor) }
}

/// Takes gradients as they are computed, on the thread that runs the backward pass.
pub trait GradientSink: Send + Sync {
    /// Takes a contribution to the gradient of one parameter, in the parameter's memory order. Several
    /// contributions to one parameter are added.
    ///
    /// # Panics
    ///
    /// If its length is not the parameter's.
    fn ready(&self, span: SpanId, gradient: &[f32]);
}

/// Selects the tensors of a model that are listed or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All tensors.
    All,
    /// Those that a step changes: all but those of [`Kind::Frozen`](crate::Kind::Frozen).
    Changing,
    /// Those that the forward pass changes, of [`Kind::Statistic`](crate::Kind::Statistic).
    Statistics,
}

/// Tensors of a model, in its order, and their values, one tensor after another, each in its memory order.
#[derive(Clone, Default)]
pub struct Inventory {
    /// Names, shapes and kinds.
    pub specs: Vec<ParamSpec>,
    /// Values of all tensors in flat memory; [`Element::values`](crate::Element::values) is the number for
    /// each element.
    pub values: Vec<f32>,
    /// Warnings to the user before these are trained: [`Warning::Model`](crate::Warning::Model).
    pub warnings: Vec<String>,
}

kolo_comm::opaque_debug!(Inventory { specs, warnings });

/// Values of all tensors, from which a binding takes what it writes: the newest ones, or others.
#[derive(Clone)]
pub struct Values {
    pub(crate) layout: Arc<Layout>,
    pub(crate) source: Source,
}

kolo_comm::opaque_debug!(Values { layout });

/// Place of the values.
#[derive(Clone)]
pub(crate) enum Source {
    /// The newest values of a replica.
    Newest {
        replica: Arc<Mutex<Replica>>,
        /// Values of which the replica has a part only.
        divided: Option<Arc<DividedValues>>,
    },
    /// Values of flat memory.
    Copied(Arc<[f32]>),
}

impl Values {
    /// Names, shapes and kinds of the tensors.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the values of a tensor of which each rank holds a part only. A binding gathers them at each
    /// use, and drops them after it. `None` for all other tensors.
    pub fn divided(&self, span: SpanId) -> Option<DividedSpan> {
        match &self.source {
            Source::Newest { divided, .. } => {
                let divided = divided.as_ref().filter(|divided| divided.is_divided(span))?.clone();
                Some(DividedSpan { span, divided })
            }
            Source::Copied(_) => None,
        }
    }

    /// The values of one tensor; [`SpanValues::wait`] waits for them.
    pub fn of(&self, span: SpanId) -> SpanValues {
        SpanValues { span, values: self.clone() }
    }
}

/// The values of one tensor that is divided among the ranks.
#[derive(Clone)]
pub struct DividedSpan {
    span: SpanId,
    divided: Arc<DividedValues>,
}

kolo_comm::opaque_debug!(DividedSpan { span });

impl DividedSpan {
    /// Gathers the newest values from their owners, and returns them in the tensor's memory order. If that
    /// fails they are NaN, and the next fallible call of the replica returns the error.
    pub fn gather(&self) -> Vec<f32> {
        self.divided.gather_or_nan(self.span)
    }
}

/// The values of one tensor, once its gradient has been reduced and applied.
#[derive(Clone)]
pub struct SpanValues {
    span: SpanId,
    values: Values,
}

kolo_comm::opaque_debug!(SpanValues { span });

impl SpanValues {
    /// Waits for the values, and returns them in the tensor's memory order. Must not be called while
    /// [`Ddp::with_replica`](crate::Ddp::with_replica) uses the replica.
    pub fn wait(self) -> Vec<f32> {
        match &self.values.source {
            Source::Newest { replica, .. } => lock(replica).latest(self.span).to_vec(),
            Source::Copied(values) => values[self.values.layout.span(self.span).range()].to_vec(),
        }
    }

    /// Waits for the values, and lends them where they lie ([`Replica::lend`]). Returns `None` if they are to
    /// be copied ([`SpanValues::wait`]). Must not be called while
    /// [`Ddp::with_replica`](crate::Ddp::with_replica) uses the replica.
    pub fn lend(&self) -> Option<Loan> {
        match &self.values.source {
            Source::Newest { replica, .. } => lock(replica).lend(self.span),
            Source::Copied(_) => None,
        }
    }
}
