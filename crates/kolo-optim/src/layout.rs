//! Where each parameter lives in flat memory.
//!
//! The order is the model's own and never changes, whatever the buckets do: parameters, optimizer state and
//! checkpoints all use it.

use std::borrow::Cow;
use std::ops::Range;

use serde::{Deserialize, Serialize};

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
}

impl ParamSpec {
    /// A tensor in row-major order.
    pub fn new(name: impl Into<String>, shape: Vec<usize>, kind: Kind) -> Self {
        ParamSpec { name: name.into(), shape, kind, order: MemoryOrder::row_major() }
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
    /// Number of elements.
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
            let len = spec.shape.iter().product();
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
