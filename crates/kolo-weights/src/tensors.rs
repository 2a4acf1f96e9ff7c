//! The weights in a checkpoint.

use kolo_ddp::checkpoint::{Reader, Set};
use kolo_ddp::{Element, Kind, Layout, ParamSpec};

use crate::error::WeightsError;
use crate::format::NamedTensor;

/// Reads all weights of a checkpoint, under their paths in the model.
pub(crate) fn tensors(reader: &Reader) -> Result<Vec<NamedTensor>, WeightsError> {
    // Reading does not depend on which of them are trained.
    let spec = |(name, shape, element): (&str, &[usize], Element)| ParamSpec {
        element,
        ..ParamSpec::new(name, shape.to_vec(), Kind::Frozen)
    };
    let layout = Layout::new(reader.tensors(Set::Weights).into_iter().map(spec).collect());
    let mut values = vec![0.0; layout.len()];
    reader.read(Set::Weights, "", &layout, 0, &mut values)?;
    let tensors = layout.spans().iter().map(|span| NamedTensor {
        name: span.spec.name.clone(),
        shape: span.spec.shape.clone(),
        element: span.spec.element,
        values: values[span.range()].to_vec(),
    });
    Ok(tensors.collect())
}
