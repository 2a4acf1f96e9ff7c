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
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    use ::burn::tensor::BoolStore;
    use burn_pack::{Bytes, DType, Tensor, Writer};
    use kolo_ddp::Element;
    use kolo_ddp::element::of_integers;
    use safetensors::tensor::{Dtype, TensorView};

    use super::*;
    use crate::description::Description;
    use crate::format::{Draft, NamedTensor, TensorHead, Tensors};

    /// Tensors that are all there.
    pub(super) struct InMemory(Vec<TensorHead>, Vec<NamedTensor>);

    impl InMemory {
        pub(super) fn new(tensors: Vec<NamedTensor>) -> Self {
            let head = |tensor: &NamedTensor| TensorHead {
                name: tensor.name.clone(),
                shape: tensor.shape.clone(),
                element: tensor.element,
            };
            InMemory(tensors.iter().map(head).collect(), tensors)
        }
    }

    impl Tensors for InMemory {
        fn heads(&self) -> &[TensorHead] {
            &self.0
        }

        fn bytes(&self, number: usize) -> Result<Vec<u8>, WeightsError> {
            Ok(self.1[number].to_bytes())
        }
    }

    /// Returns the bytes of a file.
    pub(super) fn written(write: impl FnOnce(&Draft<'_>) -> Result<usize, WeightsError>) -> Vec<u8> {
        let file = tempfile::NamedTempFile::new().unwrap();
        let count = write(&Draft { path: file.path(), out: Path::new("x") }).unwrap();
        let bytes = fs::read(file.path()).unwrap();
        // What is told the user is what is there.
        if let Ok(tensors) = safetensors::SafeTensors::deserialize(&bytes) {
            assert_eq!(count, tensors.len());
        }
        bytes
    }

    fn tensor(shape: &[usize]) -> NamedTensor {
        let values = (0..shape.iter().product()).map(|i: usize| i as f32).collect();
        NamedTensor { name: "a".into(), shape: shape.to_vec(), element: Element::F32, values }
    }

    fn description() -> Description {
        Description {
            kolo: "0".into(),
            model: "resnet18".into(),
            stem: None,
            context: None,
            end_of_document: None,
            tokenizer: None,
            data: "a".into(),
            step: 3,
            preprocessing: None,
        }
    }

    /// Tensors of each type; the names decide what a file of safetensors is for.
    fn tensors(format: &WeightFormat) -> Vec<NamedTensor> {
        let number = |name: &str, element: Element, values: Vec<f32>| NamedTensor {
            name: name.into(),
            shape: vec![values.len() / element.values()],
            element,
            values,
        };
        let embedding = NamedTensor { name: "wte.weight".into(), ..tensor(&[2, 2]) };
        let first = if format.folder.is_some() { embedding } else { tensor(&[3, 2]) };
        vec![
            NamedTensor { name: "bn1.running_var".into(), ..tensor(&[4]) },
            first,
            number("positions", Element::I64, of_integers([3, -1])),
            number("mask", Element::Bool, vec![1.0, 0.0, 1.0]),
        ]
    }

    /// The bytes of a whole file from the formats' own crates, with all tensors in memory.
    fn whole(format: &WeightFormat) -> Vec<u8> {
        let (tensors, description) = (tensors(format), description().json().unwrap());
        if format.name == "burn" {
            let tensor = |tensor: &NamedTensor| {
                let dtype = match tensor.element {
                    Element::F32 => DType::F32,
                    Element::I64 => DType::I64,
                    Element::Bool => DType::Bool(BoolStore::Native),
                };
                let data = Bytes::from_bytes_vec(tensor.to_bytes());
                Tensor::new(tensor.name.clone(), dtype, tensor.shape.clone(), None, data)
            };
            let writer = Writer::new(tensors.iter().map(tensor).collect());
            return writer.with_metadata("kolo", &description).into_bytes().unwrap().to_vec();
        }
        let dtype = |element| match element {
            Element::F32 => Dtype::F32,
            Element::I64 => Dtype::I64,
            Element::Bool => Dtype::BOOL,
        };
        let raw = |tensor: &NamedTensor| {
            (tensor.name.clone(), dtype(tensor.element), tensor.shape.clone(), tensor.to_bytes())
        };
        let mut raw: Vec<_> = tensors.iter().map(raw).collect();
        let mut metadata = vec![("kolo", description)];
        match format.folder {
            Some(_) => metadata.insert(0, ("format", "pt".into())),
            None => {
                let count = "bn1.num_batches_tracked".into();
                raw.push((count, Dtype::I64, Vec::new(), 3_u64.to_le_bytes().to_vec()));
            }
        }
        let views = raw.iter().map(|(name, dtype, shape, data)| {
            (name.as_str(), TensorView::new(*dtype, shape.clone(), data).unwrap())
        });
        let plain = safetensors::serialize(views, None).unwrap();
        let length = usize::from_le_bytes(plain[..8].try_into().unwrap());
        let (header, data) = plain[8..].split_at(length);
        let text = |text: &str| serde_json::Value::from(text).to_string();
        let entries: Vec<String> =
            metadata.iter().map(|(key, value)| format!("{}:{}", text(key), text(value))).collect();
        let mut head = format!("{{\"__metadata__\":{{{}}},", entries.join(",")).into_bytes();
        head.extend_from_slice(&header.trim_ascii_end()[1..]);
        head.resize(head.len().next_multiple_of(8), b' ');
        [&(head.len() as u64).to_le_bytes(), &*head, data].concat()
    }

    /// Writes a file tensor by tensor.
    fn streamed(format: &WeightFormat) -> Vec<u8> {
        let tensors: Arc<dyn Tensors> = Arc::new(InMemory::new(tensors(format)));
        written(|draft| (format.write)(&tensors, &description(), draft))
    }

    #[test]
    fn a_file_that_is_written_tensor_by_tensor_has_the_bytes_of_the_formats_crates() {
        for format in FORMATS {
            assert_eq!(streamed(format), whole(format), "{}", format.name);
        }
    }

    #[test]
    fn no_bytes_make_a_reader_panic() {
        for format in FORMATS {
            let sorted = |mut tensors: Vec<NamedTensor>| {
                tensors.sort_by(|a, b| a.name.cmp(&b.name));
                tensors
            };
            let whole = streamed(format);
            let decode = |data: &[u8]| (format.decode)(Path::new("x"), data.to_vec());
            assert!((format.recognizes)(&whole));
            assert_eq!(FORMATS.iter().filter(|other| (other.recognizes)(&whole)).count(), 1);
            assert_eq!(sorted(decode(&whole).unwrap()), sorted(tensors(format)), "{}", format.name);
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
