//! The format for PyTorch: a safetensors file with the names and shapes of torchvision's `state_dict()`.
//!
//! | here | torchvision | shape |
//! |---|---|---|
//! | `….weight` of a convolution | `….weight` | the same |
//! | `….gamma`, `….beta` of a batch norm | `….weight`, `….bias` | the same |
//! | `….running_mean`, `….running_var` | the same | the same |
//! | `….downsample.conv.…`, `….downsample.bn.…` | `….downsample.0.…`, `….downsample.1.…` | the same |
//! | `fc.weight` | `fc.weight` | transposed: `[in, out]` here, `[out, in]` there |
//! | `fc.bias` | `fc.bias` | the same |
//! | `features.….weight`, `….bias` of VGG | the same | the same |
//! | `classifier.….weight` of VGG | the same | transposed, as `fc.weight` |
//! | `classifier.….bias` of VGG | the same | the same |
//!
//! torchvision also counts the batches of a batch norm (`num_batches_tracked`). Kolo has no counterpart, and
//! a file for torchvision gets the number of steps. One number differs slightly: to the running variance,
//! PyTorch adds the unbiased variance of a batch, Burn the biased one.

use std::path::Path;
use std::sync::Arc;

use kolo_recipe::{Recipe, Stem};

use super::safetensors_file::{self, KEY, Part};
use super::transformers;
use crate::description::Description;
use crate::error::WeightsError;
use crate::format::{Draft, NamedTensor, Stored, Tensors, WeightFormat};

/// The models that torchvision has too, under the same names.
pub const TORCHVISION_MODELS: [&str; 4] = ["resnet18", "resnet34", "resnet50", "vgg16"];

/// Additional entry of PyTorch's batch norms: a count of the batches, which is the number of steps.
const COUNT: &str = "num_batches_tracked";

pub(super) const ENTRY: WeightFormat = WeightFormat {
    name: "torchvision",
    about: "safetensors, for `load_state_dict(strict=True)` of torchvision's model of the same name",
    check,
    stored: torchvision_name,
    write,
    recognizes,
    description: safetensors_file::description,
    decode,
    folder: None,
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

/// Returns torchvision's name for the parameter or running statistic at `burn_path` (`layer1.0.bn1.gamma`).
pub fn torchvision_name(burn_path: &str) -> Stored {
    let name =
        burn_path.replace(".downsample.conv.", ".downsample.0.").replace(".downsample.bn.", ".downsample.1.");
    let name = match name.rsplit_once('.') {
        Some((module, "gamma")) => format!("{module}.weight"),
        Some((module, "beta")) => format!("{module}.bias"),
        _ => name,
    };
    let linear = name == "fc.weight" || (name.starts_with("classifier.") && name.ends_with(".weight"));
    Stored { transposed: linear, name }
}

fn write(
    tensors: &Arc<dyn Tensors>,
    description: &Description,
    draft: &Draft<'_>,
) -> Result<usize, WeightsError> {
    let mut parts = safetensors_file::parts(&**tensors);
    let norms = tensors.heads().iter().filter_map(|head| head.name.strip_suffix("running_var"));
    parts.extend(norms.map(|norm| Part::integer(format!("{norm}{COUNT}"), description.step)));
    safetensors_file::write(parts, &**tensors, &[(KEY, description.json()?)], draft)
}

/// True for safetensors that are not of transformers.
fn recognizes(data: &[u8]) -> bool {
    safetensors_file::recognizes(data) && !transformers::recognizes(data)
}

fn decode(path: &Path, data: Vec<u8>) -> Result<Vec<NamedTensor>, WeightsError> {
    safetensors_file::decode(path, &data, |name| !name.ends_with(COUNT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_name_is_translated() {
        for (here, there, transposed) in [
            ("conv1.weight", "conv1.weight", false),
            ("bn1.gamma", "bn1.weight", false),
            ("layer4.2.bn3.beta", "layer4.2.bn3.bias", false),
            ("layer1.0.bn1.running_mean", "layer1.0.bn1.running_mean", false),
            ("layer2.0.downsample.conv.weight", "layer2.0.downsample.0.weight", false),
            ("layer2.0.downsample.bn.gamma", "layer2.0.downsample.1.weight", false),
            ("layer2.0.downsample.bn.running_var", "layer2.0.downsample.1.running_var", false),
            ("fc.weight", "fc.weight", true),
            ("fc.bias", "fc.bias", false),
            ("features.28.weight", "features.28.weight", false),
            ("classifier.3.weight", "classifier.3.weight", true),
            ("classifier.3.bias", "classifier.3.bias", false),
        ] {
            assert_eq!(torchvision_name(here), Stored { name: there.into(), transposed });
        }
    }
}
