//! Numbers of parameters of the table's models.

use burn::tensor::Device;
use kolo_burn::BurnModel;
use kolo_data::SampleShape;
use kolo_ddp::Kind;
use kolo_ddp::binding::{Binding, Which};
use kolo_weights::TORCHVISION_MODELS;

use crate::error::Error;
use crate::image_model::{Blueprint, ImageModel};

/// Images of ImageNet, of which torchvision's models are.
const IMAGENET: SampleShape =
    SampleShape { channels: 3, height: 224, width: 224, classes: 1000, is_text: false };
/// Images of Fashion-MNIST, for which the other models are.
const FASHION_MNIST: SampleShape =
    SampleShape { channels: 1, height: 28, width: 28, classes: 10, is_text: false };

/// Number of parameters of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelSize {
    /// Of all its tensors.
    pub all: usize,
    /// Of the largest one.
    pub largest: usize,
}

/// A model whose parameters can be counted.
pub trait Counted {
    /// Returns the size of a language model for so many tokens, by default bytes, or of another model for its
    /// usual images: ImageNet's for those of torchvision, else Fashion-MNIST's.
    ///
    /// # Errors
    ///
    /// A model of images has no tokens, or cannot be built.
    fn size(&self, vocabulary: Option<usize>) -> Result<ModelSize, Error>;
}

/// Returns the size of a model for images, by its name and its constructor.
pub(crate) fn size_for_images<M: ImageModel>(
    name: &str,
    build: impl Fn(&Blueprint) -> M,
    vocabulary: Option<usize>,
) -> Result<ModelSize, Error> {
    if let Some(tokens) = vocabulary {
        let problem = format!("{name} sees images and has no tokens; leave it out");
        return Err(kolo_recipe::Error::setting("--vocabulary", tokens, problem).into());
    }
    let samples = if TORCHVISION_MODELS.contains(&name) { IMAGENET } else { FASHION_MNIST };
    let device = Device::flex().autodiff();
    let model = BurnModel::from(build(&Blueprint::plain(0, samples, &device)));
    let specs = model
        .inventory(Which::All)
        .map_err(kolo_ddp::Error::from)
        .map_err(kolo_burn_train::Error::from)?
        .specs;
    let parameters = specs.iter().filter(|spec| matches!(spec.kind, Kind::Parameter { .. }));
    let sizes: Vec<usize> = parameters.map(|spec| spec.shape.iter().product()).collect();
    Ok(ModelSize { all: sizes.iter().sum(), largest: sizes.into_iter().max().unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{MODELS, find};

    /// The numbers in the help, and torchvision's (`sum(p.numel() for p in model.parameters())`).
    #[test]
    fn each_model_has_the_size_that_its_line_says() {
        // The real vgg16 takes long to build here.
        for model in MODELS.iter().filter(|model| model.name() != "vgg16") {
            let all = model.size(None).unwrap().all as f64;
            let words = [
                format!(" {:.1} million parameters", all / 1e6),
                format!(" {:.0} million parameters", all / 1e6),
                format!(" {:.1} billion parameters", all / 1e9),
                format!(" {:.0} thousand parameters", all / 1e3),
            ];
            assert!(words.iter().any(|words| model.about().contains(words)), "{}: {all}", model.about());
        }
        // Its largest tensor is that of the last stage's 3×3 convolutions.
        let expected = ModelSize { all: 11_689_512, largest: 512 * 512 * 9 };
        assert_eq!(find("resnet18").ok().unwrap().size(None).unwrap(), expected);
        // 784·300 + 300, 300·100 + 100, 100·10 + 10.
        let expected = ModelSize { all: 266_610, largest: 784 * 300 };
        assert_eq!(find("mlp").ok().unwrap().size(None).unwrap(), expected);
        let error = find("mlp").ok().unwrap().size(Some(9)).unwrap_err().to_string();
        assert_eq!(error, "--vocabulary 9: mlp sees images and has no tokens; leave it out");
    }
}
