//! Files of safetensors, which several formats share.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use kolo_ddp::Element;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::Value;

use crate::error::WeightsError;
use crate::format::NamedTensor;

/// Key of Kolo's description in the metadata.
pub(super) const KEY: &str = "kolo";

/// Key of the metadata in the header.
const METADATA: &str = "__metadata__";

/// Bytes of the header's length, and the alignment of tensors.
const LENGTH: usize = 8;

/// Largest header that the format allows.
const MOST: u64 = 100_000_000;

/// A tensor with its name, type, shape and little-endian elements.
pub(super) type Raw = (String, Dtype, Vec<usize>, Vec<u8>);

/// Returns a tensor as it is stored.
pub(super) fn raw(tensor: NamedTensor) -> Raw {
    let data = tensor.to_bytes();
    (tensor.name, dtype(tensor.element), tensor.shape, data)
}

/// Encodes a file with these entries of metadata, in their order: the crate's own would differ between files.
pub(super) fn encode(tensors: Vec<Raw>, metadata: &[(&str, String)]) -> Result<Vec<u8>, WeightsError> {
    let fail = |e: safetensors::SafeTensorError| WeightsError::Encode {
        what: "a safetensors file",
        problem: e.to_string(),
    };
    let views = tensors
        .iter()
        .map(|(name, dtype, shape, data)| Ok((name.as_str(), TensorView::new(*dtype, shape.clone(), data)?)));
    let views = views.collect::<Result<Vec<_>, _>>().map_err(fail)?;
    let plain = safetensors::serialize(views, None).map_err(fail)?;
    let (header, tensors) = divided(&plain).unwrap_or((&[], &[]));
    let text = |text: &str| Value::from(text).to_string();
    let entries: Vec<String> =
        metadata.iter().map(|(key, value)| format!("{}:{}", text(key), text(value))).collect();
    // A file holds at least one tensor, which follows.
    let mut whole = format!("{{\"{METADATA}\":{{{}}},", entries.join(",")).into_bytes();
    whole.extend_from_slice(header.trim_ascii_end().get(1..).unwrap_or_default());
    whole.resize(whole.len().next_multiple_of(LENGTH), b' ');
    Ok([&(whole.len() as u64).to_le_bytes(), &*whole, tensors].concat())
}

/// Divides a file into its header and the elements of its tensors.
fn divided(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = data.split_first_chunk::<LENGTH>()?;
    rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)
}

/// Returns the description in the header of the file at a path, if it is one of safetensors with such an
/// entry.
pub(super) fn description(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let mut length = [0; LENGTH];
    file.read_exact(&mut length).ok()?;
    let mut header = Vec::new();
    let length = u64::from_le_bytes(length).min(MOST);
    file.take(length).read_to_end(&mut header).ok()?;
    let header: Value = serde_json::from_slice(&header).ok()?;
    Some(header[METADATA][KEY].as_str()?.to_owned())
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
