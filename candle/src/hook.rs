//! Gradient hook: sees each gradient as soon as it is computed.
//!
//! Candle's backward pass returns all gradients at its end. It visits operations in an order in which every
//! use of a tensor comes before the tensor itself, and drops an operation's gradient when it visits it. So
//! the model gets, in place of a variable, the result of an operation: a tensor with the variable's values.
//! When the pass visits that operation, the gradient is complete. The hook hands it over and lets the pass go
//! on without it. The operation's argument is a variable of one element, because candle visits only what
//! leads to a variable.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, Var, bail};
use kolo_ddp::SpanId;
use kolo_ddp::binding::GradientSink;

use crate::memory::with_floats;

/// Destination of the gradients of a model; there is one only while `Ddp::backward` runs.
#[derive(Clone, Default)]
pub(crate) struct Destination(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    sink: Option<Arc<dyn GradientSink>>,
    /// Number of gradients since it was opened.
    taken: usize,
}

impl Destination {
    /// Sends the gradients of a backward pass to `sink` until the returned guard is dropped.
    pub(crate) fn open(&self, sink: Arc<dyn GradientSink>) -> Open<'_> {
        self.with(|state| *state = State { sink: Some(sink), taken: 0 });
        Open(self)
    }

    /// Passes one gradient on. Returns false if no pass of `Ddp` is running.
    pub(crate) fn take(&self, span: SpanId, gradient: &Tensor) -> Result<bool> {
        let sink = self.with(|state| {
            state.taken += 1;
            state.sink.clone()
        });
        let Some(sink) = sink else { return Ok(false) };
        with_floats(gradient, |values| sink.ready(span, values))?;
        Ok(true)
    }

    fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A backward pass whose gradients are passed on.
pub(crate) struct Open<'a>(&'a Destination);

impl Open<'_> {
    /// Number of gradients so far.
    pub(crate) fn taken(&self) -> usize {
        self.0.with(|state| state.taken)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.with(|state| state.sink = None);
    }
}

/// Returns a tensor with the values of `var`, whose gradient goes to `destination`. `anchor` is any variable.
pub(crate) fn hooked(var: &Var, span: SpanId, anchor: &Var, destination: Destination) -> Result<Tensor> {
    anchor.apply_op1(Hook {
        values: var.flatten_all()?.to_vec1()?,
        shape: var.shape().clone(),
        span,
        destination,
    })
}

struct Hook {
    /// Values of the result at its beginning; later ones are written in place.
    values: Vec<f32>,
    shape: Shape,
    span: SpanId,
    destination: Destination,
}

impl CustomOp1 for Hook {
    fn name(&self) -> &'static str {
        "kolo-hook"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok((CpuStorage::F32(self.values.clone()), self.shape.clone()))
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, gradient: &Tensor) -> Result<Option<Tensor>> {
        match self.destination.take(self.span, gradient)? {
            true => Ok(None),
            false => bail!(
                "the gradients of this model go to Kolo; call `Ddp::backward` in place of `Tensor::backward`"
            ),
        }
    }
}
