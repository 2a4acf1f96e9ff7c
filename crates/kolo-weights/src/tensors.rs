//! The weights in a checkpoint, or their averages.

use std::collections::HashMap;

use kolo_ddp::checkpoint::{Reader, Set};
use kolo_ddp::optimizer::AVERAGE_OFFSET;
use kolo_ddp::{Element, Kind, Layout, ParamSpec};

use crate::error::WeightsError;
use crate::format::NamedTensor;

/// Reads all weights of a checkpoint, under their paths in the model; of a run that averages them (`--ema`),
/// the averages.
pub(crate) fn tensors(reader: &Reader) -> Result<Vec<NamedTensor>, WeightsError> {
    // Reading does not depend on which of them are trained.
    let spec = |(name, shape, element): (&str, &[usize], Element)| ParamSpec {
        element,
        ..ParamSpec::new(name, shape.to_vec(), Kind::Frozen)
    };
    let layout = Layout::new(reader.tensors(Set::Weights).into_iter().map(spec).collect());
    let mut values = vec![0.0; layout.len()];
    reader.read(Set::Weights, "", &layout, 0, &mut values)?;
    add_offsets(reader, &layout, &mut values)?;
    let tensors = layout.spans().iter().map(|span| NamedTensor {
        name: span.spec.name.clone(),
        shape: span.spec.shape.clone(),
        element: span.spec.element,
        values: values[span.range()].to_vec(),
    });
    Ok(tensors.collect())
}

/// Adds the distances of the averages from the weights, if the checkpoint has them.
fn add_offsets(reader: &Reader, weights: &Layout, values: &mut [f32]) -> Result<(), WeightsError> {
    let prefix = format!("{AVERAGE_OFFSET}/");
    let optimizer = reader.tensors(Set::Optimizer).into_iter();
    let averaged = optimizer.filter_map(|(name, shape, _)| Some((name.strip_prefix(&prefix)?, shape)));
    let spec = |(name, shape): (&str, &[usize])| {
        ParamSpec::new(name, shape.to_vec(), Kind::Parameter { decay: false })
    };
    let averaged = Layout::new(averaged.map(spec).collect());
    let mut offsets = vec![0.0; averaged.len()];
    reader.read(Set::Optimizer, &prefix, &averaged, 0, &mut offsets)?;
    let places: HashMap<&str, _> =
        weights.spans().iter().map(|span| (span.spec.name.as_str(), span.range())).collect();
    for span in averaged.spans() {
        let Some(place) = places.get(span.spec.name.as_str()) else { continue };
        let values = values[place.clone()].iter_mut();
        values.zip(&offsets[span.range()]).for_each(|(value, offset)| *value += offset);
    }
    Ok(())
}
