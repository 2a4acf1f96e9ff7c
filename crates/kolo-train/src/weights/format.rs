//! What a format of files of weights is: one line of the table in `formats/`.

use std::path::Path;

use kolo_ddp::Element;

use super::description::Description;
use super::error::WeightsError;
use crate::config::Recipe;
use crate::error::Error;

/// A format in which weights are exported, and from which they are loaded.
pub struct WeightFormat {
    /// What the user types.
    pub name: &'static str,
    /// One line for the help text.
    pub about: &'static str,
    /// Refuses a run whose model the format is not for.
    pub(super) check: fn(run: &Recipe) -> Result<(), WeightsError>,
    /// Where a file has the tensor at a path of the model.
    pub(super) stored: fn(path: &str) -> Stored,
    /// The file: its tensors, as they are stored there, and the description as JSON.
    pub(super) encode: fn(Vec<NamedTensor>, &Description) -> Result<Vec<u8>, Error>,
    /// Whether a file that begins like this is one of the format.
    pub(super) recognises: fn(&[u8]) -> bool,
    /// The tensors of the file at a path, whose contents these are.
    pub(super) decode: fn(&Path, Vec<u8>) -> Result<Vec<NamedTensor>, WeightsError>,
}

/// Where a file has a tensor of the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its name in the file.
    pub name: String,
    /// Whether it is a matrix that is transposed there.
    pub transposed: bool,
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
    /// Its elements in row-major order, each as flat memory has it.
    pub values: Vec<f32>,
}

impl NamedTensor {
    /// From a file, whose elements are little-endian there.
    pub(super) fn of_bytes(name: String, shape: Vec<usize>, element: Element, bytes: &[u8]) -> Self {
        NamedTensor { name, shape, element, values: element.from_bytes(bytes) }
    }

    /// Its elements as a file has them, little-endian.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        self.element.to_bytes(&self.values)
    }

    /// With rows and columns exchanged, if it is a matrix of floats.
    pub(super) fn transposed(self) -> Self {
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
