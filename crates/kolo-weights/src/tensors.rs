//! The weights in a checkpoint, or their averages, each of which is read when it is needed.

use std::collections::HashMap;
use std::ops::Range;

use kolo_ddp::checkpoint::{Reader, Set};
use kolo_ddp::optimizer::AVERAGE_OFFSET;
use kolo_ddp::{Element, Kind, Layout, ParamSpec};

use crate::error::WeightsError;
use crate::format::{NamedTensor, Stored, TensorHead, Tensors};

/// All weights of a checkpoint, under their paths in the model or as a file stores them; of a run that
/// averages them (`--ema`), the averages.
pub(crate) struct CheckpointTensors {
    reader: Reader,
    weights: Layout,
    /// Distances of the averages from the weights, if the checkpoint has them.
    offsets: Layout,
    /// Places of the offsets by the names of the weights.
    places: HashMap<String, Range<usize>>,
    /// Prefix of the offsets' names.
    prefix: String,
    /// Place of each tensor in a file.
    stored: Vec<Stored>,
    heads: Vec<TensorHead>,
}

impl CheckpointTensors {
    /// Lists the weights of a checkpoint; `stored` returns the place in a file of the tensor at a path of the
    /// model.
    pub(crate) fn new(reader: &Reader, stored: impl Fn(&str) -> Stored) -> Self {
        // Reading does not depend on which of them are trained.
        let spec = |(name, shape, element): (&str, &[usize], Element)| ParamSpec {
            element,
            ..ParamSpec::new(name, shape.to_vec(), Kind::Frozen)
        };
        let weights = Layout::new(reader.tensors(Set::Weights).into_iter().map(spec).collect());
        let prefix = format!("{AVERAGE_OFFSET}/");
        let optimizer = reader.tensors(Set::Optimizer).into_iter();
        let averaged = optimizer.filter_map(|(name, shape, _)| Some((name.strip_prefix(&prefix)?, shape)));
        let spec = |(name, shape): (&str, &[usize])| {
            ParamSpec::new(name, shape.to_vec(), Kind::Parameter { decay: false })
        };
        let offsets = Layout::new(averaged.map(spec).collect());
        let places = offsets.spans().iter().map(|span| (span.spec.name.clone(), span.range())).collect();
        let stored: Vec<Stored> = weights.spans().iter().map(|span| stored(&span.spec.name)).collect();
        let heads = weights.spans().iter().zip(&stored).map(|(span, stored)| {
            let ParamSpec { shape, element, .. } = span.spec.clone();
            let head = TensorHead { name: stored.name.clone(), shape, element };
            if stored.transposed { head.transposed() } else { head }
        });
        let heads = heads.collect();
        let reader = reader.clone().verifying_once();
        CheckpointTensors { reader, weights, offsets, places, prefix, stored, heads }
    }

    /// Reads a tensor by its number.
    pub(crate) fn read(&self, number: usize) -> Result<NamedTensor, WeightsError> {
        let (span, stored) = (&self.weights.spans()[number], &self.stored[number]);
        let mut values = vec![0.0; span.range().len()];
        self.reader.read(Set::Weights, "", &self.weights, span.range().start, &mut values)?;
        if let Some(place) = self.places.get(&span.spec.name) {
            let mut offsets = vec![0.0; place.len()];
            self.reader.read(Set::Optimizer, &self.prefix, &self.offsets, place.start, &mut offsets)?;
            values.iter_mut().zip(&offsets).for_each(|(value, offset)| *value += offset);
        }
        let (name, shape, element) = (stored.name.clone(), span.spec.shape.clone(), span.spec.element);
        let tensor = NamedTensor { name, shape, element, values };
        Ok(if stored.transposed { tensor.transposed() } else { tensor })
    }
}

impl Tensors for CheckpointTensors {
    fn heads(&self) -> &[TensorHead] {
        &self.heads
    }

    fn bytes(&self, number: usize) -> Result<Vec<u8>, WeightsError> {
        Ok(self.read(number)?.to_bytes())
    }
}

/// Reads all weights of a checkpoint, under their paths in the model.
pub(crate) fn tensors(reader: &Reader) -> Result<Vec<NamedTensor>, WeightsError> {
    let all = CheckpointTensors::new(reader, |path| Stored { name: path.into(), transposed: false });
    (0..all.heads.len()).map(|number| all.read(number)).collect()
}
