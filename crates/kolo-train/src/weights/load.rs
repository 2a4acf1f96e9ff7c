//! From a file of weights into a model.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use burn::module::Module;
use kolo_ddp::checkpoint::Reader;

use super::error::WeightsError;
use super::format::{NamedTensor, Stored};
use super::formats::FORMATS;
use super::tensors::tensors;
use crate::error::Error;

/// The tensors of a file, of whatever model.
pub struct WeightsFile {
    path: PathBuf,
    /// Where it has the tensor at a path of the model.
    stored: fn(&str) -> Stored,
    tensors: BTreeMap<String, NamedTensor>,
}

/// The module with the weights of a file, in whichever of the [`FORMATS`] that is.
///
/// # Errors
///
/// As [`WeightsFile::read`]; or the file and the module do not have the same tensors: names the first that
/// one of them lacks or has in another shape.
pub fn load<M: Module>(module: M, path: &Path) -> Result<M, Error> {
    Ok(WeightsFile::read(path)?.into_module(module)?)
}

impl WeightsFile {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// It cannot be read, is damaged or of none of the [`FORMATS`], or holds other tensors than of `f32`.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let data = fs::read(path).map_err(|e| Error::file(path, e))?;
        let format = FORMATS.iter().find(|format| (format.recognises)(&data)).ok_or_else(|| {
            let known = FORMATS.iter().map(|format| format.name).collect::<Vec<_>>().join(", ");
            WeightsError::NoFormat { path: path.into(), known }
        })?;
        let tensors = (format.decode)(path, data)?;
        let tensors = tensors.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect();
        Ok(WeightsFile { path: path.into(), stored: format.stored, tensors })
    }

    /// The weights of a checkpoint at `path`, which `reader` reads.
    ///
    /// # Errors
    ///
    /// The checkpoint is damaged; names the file.
    pub(crate) fn of_checkpoint(path: &Path, reader: &Reader) -> Result<Self, Error> {
        let tensors = tensors(reader)?.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect();
        let stored = |path: &str| Stored { name: path.into(), transposed: false };
        Ok(WeightsFile { path: path.into(), stored, tensors })
    }

    /// The module with these weights. Errors as [`load`].
    pub(crate) fn into_module<M: Module>(mut self, module: M) -> Result<M, WeightsError> {
        for (place, first) in kolo_burn::tied(&module) {
            self.tie(&place, &first)?;
        }
        let module = kolo_burn::with_values(module, |path, shape| self.take(path, shape).map(Some))?;
        match self.tensors.pop_first() {
            None => Ok(module),
            Some((tensor, _)) => Err(WeightsError::Unknown { path: self.path, tensor }),
        }
    }

    /// A parameter stands at two places of the module: the file may have it at either, or at both with the
    /// same values.
    fn tie(&mut self, place: &str, first: &str) -> Result<(), WeightsError> {
        let (place, first) = ((self.stored)(place), (self.stored)(first));
        let Some(tensor) = self.tensors.remove(&place.name) else { return Ok(()) };
        // As the first place has it.
        let tensor = if place.transposed != first.transposed { tensor.transposed() } else { tensor };
        let tensor = NamedTensor { name: first.name.clone(), ..tensor };
        match self.tensors.get(&first.name) {
            Some(known) if known.shape != tensor.shape || bits(known) != bits(&tensor) => {
                let path = self.path.clone();
                Err(WeightsError::Tied { path, tensor: place.name, first: first.name })
            }
            _ => {
                self.tensors.insert(first.name, tensor);
                Ok(())
            }
        }
    }

    /// The values of the tensor at a path of the module, which has this shape there.
    fn take(&mut self, path: &str, shape: &[usize]) -> Result<Vec<f32>, WeightsError> {
        let stored = (self.stored)(path);
        let tensor = self.tensors.remove(&stored.name);
        let tensor = tensor
            .ok_or_else(|| WeightsError::Missing { path: self.path.clone(), tensor: stored.name.clone() })?;
        let mut needed = shape.to_vec();
        if stored.transposed {
            needed.reverse();
        }
        if tensor.shape != needed {
            let found = tensor.shape;
            return Err(WeightsError::Shape { path: self.path.clone(), tensor: stored.name, found, needed });
        }
        Ok(if stored.transposed { tensor.transposed().values } else { tensor.values })
    }
}

fn bits(tensor: &NamedTensor) -> Vec<u32> {
    tensor.values.iter().map(|value| value.to_bits()).collect()
}
