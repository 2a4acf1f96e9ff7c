//! candle model in the form that [`kolo_ddp::Ddp`] trains.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use candle_nn::{VarBuilder, VarMap};
use kolo_ddp::binding::{Binding, BindingError, GradientSink, Inventory, TakeValues, Values, Which};

use crate::backends::{Recorder, builder, giving};
use crate::options::Options;
use crate::variables::Variables;
use crate::{Error, Loss};

type Build<M> = dyn Fn(VarBuilder<'static>) -> candle_core::Result<M> + Send + Sync;

/// candle model in training. It dereferences to the model, and holds its variables.
pub struct CandleModel<M> {
    module: M,
    map: VarMap,
    variables: Variables,
    build: Arc<Build<M>>,
}

impl<M: fmt::Debug> fmt::Debug for CandleModel<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CandleModel").field("module", &self.module).finish_non_exhaustive()
    }
}

impl Options {
    /// Builds a model for training: see [`CandleModel::build`].
    ///
    /// # Errors
    ///
    /// Errors of [`CandleModel::build`]; or a selector selects nothing, or everything.
    pub fn build<M>(
        &self,
        vars: &VarMap,
        build: impl Fn(VarBuilder<'static>) -> candle_core::Result<M> + Send + Sync + 'static,
    ) -> Result<CandleModel<M>, Error> {
        let recorder = Recorder { map: vars.clone(), seed: self.seed, asked: Arc::default() };
        let asked = recorder.asked.clone();
        drop(build(builder(recorder)).map_err(Error::Build)?);
        let asked = std::mem::take(&mut *asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        let variables = Variables::of(vars, &asked, self)?;
        CandleModel::of(vars.clone(), variables, Arc::new(build))
    }
}

impl<M> CandleModel<M> {
    /// Builds a model whose parameters Kolo trains: `build` gets a `VarBuilder` of `f32` on the CPU.
    /// Variables that `vars` has keep their values; others are added to it, with values that depend on their
    /// names. After each step `vars` has the new values, so `vars.save(…)` writes the trained model.
    ///
    /// `build` is called twice: to learn the names, and again with tensors whose gradients Kolo sees while
    /// the backward pass computes them. Such a tensor has its own copy of the variable's values. A variable
    /// of `vars` that the model does not get from its builder is trained, too; its gradient is handed over at
    /// the end of the pass.
    ///
    /// # Errors
    ///
    /// `build` fails, a variable is not of `f32` or not on the CPU (naming it), or there is none to train.
    pub fn build(
        vars: &VarMap,
        build: impl Fn(VarBuilder<'static>) -> candle_core::Result<M> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        Options::default().build(vars, build)
    }

    fn of(map: VarMap, variables: Variables, build: Arc<Build<M>>) -> Result<Self, Error> {
        let module = build(giving(variables.tensors())).map_err(Error::Build)?;
        Ok(CandleModel { module, map, variables, build })
    }

    /// The variables, with the newest values.
    pub fn vars(&self) -> &VarMap {
        &self.map
    }

    /// Returns the model.
    pub fn into_module(self) -> M {
        self.module
    }
}

impl<M> Deref for CandleModel<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.module
    }
}

/// Builds the model again, with its own variables in a map of their own. The backward passes of two clones
/// can thus run at the same time.
///
/// # Panics
///
/// If the function that has built the model fails now.
impl<M> Clone for CandleModel<M> {
    fn clone(&self) -> Self {
        let copied = self.variables.copied();
        copied
            .and_then(|(variables, map)| CandleModel::of(map, variables, self.build.clone()))
            .unwrap_or_else(|error| panic!("a model that has been built before: {error}"))
    }
}

impl<M> Binding for CandleModel<M> {
    type Loss = Loss;

    fn inventory(&self, which: Which) -> Result<Inventory, BindingError> {
        Ok(self.variables.inventory(which)?)
    }

    /// Called only where parameters are to be divided.
    fn hand_over(&mut self, _taker: &mut dyn TakeValues) -> Result<Inventory, BindingError> {
        Err(Error::Divided.into())
    }

    /// candle's tensors cannot wait, so this waits for the values.
    fn write(&mut self, which: Which, values: &Values) {
        self.variables.write(which, values);
    }

    fn backward(&self, loss: Loss, sink: Arc<dyn GradientSink>) -> Result<(), BindingError> {
        let destination = &self.variables.destination;
        let pass = destination.open(sink);
        let gradients = loss.into_root()?.backward().map_err(Error::Backward)?;
        // Those of variables that the model holds without a hook.
        for (span, var) in self.variables.trained() {
            if let Some(gradient) = gradients.get(var) {
                destination.take(span, gradient).map_err(Error::Backward)?;
            }
        }
        if pass.taken() == 0 { Err(Error::NoGradient.into()) } else { Ok(()) }
    }
}
