//! Place of each parameter in flat memory.
//!
//! The order is the model's own and never changes, however the buckets are cut. Parameters, optimizer state
//! and checkpoints all use it.

use std::borrow::Cow;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::element::Element;
use crate::memory_order::MemoryOrder;

/// Role of a tensor in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Trained by gradients.
    Parameter {
        /// True if weight decay applies.
        decay: bool,
    },
    /// Changed by the forward pass, such as the running mean of a batch normalization. Every shard starts a
    /// step from the same value. The value then moves by the average of the shards' changes, weighted by
    /// their samples.
    Statistic,
    /// Never changed, such as a frozen parameter or a table of integers. All ranks use rank 0's values, and
    /// checkpoints hold them.
    Frozen,
}

impl Kind {
    /// Returns true if gradients train the tensor.
    pub fn is_trained(self) -> bool {
        matches!(self, Kind::Parameter { .. })
    }
}

/// Tensor of the model, as the binding describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamSpec {
    /// Path in the model; unique.
    pub name: String,
    /// Shape; empty for a scalar.
    pub shape: Vec<usize>,
    /// Role in the model.
    pub kind: Kind,
    /// Order of the elements in flat memory.
    pub order: MemoryOrder,
    /// Type of the elements; only frozen tensors may have a type other than `f32`.
    pub element: Element,
}

impl ParamSpec {
    /// Creates a tensor of `f32` in row-major order.
    pub fn new(name: impl Into<String>, shape: Vec<usize>, kind: Kind) -> Self {
        let (order, element) = (MemoryOrder::row_major(), Element::F32);
        ParamSpec { name: name.into(), shape, kind, order, element }
    }

    /// Returns the number of values in flat memory.
    pub fn values(&self) -> usize {
        self.shape.iter().product::<usize>() * self.element.values()
    }

    /// Returns the shape of the values in flat memory: the tensor's shape, plus a last axis if an element has
    /// several values.
    pub fn flat_shape(&self) -> Vec<usize> {
        let digits = Some(self.element.values()).filter(|values| *values > 1);
        self.shape.iter().copied().chain(digits).collect()
    }
}

/// Index of a span in its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SpanId(pub usize);

/// Place of one tensor in flat memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Description of the tensor.
    pub spec: ParamSpec,
    /// Index of its first value in flat memory.
    pub offset: usize,
    /// Number of values in flat memory.
    pub len: usize,
}

impl Span {
    /// Returns `values`, which lie in this span's memory order, in row-major order.
    pub fn to_row_major<'a>(&self, values: &'a [f32]) -> Cow<'a, [f32]> {
        self.spec.order.to_row_major(&self.spec.shape, values)
    }

    /// Returns the range of its values in flat memory.
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.len
    }
}

/// Places of all tensors of a model.
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

    /// Returns the spans in the model's order.
    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Returns one span.
    pub fn span(&self, id: SpanId) -> &Span {
        &self.spans[id.0]
    }

    /// Returns the number of values in flat memory.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if flat memory has no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
