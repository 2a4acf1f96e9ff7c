//! The format for PyTorch: a safetensors file with the names and shapes of torchvision's `state_dict()`.

use std::collections::HashMap;
use std::path::Path;

use kolo_ddp::Element;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::config::Recipe;
use crate::error::Error;
use crate::models::{Stem, TORCHVISION_MODELS, TorchvisionName, torchvision_name};
use crate::weights::description::Description;
use crate::weights::error::WeightsError;
use crate::weights::format::{NamedTensor, Stored, WeightFormat};

/// Additional entry of PyTorch's batch norms: a count of the batches, which is the number of steps.
const COUNT: &str = "num_batches_tracked";
/// The one key of the file's metadata: the order of several keys would differ between files.
const KEY: &str = "kolo";

pub(super) const ENTRY: WeightFormat = WeightFormat {
    name: "torchvision",
    about: "safetensors, for `load_state_dict(strict=True)` of torchvision's model of the same name",
    check,
    stored,
    encode,
    recognises,
    decode,
};

fn check(run: &Recipe) -> Result<(), WeightsError> {
    let model = run.model.clone();
    if !TORCHVISION_MODELS.contains(&model.as_str()) {
        let known = TORCHVISION_MODELS.join(", ");
        return Err(WeightsError::NotInTorchvision { model, known });
    }
    match run.stem {
        Some(Stem::Small) => Err(WeightsError::OtherStem { model }),
        Some(Stem::ImageNet) | None => Ok(()),
    }
}

fn stored(path: &str) -> Stored {
    let TorchvisionName { name, transposed } = torchvision_name(path);
    Stored { name, transposed }
}

fn encode(tensors: Vec<NamedTensor>, description: &Description) -> Result<Vec<u8>, Error> {
    let steps = description.step.to_le_bytes().to_vec();
    let norms = tensors.iter().filter_map(|tensor| tensor.name.strip_suffix("running_var"));
    let mut all: Vec<(String, Dtype, Vec<usize>, Vec<u8>)> =
        norms.map(|norm| (format!("{norm}{COUNT}"), Dtype::I64, vec![], steps.clone())).collect();
    all.extend(tensors.into_iter().map(|tensor| {
        let data = tensor.to_bytes();
        (tensor.name, dtype(tensor.element), tensor.shape, data)
    }));
    let fail = |e: safetensors::SafeTensorError| Error::Encode {
        what: "a safetensors file",
        problem: e.to_string(),
    };
    let views = all
        .iter()
        .map(|(name, dtype, shape, data)| Ok((name.as_str(), TensorView::new(*dtype, shape.clone(), data)?)));
    let views = views.collect::<Result<Vec<_>, _>>().map_err(fail)?;
    let metadata = HashMap::from([(KEY.to_owned(), description.json()?)]);
    safetensors::serialize(views, Some(metadata)).map_err(fail)
}

/// True for eight bytes of length, then JSON.
fn recognises(data: &[u8]) -> bool {
    data.get(8) == Some(&b'{')
}

fn decode(path: &Path, data: Vec<u8>) -> Result<Vec<NamedTensor>, WeightsError> {
    let damaged =
        |e: safetensors::SafeTensorError| WeightsError::Damaged { path: path.into(), problem: e.to_string() };
    let tensors = SafeTensors::deserialize(&data).map_err(damaged)?;
    let trained = tensors.iter().filter(|(name, _)| !name.ends_with(COUNT));
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
    trained.map(read).collect()
}

/// Returns safetensors' name for a type of elements.
fn dtype(element: Element) -> Dtype {
    match element {
        Element::F32 => Dtype::F32,
        Element::I64 => Dtype::I64,
        Element::Bool => Dtype::BOOL,
    }
}
