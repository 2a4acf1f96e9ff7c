//! The format for Burn: its own burnpack, as `Module::into_record` writes it.

use std::path::Path;

use burn::tensor::BoolStore;
use burn_pack::{Bytes, DType, MAGIC_NUMBER, Reader, Tensor, Writer};
use kolo_ddp::Element;

use crate::description::Description;
use crate::error::WeightsError;
use crate::format::{NamedTensor, Stored, WeightFormat};

const KEY: &str = "kolo";

pub(super) const ENTRY: WeightFormat = WeightFormat {
    name: "burn",
    about: "burnpack, for `ModuleRecord::load` and `load_record` of the same Burn module",
    check: |_| Ok(()),
    stored: |path| Stored { name: path.into(), transposed: false },
    encode,
    recognizes: |data| data.starts_with(&MAGIC_NUMBER.to_le_bytes()),
    description,
    decode,
    folder: None,
};

fn encode(tensors: Vec<NamedTensor>, description: &Description) -> Result<Vec<u8>, WeightsError> {
    let tensors = tensors.into_iter().map(|tensor| {
        let data = Bytes::from_bytes_vec(tensor.to_bytes());
        Tensor::new(tensor.name, dtype(tensor.element), tensor.shape, None, data)
    });
    let written = Writer::new(tensors.collect()).with_metadata(KEY, &description.json()?).into_bytes();
    let fail = |e: burn_pack::Error| WeightsError::Encode { what: "a burnpack file", problem: e.to_string() };
    written.map(|bytes| bytes.to_vec()).map_err(fail)
}

fn description(path: &Path) -> Option<String> {
    Reader::from_file_exact(path).ok()?.metadata().get(KEY).cloned()
}

fn decode(path: &Path, data: Vec<u8>) -> Result<Vec<NamedTensor>, WeightsError> {
    let damaged = |e: burn_pack::Error| WeightsError::Damaged { path: path.into(), problem: e.to_string() };
    let tensors =
        Reader::from_bytes(Bytes::from_bytes_vec(data)).and_then(Reader::into_tensors).map_err(damaged)?;
    let read = |tensor: Tensor| {
        let (name, dtype, shape, _, bytes) = tensor.into_parts().map_err(damaged)?;
        let element = match dtype {
            DType::F32 => Element::F32,
            DType::I64 => Element::I64,
            DType::Bool(BoolStore::Native | BoolStore::U8) => Element::Bool,
            other => {
                let dtype = format!("{other:?}");
                return Err(WeightsError::DType { path: path.into(), tensor: name, dtype });
            }
        };
        Ok(NamedTensor::of_bytes(name, shape.to_vec(), element, &bytes))
    };
    tensors.into_iter().map(read).collect()
}

/// Returns burnpack's name for a type of elements.
fn dtype(element: Element) -> DType {
    match element {
        Element::F32 => DType::F32,
        Element::I64 => DType::I64,
        Element::Bool => DType::Bool(BoolStore::Native),
    }
}
