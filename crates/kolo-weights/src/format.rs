//! The description of a weights format: one line of the table in `formats/`.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use kolo_ddp::Element;
use kolo_recipe::Recipe;

use crate::description::Description;
use crate::error::WeightsError;

type Write = fn(&Arc<dyn Tensors>, &Description, &Draft<'_>) -> Result<usize, WeightsError>;

/// A format in which weights are exported, and from which they are loaded.
pub struct WeightFormat {
    /// Name on the command line.
    pub name: &'static str,
    /// One line for the help text.
    pub about: &'static str,
    /// Refuses a run whose model the format does not support.
    pub(crate) check: fn(run: &Recipe) -> Result<(), WeightsError>,
    /// Returns the place in a file of the tensor at a path of the model.
    pub(crate) stored: fn(path: &str) -> Stored,
    /// Writes a file: its tensors, as they are stored there, and the description as JSON. Holds one tensor at
    /// a time. Returns their number.
    pub(crate) write: Write,
    /// Returns true for the beginning of a file of this format.
    pub(crate) recognizes: fn(&[u8]) -> bool,
    /// Returns the description, as JSON, in the file at a path; `None` if it is of another format, holds
    /// none, or cannot be read.
    pub(crate) description: fn(&Path) -> Option<String>,
    /// Decodes the tensors from the contents of the file at a path.
    pub(crate) decode: fn(&Path, Vec<u8>) -> Result<Vec<NamedTensor>, WeightsError>,
    /// Files of a format that is a folder; `None` for a single file.
    pub(crate) folder: Option<FolderFormat>,
}

impl WeightFormat {
    /// Returns true if an export is a folder.
    pub fn is_folder(&self) -> bool {
        self.folder.is_some()
    }
}

/// Files of a format that is a folder.
pub(crate) struct FolderFormat {
    /// Name of the file of weights.
    pub(crate) weights: &'static str,
    /// Name of the file that describes the model.
    pub(crate) config: &'static str,
    /// Encodes the latter, for tensors as they are stored.
    pub(crate) encode: fn(&[TensorHead], &Description) -> Result<String, WeightsError>,
}

impl fmt::Debug for WeightFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeightFormat")
            .field("name", &self.name)
            .field("about", &self.about)
            .finish_non_exhaustive()
    }
}

/// Place of a model's tensor in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its name in the file.
    pub name: String,
    /// True if it is a matrix that the file stores transposed.
    pub transposed: bool,
}

/// A file that is written, and gets its name when it is whole.
pub(crate) struct Draft<'a> {
    /// Path of the draft, an empty file.
    pub(crate) path: &'a Path,
    /// Path that it will have.
    pub(crate) out: &'a Path,
}

impl Draft<'_> {
    /// Returns the error of a write that has failed.
    pub(crate) fn failed(&self, error: io::Error) -> WeightsError {
        kolo_recipe::Error::file(self.out, error).into()
    }
}

/// A tensor of a file without its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TensorHead {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) element: Element,
}

impl TensorHead {
    /// Returns the number of bytes in a file.
    pub(crate) fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() * self.element.bytes()
    }

    /// Exchanges rows and columns, as [`NamedTensor::transposed`] does.
    pub(crate) fn transposed(mut self) -> Self {
        if self.shape.len() == 2 && self.element == Element::F32 {
            self.shape.reverse();
        }
        self
    }
}

/// The tensors of a file, each of which is made when its turn to be written comes: so nobody needs all of
/// them at once.
pub(crate) trait Tensors: Send + Sync {
    /// Returns all tensors without their elements.
    fn heads(&self) -> &[TensorHead];

    /// Returns the little-endian elements of a tensor by its number.
    ///
    /// # Errors
    ///
    /// The checkpoint is damaged or cannot be read.
    fn bytes(&self, number: usize) -> Result<Vec<u8>, WeightsError>;
}

/// A tensor with its name.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor {
    /// Path in the model, or name in a file.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// Type of its elements.
    pub element: Element,
    /// Its elements in row-major order, encoded as in flat memory.
    pub values: Vec<f32>,
}

impl NamedTensor {
    /// Makes a tensor from a file's little-endian elements.
    pub(crate) fn of_bytes(name: String, shape: Vec<usize>, element: Element, bytes: &[u8]) -> Self {
        NamedTensor { name, shape, element, values: element.from_bytes(bytes) }
    }

    /// Returns the elements in a file's little-endian form.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.element.to_bytes(&self.values)
    }

    /// Exchanges rows and columns of a matrix of floats; returns other tensors unchanged.
    pub(crate) fn transposed(self) -> Self {
        let (&[rows, columns], Element::F32) = (self.shape.as_slice(), self.element) else { return self };
        let at = |i: usize| self.values[i % rows * columns + i / rows];
        let values = (0..rows * columns).map(at).collect();
        NamedTensor { shape: vec![columns, rows], values, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(shape: &[usize]) -> NamedTensor {
        let values = (0..shape.iter().product()).map(|i: usize| i as f32).collect();
        NamedTensor { name: "a".into(), shape: shape.to_vec(), element: Element::F32, values }
    }

    #[test]
    fn a_matrix_is_transposed_and_back() {
        let there = tensor(&[2, 3]).transposed();
        assert_eq!(
            (there.shape.as_slice(), there.values.as_slice()),
            ([3, 2].as_slice(), [0., 3., 1., 4., 2., 5.].as_slice())
        );
        assert_eq!(there.transposed(), tensor(&[2, 3]));
        assert_eq!(tensor(&[4]).transposed(), tensor(&[4]));
    }
}
