//! Where each parameter lives in flat memory.
//!
//! The order is the model's own and never changes, whatever the buckets do: parameters, optimizer state and
//! checkpoints all use it.

use std::borrow::Cow;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::element::Element;
use crate::memory_order::MemoryOrder;

/// What a tensor of the model is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Trained by gradients.
    Parameter {
        /// Whether weight decay applies.
        decay: bool,
    },
    /// Changed by the forward pass, such as the running mean of a batch normalisation. Every shard starts a
    /// step from the same value; afterwards it moves by the average of the shards' changes, weighted by their
    /// samples.
    Statistic,
    /// Changed by nothing, such as a frozen parameter or a table of integers: all ranks have rank 0's, which
    /// checkpoints hold, and a step does nothing for it.
    Frozen,
}

impl Kind {
    /// Whether gradients train it.
    pub fn is_trained(self) -> bool {
        matches!(self, Kind::Parameter { .. })
    }
}

/// A tensor of the model, as the binding announces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamSpec {
    /// Path in the model, unique.
    pub name: String,
    /// Shape; an empty one is a scalar.
    pub shape: Vec<usize>,
    /// What it is for.
    pub kind: Kind,
    /// In which order its elements lie in flat memory.
    pub order: MemoryOrder,
    /// Type of its elements; only a frozen tensor has another one than `f32`.
    pub element: Element,
}

impl ParamSpec {
    /// A tensor of `f32` in row-major order.
    pub fn new(name: impl Into<String>, shape: Vec<usize>, kind: Kind) -> Self {
        let (order, element) = (MemoryOrder::row_major(), Element::F32);
        ParamSpec { name: name.into(), shape, kind, order, element }
    }

    /// Number of values that it has in flat memory.
    pub fn values(&self) -> usize {
        self.shape.iter().product::<usize>() * self.element.values()
    }

    /// Shape of its values in flat memory: its own, and a last axis where an element has several.
    pub fn flat_shape(&self) -> Vec<usize> {
        let digits = Some(self.element.values()).filter(|values| *values > 1);
        self.shape.iter().copied().chain(digits).collect()
    }
}

/// Index of a span in its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SpanId(pub usize);

/// Where one tensor lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// What it is.
    pub spec: ParamSpec,
    /// First element in flat memory.
    pub offset: usize,
    /// Number of values in flat memory.
    pub len: usize,
}

impl Span {
    /// Its values, which lie as in flat memory, in row-major order.
    pub fn to_row_major<'a>(&self, values: &'a [f32]) -> Cow<'a, [f32]> {
        self.spec.order.to_row_major(&self.spec.shape, values)
    }

    /// Its elements in flat memory.
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.len
    }
}

/// All spans of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    spans: Vec<Span>,
    len: usize,
}

impl Layout {
    /// Lays tensors out one after another.
    pub fn new(specs: Vec<ParamSpec>) -> Self {
        let mut offset = 0;
        let place = |spec: ParamSpec| {
            let len = spec.values();
            let span = Span { spec, offset, len };
            offset += len;
            span
        };
        Layout { spans: specs.into_iter().map(place).collect(), len: offset }
    }

    /// The spans, in the model's order.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// One span.
    pub fn span(&self, id: SpanId) -> &Span {
        &self.spans[id.0]
    }

    /// Number of elements in flat memory.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the model has no tensors.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
