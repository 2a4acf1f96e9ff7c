//! The formats of files of weights, one file each.

mod burn;
mod safetensors_file;
mod torchvision;
mod transformers;

use crate::error::WeightsError;
use crate::format::WeightFormat;

pub use torchvision::{TORCHVISION_MODELS, torchvision_name};
pub(crate) use transformers::check_shapes;
pub use transformers::{is_transformers, weights_in};

/// All formats. The command line's help, the error messages and [`load`](crate::load) read this table.
pub static FORMATS: &[WeightFormat] = &[torchvision::ENTRY, burn::ENTRY, transformers::ENTRY];

/// Returns the format `name`.
///
/// # Errors
///
/// There is no such format; lists the known ones.
pub fn find(name: &str) -> Result<&'static WeightFormat, WeightsError> {
    let found = FORMATS.iter().find(|format| format.name == name);
    let known = || FORMATS.iter().map(|format| format.name);
    Ok(found.ok_or_else(|| kolo_recipe::Error::unknown("--format", name, known()))?)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use kolo_ddp::Element;
    use kolo_ddp::element::of_integers;

    use super::*;
    use crate::description::Description;
    use crate::format::NamedTensor;

    fn tensor(shape: &[usize]) -> NamedTensor {
        let values = (0..shape.iter().product()).map(|i: usize| i as f32).collect();
        NamedTensor { name: "a".into(), shape: shape.to_vec(), element: Element::F32, values }
    }

    #[test]
    fn no_bytes_make_a_reader_panic() {
        let description = Description {
            kolo: "0".into(),
            model: "resnet18".into(),
            stem: None,
            context: None,
            end_of_document: None,
            tokenizer: None,
            data: "a".into(),
            step: 3,
            preprocessing: None,
        };
        for format in FORMATS {
            let tensors = || {
                let number = |name: &str, element: Element, values: Vec<f32>| NamedTensor {
                    name: name.into(),
                    shape: vec![values.len() / element.values()],
                    element,
                    values,
                };
                // The names decide what a file of safetensors is for.
                let embedding = NamedTensor { name: "wte.weight".into(), ..tensor(&[2, 2]) };
                let first = if format.folder.is_some() { embedding } else { tensor(&[3, 2]) };
                let mut all = vec![
                    first,
                    NamedTensor { name: "bn1.running_var".into(), ..tensor(&[4]) },
                    number("mask", Element::Bool, vec![1.0, 0.0, 1.0]),
                    number("positions", Element::I64, of_integers([3, -1])),
                ];
                all.sort_by(|a, b| a.name.cmp(&b.name));
                all
            };
            let whole = (format.encode)(tensors(), &description).unwrap();
            let decode = |data: &[u8]| (format.decode)(Path::new("x"), data.to_vec());
            assert!((format.recognizes)(&whole));
            assert_eq!(FORMATS.iter().filter(|other| (other.recognizes)(&whole)).count(), 1);
            let mut found = decode(&whole).unwrap();
            found.sort_by(|a, b| a.name.cmp(&b.name));
            assert_eq!(found, tensors(), "{}", format.name);
            for length in 0..whole.len() {
                let error = decode(&whole[..length]).unwrap_err();
                assert!(
                    matches!(error, WeightsError::Damaged { .. }),
                    "{} cut at {length}: {error}",
                    format.name
                );
            }
            for bit in 0..8 * whole.len() {
                let mut flipped = whole.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                // A flipped bit may change a value, but shapes and values must still agree.
                for tensor in decode(&flipped).into_iter().flatten() {
                    let len = tensor.shape.iter().product::<usize>() * tensor.element.values();
                    assert_eq!(tensor.values.len(), len, "{}, bit {bit}: {}", format.name, tensor.name);
                }
            }
        }
    }
}
