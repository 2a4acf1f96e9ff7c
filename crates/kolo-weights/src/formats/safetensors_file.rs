//! Files of safetensors, which several formats share.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use kolo_ddp::Element;
use safetensors::tensor::{Dtype, Metadata, SafeTensors, TensorInfo, TensorView};
use serde_json::Value;

use crate::error::WeightsError;
use crate::format::{Draft, NamedTensor, TensorHead, Tensors};

/// Key of Kolo's description in the metadata.
pub(super) const KEY: &str = "kolo";

/// Key of the metadata in the header.
const METADATA: &str = "__metadata__";

/// Bytes of the header's length, and the alignment of tensors.
const LENGTH: usize = 8;

/// Largest header that the format allows.
const MOST: u64 = 100_000_000;

/// A tensor of a file that is written.
pub(super) struct Part {
    head: TensorHead,
    elements: Elements,
}

enum Elements {
    /// Number of the tensor that has them.
    Of(usize),
    /// Little-endian elements.
    Given(Vec<u8>),
}

/// Returns the parts of a file for all tensors.
pub(super) fn parts(tensors: &dyn Tensors) -> Vec<Part> {
    let heads = tensors.heads().iter().cloned().enumerate();
    heads.map(|(number, head)| Part { head, elements: Elements::Of(number) }).collect()
}

impl Part {
    /// Returns a part of one integer.
    pub(super) fn integer(name: String, number: u64) -> Self {
        let head = TensorHead { name, shape: Vec::new(), element: Element::I64 };
        Part { head, elements: Elements::Given(number.to_le_bytes().to_vec()) }
    }
}

/// Writes a file with these entries of metadata, in their order: the crate's own would differ between files.
/// Returns the number of its tensors.
pub(super) fn write(
    mut parts: Vec<Part>,
    tensors: &dyn Tensors,
    metadata: &[(&str, String)],
    draft: &Draft<'_>,
) -> Result<usize, WeightsError> {
    // By descending alignment of their types, then by name, as the format's crate orders them.
    parts.sort_by(|a, b| {
        dtype(b.head.element).cmp(&dtype(a.head.element)).then_with(|| a.head.name.cmp(&b.head.name))
    });
    let header = header(&parts, metadata)?;
    let file = File::options().write(true).truncate(true).open(draft.path);
    let mut file = BufWriter::new(file.map_err(|error| draft.failed(error))?);
    let mut put = |data: &[u8]| file.write_all(data).map_err(|error| draft.failed(error));
    put(&(header.len() as u64).to_le_bytes())?;
    put(&header)?;
    for part in &parts {
        match &part.elements {
            Elements::Of(number) => put(&tensors.bytes(*number)?)?,
            Elements::Given(bytes) => put(bytes)?,
        }
    }
    file.flush().map_err(|error| draft.failed(error))?;
    Ok(parts.len())
}

/// Returns the header of a file with these parts.
fn header(parts: &[Part], metadata: &[(&str, String)]) -> Result<Vec<u8>, WeightsError> {
    let fail = |problem: String| WeightsError::Encode { what: "a safetensors file".into(), problem };
    let mut end = 0;
    let info = |Part { head, .. }: &Part| {
        let start = end;
        end += head.bytes();
        let (dtype, shape) = (dtype(head.element), head.shape.clone());
        (head.name.clone(), TensorInfo { dtype, shape, data_offsets: (start, end) })
    };
    let plain = Metadata::new(None, parts.iter().map(info).collect()).map_err(|e| fail(e.to_string()))?;
    let plain = serde_json::to_vec(&plain).map_err(|e| fail(e.to_string()))?;
    let text = |text: &str| Value::from(text).to_string();
    let entries: Vec<String> =
        metadata.iter().map(|(key, value)| format!("{}:{}", text(key), text(value))).collect();
    // A file holds at least one tensor, which follows.
    let mut whole = format!("{{\"{METADATA}\":{{{}}},", entries.join(",")).into_bytes();
    whole.extend_from_slice(plain.get(1..).unwrap_or_default());
    whole.resize(whole.len().next_multiple_of(LENGTH), b' ');
    Ok(whole)
}

/// Returns the description in the header of the file at a path, if it is one of safetensors with such an
/// entry.
pub(super) fn description(path: &Path) -> Option<String> {
    let mut file = kolo_durable::open(path).ok()?;
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
