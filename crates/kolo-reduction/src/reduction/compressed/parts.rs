//! Division of a bucket into compressed elements and others. Small tensors and statistics are summed without
//! compression, because there is nothing to gain from it.

use std::ops::Range;

use crate::buckets::{BLOCK, Slice};
use crate::reduction::interface::Context;
use kolo_optim::{Kind, Span};

/// A bucket's elements: compressed, or summed without compression.
pub(super) struct Parts {
    pub(super) compressed: Vec<Slice>,
    /// Ranges of the bucket's elements.
    pub(super) dense: Vec<Range<usize>>,
}

impl Parts {
    /// Divides a bucket. Tensors of fewer than `dense_below` elements, and those for which `leave` returns
    /// true, are not compressed.
    pub(super) fn new(context: &Context<'_>, dense_below: u64, leave: impl Fn(&Span) -> bool) -> Self {
        let mut parts = Parts { compressed: Vec::new(), dense: Vec::new() };
        for slice in &context.bucket.slices {
            let span = context.layout.span(slice.span);
            let is_small = span.len < (dense_below as usize).max(1);
            match span.spec.kind {
                Kind::Parameter { .. } if !is_small && !leave(span) => parts.compressed.push(slice.clone()),
                _ => parts.dense.push(slice.range()),
            }
        }
        parts
    }

    /// The blocks of the compressed elements.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Slice> {
        self.compressed.iter().flat_map(|part| part.runs(BLOCK))
    }

    /// Number of elements that are summed without compression.
    pub(super) fn dense_len(&self) -> usize {
        self.dense.iter().map(Range::len).sum()
    }
}
