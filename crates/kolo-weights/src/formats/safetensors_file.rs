//! Files of safetensors, which several formats share.

use std::collections::HashMap;
use std::path::Path;

use kolo_ddp::Element;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::error::WeightsError;
use crate::format::NamedTensor;

/// A tensor with its name, type, shape and little-endian elements.
pub(super) type Raw = (String, Dtype, Vec<usize>, Vec<u8>);

/// Returns a tensor as it is stored.
pub(super) fn raw(tensor: NamedTensor) -> Raw {
    let data = tensor.to_bytes();
    (tensor.name, dtype(tensor.element), tensor.shape, data)
}

/// Encodes a file with one entry of metadata: the order of several would differ between files.
pub(super) fn encode(tensors: Vec<Raw>, key: &str, value: String) -> Result<Vec<u8>, WeightsError> {
    let fail = |e: safetensors::SafeTensorError| WeightsError::Encode {
        what: "a safetensors file",
        problem: e.to_string(),
    };
    let views = tensors
        .iter()
        .map(|(name, dtype, shape, data)| Ok((name.as_str(), TensorView::new(*dtype, shape.clone(), data)?)));
    let views = views.collect::<Result<Vec<_>, _>>().map_err(fail)?;
    safetensors::serialize(views, Some(HashMap::from([(key.to_owned(), value)]))).map_err(fail)
}

/// Returns true for the beginning of a file: eight bytes of length, then JSON.
pub(super) fn recognizes(data: &[u8]) -> bool {
    data.get(8) == Some(&b'{')
}

/// Decodes those tensors of a file whose names `is_needed` accepts.
pub(super) fn decode(
    path: &Path,
    data: &[u8],
    is_needed: impl Fn(&str) -> bool,
) -> Result<Vec<NamedTensor>, WeightsError> {
    let damaged =
        |e: safetensors::SafeTensorError| WeightsError::Damaged { path: path.into(), problem: e.to_string() };
    let tensors = SafeTensors::deserialize(data).map_err(damaged)?;
    let read = |(name, view): (&str, TensorView<'_>)| {
        let known = [Element::F32, Element::I64, Element::Bool].into_iter();
        match known.into_iter().find(|element| dtype(*element) == view.dtype()) {
            Some(element) => {
                Ok(NamedTensor::of_bytes(name.into(), view.shape().to_vec(), element, view.data()))
            }
            None => {
                let dtype = format!("{:?}", view.dtype());
                Err(WeightsError::DType { path: path.into(), tensor: name.into(), dtype })
            }
        }
    };
    tensors.iter().filter(|(name, _)| is_needed(name)).map(read).collect()
}

/// Returns safetensors' name for a type of elements.
fn dtype(element: Element) -> Dtype {
    match element {
        Element::F32 => Dtype::F32,
        Element::I64 => Dtype::I64,
        Element::Bool => Dtype::BOOL,
    }
}
