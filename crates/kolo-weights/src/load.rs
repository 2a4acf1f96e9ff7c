//! Loads a file of weights into a model.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use burn::module::Module;
use kolo_ddp::checkpoint::{self, Reader, WEIGHTS};
use kolo_ddp::{Element, Kind, Layout, ParamSpec, Selector};

use crate::description::EMBEDDING;
use crate::error::WeightsError;
use crate::format::{NamedTensor, Stored};
use crate::formats::{FORMATS, check_shapes, is_transformers, weights_in};
use crate::tensors::tensors;

/// Beginning of a Git LFS pointer (git-lfs, docs/spec.md).
const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";
/// Prefixes of all names from PyTorch's `DataParallel`, `DistributedDataParallel` and `torch.compile`.
const WRAPPERS: [&str; 2] = ["module.", "_orig_mod."];

/// The tensors of a file, of any model.
pub struct WeightsFile {
    path: PathBuf,
    /// Returns the place in the file of the tensor at a path of the model.
    stored: fn(&str) -> Stored,
    tensors: BTreeMap<String, NamedTensor>,
}

impl fmt::Debug for WeightsFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeightsFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Returns the module with the weights of a file in any of the [`FORMATS`].
///
/// # Errors
///
/// As [`WeightsFile::read`]; or the file and the module do not have the same tensors: names the first that
/// one of them lacks or has in another shape.
pub fn load<M: Module>(module: M, path: &Path) -> Result<M, WeightsError> {
    WeightsFile::read(path)?.into_module(module)
}

/// Returns the module with the weights of a file, except for the tensors that `skip` selects by their paths
/// in the module: they keep their values. Tensors of the file alone may be skipped, too.
///
/// A classifier of 10 classes that begins with the weights of one for 1,000:
///
/// ```no_run
/// # fn load<M: burn::module::Module>(network: M) -> Result<M, kolo_weights::WeightsError> {
/// let network = kolo_weights::load_except(network, "resnet18.safetensors".as_ref(), &["fc.*".into()])?;
/// # Ok(network)
/// # }
/// ```
///
/// # Errors
///
/// Same as [`load`]; or one of `skip` selects nothing, or together they leave nothing to load.
pub fn load_except<M: Module>(module: M, path: &Path, skip: &[Selector]) -> Result<M, WeightsError> {
    WeightsFile::read(path)?.into_module_except(module, skip)
}

impl WeightsFile {
    /// Reads a file or folder in any of the [`FORMATS`], or a checkpoint by its weights file or folder. All
    /// names may have the prefix of PyTorch's wrappers (`module.`).
    ///
    /// # Errors
    ///
    /// The file cannot be read, is damaged or in no known format, or has tensors other than F32, I64 and
    /// BOOL.
    pub fn read(path: &Path) -> Result<Self, WeightsError> {
        if let Some(folder) = checkpoint::of_file(path) {
            return match path.is_dir() || path.file_name() == Some(WEIGHTS.as_ref()) {
                true => Self::of_checkpoint(path, &Reader::open(folder)?),
                false => Err(WeightsError::OtherPart { path: path.into() }),
            };
        }
        if is_transformers(path) {
            let weights = Self::read(&weights_in(path)?)?;
            check_shapes(path, &|tensor| Some(weights.tensors.get(tensor)?.shape.as_slice()))?;
            return Ok(weights);
        }
        if path.is_dir() {
            return Err(WeightsError::Folder { path: path.into() });
        }
        let data =
            kolo_durable::read(path).map_err(|source| WeightsError::Read { path: path.into(), source })?;
        if data.starts_with(LFS_POINTER) {
            return Err(WeightsError::LfsPointer { path: path.into() });
        }
        let format = FORMATS.iter().find(|format| (format.recognizes)(&data)).ok_or_else(|| {
            let known = FORMATS.iter().map(|format| format.name).collect::<Vec<_>>().join(", ");
            WeightsError::NoFormat { path: path.into(), known }
        })?;
        let mut tensors = (format.decode)(path, data)?;
        while let Some(wrapper) = WRAPPERS.iter().find(|wrapper| are_in(&tensors, wrapper)) {
            tensors.iter_mut().for_each(|tensor| drop(tensor.name.drain(..wrapper.len())));
        }
        let tensors = tensors.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect();
        Ok(WeightsFile { path: path.into(), stored: format.stored, tensors })
    }

    /// Reads the weights of a checkpoint at `path` with `reader`.
    ///
    /// # Errors
    ///
    /// The checkpoint is damaged; names the file.
    pub fn of_checkpoint(path: &Path, reader: &Reader) -> Result<Self, WeightsError> {
        let tensors = tensors(reader)?.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect();
        Ok(WeightsFile { path: path.into(), stored: as_it_is, tensors })
    }

    /// Returns the shape of the tensor at a path of the model, as it is stored.
    pub fn shape(&self, path: &str) -> Option<&[usize]> {
        let tensor = self.tensors.get(&(self.stored)(path).name);
        tensor.map(|tensor| tensor.shape.as_slice())
    }

    /// Returns the module with these weights. Fails as [`load`] does.
    pub fn into_module<M: Module>(self, module: M) -> Result<M, WeightsError> {
        self.into_module_except(module, &[])
    }

    /// Returns the module with these weights, except for the tensors that `skip` selects. Fails as
    /// [`load_except`] does.
    pub fn into_module_except<M: Module>(mut self, module: M, skip: &[Selector]) -> Result<M, WeightsError> {
        let mut specs = Vec::new();
        let module = kolo_burn::with_values(module, |path, shape, _| {
            specs.push(spec(path, shape));
            Ok::<_, WeightsError>(None)
        })?;
        let skipped = skipped(specs, skip)?;
        // A checkpoint's file in another place looks like one of torchvision's, but has the module's own
        // names.
        let (mut is_own, tied) = (true, kolo_burn::tied(&module));
        let module = kolo_burn::with_values(module, |path, shape, _| {
            is_own &= skipped.contains(path)
                || tied.iter().any(|(place, _)| place == path)
                || self.tensors.get(path).is_some_and(|tensor| tensor.shape == shape);
            Ok::<_, WeightsError>(None)
        })?;
        if is_own {
            self.stored = as_it_is;
        }
        for (place, first) in tied {
            self.tie(&place, &first)?;
        }
        let module = kolo_burn::with_values(module, |path, shape, element| {
            if skipped.contains(path) {
                self.tensors.remove(&(self.stored)(path).name);
                return Ok(None);
            }
            self.take(path, shape, element).map(Some)
        })?;
        let left =
            Layout::new(self.tensors.values().map(|tensor| spec(&tensor.name, &tensor.shape)).collect());
        let mut left = left
            .spans()
            .iter()
            .map(|span| &span.spec)
            .filter(|spec| !skip.iter().any(|selector| selector.selects(spec, &left)));
        match left.next() {
            None => Ok(module),
            Some(spec) => Err(WeightsError::Unknown { path: self.path, tensor: spec.name.clone() }),
        }
    }

    /// Merges a parameter at two places of the module: the file may have it at either, or at both with the
    /// same values.
    fn tie(&mut self, place: &str, first: &str) -> Result<(), WeightsError> {
        let (place, first) = ((self.stored)(place), (self.stored)(first));
        let Some(tensor) = self.tensors.remove(&place.name) else { return Ok(()) };
        // In the layout of the first place.
        let tensor = if place.transposed != first.transposed { tensor.transposed() } else { tensor };
        let tensor = NamedTensor { name: first.name.clone(), ..tensor };
        match self.tensors.get(&first.name) {
            Some(known) if known.shape != tensor.shape || known.to_bytes() != tensor.to_bytes() => {
                let path = self.path.clone();
                Err(WeightsError::Tied { path, tensor: place.name, first: first.name })
            }
            _ => {
                self.tensors.insert(first.name, tensor);
                Ok(())
            }
        }
    }

    /// Returns the values of the tensor at a path of the module, where it has this shape and type.
    fn take(&mut self, path: &str, shape: &[usize], element: Element) -> Result<Vec<f32>, WeightsError> {
        let stored = (self.stored)(path);
        let tensor = self.tensors.remove(&stored.name);
        let tensor = tensor
            .ok_or_else(|| WeightsError::Missing { path: self.path.clone(), tensor: stored.name.clone() })?;
        let mut needed = shape.to_vec();
        if stored.transposed {
            needed.reverse();
        }
        if tensor.shape != needed {
            let (file, found) = (self.path.clone(), tensor.shape);
            return Err(match (&*found, &*needed) {
                ([found, width], [needed, other]) if path == EMBEDDING && width == other => {
                    WeightsError::Vocabulary { path: file, found: *found, needed: *needed }
                }
                _ => {
                    let skipped = path.into();
                    WeightsError::Shape { path: file, tensor: stored.name, skipped, found, needed }
                }
            });
        }
        if tensor.element != element {
            let (found, needed) = (tensor.element.dtype(), element.dtype());
            return Err(WeightsError::Element {
                path: self.path.clone(),
                tensor: stored.name,
                found,
                needed,
            });
        }
        // A trained tensor would stop the first step; a frozen one is only read.
        let least = if path.ends_with("running_var") { 0.0 } else { f32::MIN };
        if let Some(value) = tensor.values.iter().find(|value| !(least..=f32::MAX).contains(*value)) {
            let (path, tensor, value) = (self.path.clone(), stored.name, *value);
            return Err(WeightsError::Value { path, tensor, value });
        }
        Ok(if stored.transposed { tensor.transposed().values } else { tensor.values })
    }
}

/// Returns the paths of the tensors of a module that `skip` selects.
fn skipped(specs: Vec<ParamSpec>, skip: &[Selector]) -> Result<BTreeSet<String>, WeightsError> {
    let model = Layout::new(specs);
    let selected = |selector: &Selector| {
        let selected = model.spans().iter().filter(|span| selector.selects(&span.spec, &model));
        selected.map(|span| span.spec.name.clone()).collect::<BTreeSet<_>>()
    };
    let mut all = BTreeSet::new();
    for selector in skip {
        let mut found = selected(selector);
        if found.is_empty() {
            let example = model.spans().last().map(|span| span.spec.name.clone()).unwrap_or_default();
            return Err(WeightsError::SkipsNothing { selector: selector.to_string(), example });
        }
        all.append(&mut found);
    }
    match !all.is_empty() && all.len() == model.spans().len() {
        true => Err(WeightsError::NothingLeft),
        false => Ok(all),
    }
}

/// Describes a tensor by what selects it: its name and shape.
fn spec(name: &str, shape: &[usize]) -> ParamSpec {
    ParamSpec::new(name, shape.to_vec(), Kind::Frozen)
}

/// True if all names have the prefix.
fn are_in(tensors: &[NamedTensor], wrapper: &str) -> bool {
    !tensors.is_empty() && tensors.iter().all(|tensor| tensor.name.starts_with(wrapper))
}

/// Returns the place of a tensor in a file with the module's own names and shapes.
fn as_it_is(path: &str) -> Stored {
    Stored { name: path.into(), transposed: false }
}
