//! Numbers of parameters of the table's models.

use burn::module::{ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};
use kolo_data::SampleShape;
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
    build: impl Fn(&Blueprint<'_>) -> M,
    vocabulary: Option<usize>,
) -> Result<ModelSize, Error> {
    if let Some(tokens) = vocabulary {
        let problem = format!("{name} sees images and has no tokens; leave it out");
        return Err(kolo_recipe::Error::setting("--vocabulary", tokens, problem).into());
    }
    let samples = if TORCHVISION_MODELS.contains(&name) { IMAGENET } else { FASHION_MNIST };
    let device = Device::flex().autodiff();
    let mut sizes = Sizes::default();
    build(&Blueprint::plain(0, samples, &device)).visit(&mut sizes);
    let found = sizes.found;
    Ok(ModelSize { all: found.iter().sum(), largest: found.into_iter().max().unwrap_or(0) })
}

/// The sizes of a module's parameters, whose values are not made.
#[derive(Default)]
struct Sizes {
    path: Vec<String>,
    found: Vec<usize>,
}

impl ModuleVisitor for Sizes {
    fn enter_module(&mut self, name: &str, _container_type: &str) {
        self.path.push(name.into());
    }

    fn exit_module(&mut self, _name: &str, _container_type: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        // Running statistics are no parameters.
        if !self.path.last().is_some_and(|name| name.starts_with("running_")) {
            self.found.push(param.lazy_shape().num_elements());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{MODELS, find};

    /// The numbers in the help, and torchvision's (`sum(p.numel() for p in model.parameters())`).
    #[test]
    fn each_model_has_the_size_that_its_line_says() {
        for model in MODELS {
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
