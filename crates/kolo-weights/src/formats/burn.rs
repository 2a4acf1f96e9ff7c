//! The format for Burn: its own burnpack, as `Module::into_record` writes it.

use std::path::Path;
use std::sync::Arc;

use burn::tensor::BoolStore;
use burn_pack::{Bytes, DType, MAGIC_NUMBER, Reader, Tensor, Writer};
use kolo_ddp::Element;

use crate::description::Description;
use crate::error::WeightsError;
use crate::format::{Draft, NamedTensor, Stored, TensorHead, Tensors, WeightFormat};

const KEY: &str = "kolo";

pub(super) const ENTRY: WeightFormat = WeightFormat {
    name: "burn",
    about: "burnpack, for `ModuleRecord::load` and `load_record` of the same Burn module",
    check: |_| Ok(()),
    stored: |path| Stored { name: path.into(), transposed: false },
    write,
    recognizes: |data| data.starts_with(&MAGIC_NUMBER.to_le_bytes()),
    description,
    decode,
    folder: None,
};

fn write(
    tensors: &Arc<dyn Tensors>,
    description: &Description,
    draft: &Draft<'_>,
) -> Result<usize, WeightsError> {
    let deferred = |(number, head): (usize, &TensorHead)| {
        let source = Arc::clone(tensors);
        let read = move || match source.bytes(number) {
            Ok(bytes) => Ok(Bytes::from_bytes_vec(bytes)),
            Err(error) => Err(burn_pack::Error::IoError(error.to_string())),
        };
        let (name, shape) = (head.name.clone(), head.shape.clone());
        Tensor::deferred(name, dtype(head.element), shape, None, head.bytes(), read)
    };
    let all = tensors.heads().iter().enumerate().map(deferred).collect();
    let writer = Writer::new(all).with_metadata(KEY, &description.json()?).auto_extension(false);
    // Its errors hold the words of the system's.
    let fail = |e: burn_pack::Error| WeightsError::Encode { what: draft.out.into(), problem: e.to_string() };
    writer.write_to_file_in_place(draft.path).map_err(fail)?;
    Ok(tensors.heads().len())
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
