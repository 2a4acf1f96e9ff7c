//! torchvision's names for the parts of a network, for the exchange of weights.
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

/// The models that torchvision has too, under the same names.
pub const TORCHVISION_MODELS: [&str; 4] = ["resnet18", "resnet34", "resnet50", "vgg16"];

/// A parameter's name in a torchvision checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorchvisionName {
    /// The key.
    pub name: String,
    /// True if the matrix is transposed there.
    pub transposed: bool,
}

/// Returns torchvision's name for the parameter or running statistic at `burn_path` (`layer1.0.bn1.gamma`).
pub fn torchvision_name(burn_path: &str) -> TorchvisionName {
    let name =
        burn_path.replace(".downsample.conv.", ".downsample.0.").replace(".downsample.bn.", ".downsample.1.");
    let name = match name.rsplit_once('.') {
        Some((module, "gamma")) => format!("{module}.weight"),
        Some((module, "beta")) => format!("{module}.bias"),
        _ => name,
    };
    let linear = name == "fc.weight" || (name.starts_with("classifier.") && name.ends_with(".weight"));
    TorchvisionName { transposed: linear, name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::MODELS;

    #[test]
    fn the_table_says_which_models_are_torchvisions() {
        let of_torchvision = MODELS.iter().filter(|model| model.about().starts_with("torchvision's"));
        assert!(of_torchvision.map(|model| model.name()).eq(TORCHVISION_MODELS));
    }

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
            assert_eq!(torchvision_name(here), TorchvisionName { name: there.into(), transposed });
        }
    }
}
