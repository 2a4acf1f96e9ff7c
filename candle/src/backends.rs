//! Sources of a `VarBuilder`'s tensors while a model is built.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{DType, Device, Error, Result, Shape, Tensor, Var};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, VarBuilder, VarMap};

use crate::initial;

/// Gives the variables of a map, makes those that it lacks, and notes the names.
pub(crate) struct Recorder {
    pub(crate) map: VarMap,
    pub(crate) seed: u64,
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
}

impl SimpleBackend for Recorder {
    fn get(&self, shape: Shape, name: &str, init: Init, dtype: DType, device: &Device) -> Result<Tensor> {
        if dtype != DType::F32 {
            let dtype = dtype.as_str();
            return Err(Error::Msg(format!("parameter `{name}` is {dtype}; Kolo trains f32")));
        }
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let mut entries = self.map.data().lock().unwrap_or_else(PoisonError::into_inner);
        if !asked.iter().any(|other| other == name) {
            asked.push(name.to_owned());
        }
        if let Some(var) = entries.get(name) {
            return of_shape(var, &shape, name);
        }
        let var = Var::from_vec(initial::values(init, &shape, self.seed, name), shape, device)?;
        let tensor = var.as_tensor().clone();
        entries.insert(name.to_owned(), var);
        Ok(tensor)
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> Result<Tensor> {
        Err(needs_a_shape(name))
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.map.data().lock().unwrap_or_else(PoisonError::into_inner).contains_key(name)
    }
}

/// Gives tensors that have been made before.
struct Given(HashMap<String, Tensor>);

impl SimpleBackend for Given {
    fn get(&self, shape: Shape, name: &str, _: Init, _: DType, _: &Device) -> Result<Tensor> {
        match self.0.get(name) {
            Some(tensor) => of_shape(tensor, &shape, name),
            None => Err(Error::Msg(format!(
                "the model asks for `{name}`, which it did not do before; build it in the same way each time"
            ))),
        }
    }

    fn get_unchecked(&self, name: &str, _: DType, _: &Device) -> Result<Tensor> {
        Err(needs_a_shape(name))
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

fn of_shape(tensor: &Tensor, shape: &Shape, name: &str) -> Result<Tensor> {
    if tensor.shape() == shape {
        return Ok(tensor.clone());
    }
    let (own, asked) = (tensor.dims(), shape.dims());
    Err(Error::Msg(format!("parameter `{name}` has the shape {own:?}; the model asks for {asked:?}")))
}

fn needs_a_shape(name: &str) -> Error {
    Error::Msg(format!("parameter `{name}`: ask for it by `VarBuilder::get`, with a shape"))
}

/// Returns a builder over such a backend.
pub(crate) fn builder(backend: impl SimpleBackend + 'static) -> VarBuilder<'static> {
    VarBuilder::from_backend(Box::new(backend), DType::F32, Device::Cpu)
}

/// Returns a builder that gives these tensors.
pub(crate) fn giving(tensors: HashMap<String, Tensor>) -> VarBuilder<'static> {
    builder(Given(tensors))
}
