//! Which elements of a bucket are compressed. Small tensors and statistics are not: they are summed as they
//! are, because there is nothing to gain by them.

use std::ops::Range;

use crate::buckets::Bucket;
use kolo_optim::{Kind, Layout, Span, SpanId};

/// A run of a bucket's elements that is compressed: elements of one tensor.
pub(super) struct Part {
    /// Whose elements.
    pub(super) span: SpanId,
    /// The first of them among the tensor's.
    pub(super) first: usize,
    /// Where they are in the bucket.
    pub(super) range: Range<usize>,
    /// Rows and columns of the whole tensor as it lies in memory: the outermost axis, and all others.
    pub(super) matrix: (usize, usize),
}

/// A bucket's elements: compressed, or summed as they are.
pub(super) struct Parts {
    pub(super) compressed: Vec<Part>,
    /// Runs of the bucket's elements.
    pub(super) dense: Vec<Range<usize>>,
}

impl Parts {
    /// Divides a bucket. Tensors of fewer than `dense_below` elements stay as they are, and those which
    /// `leave` says.
    pub(super) fn new(
        bucket: &Bucket,
        layout: &Layout,
        dense_below: usize,
        leave: impl Fn(&Part) -> bool,
    ) -> Self {
        let mut parts = Parts { compressed: Vec::new(), dense: Vec::new() };
        for slice in &bucket.slices {
            let span = layout.span(slice.span);
            let part = Part {
                span: slice.span,
                first: slice.elements.start,
                range: slice.range(),
                matrix: matrix(span),
            };
            let is_small = span.len < dense_below.max(1);
            match span.spec.kind {
                Kind::Parameter { .. } if !is_small && !leave(&part) => parts.compressed.push(part),
                _ => parts.dense.push(slice.range()),
            }
        }
        parts
    }

    /// How many elements are summed as they are.
    pub(super) fn dense_len(&self) -> usize {
        self.dense.iter().map(Range::len).sum()
    }
}

/// A tensor as a matrix: its outermost axis in memory of more than one element, and all others.
fn matrix(span: &Span) -> (usize, usize) {
    let shape = &span.spec.shape;
    let outermost = span.spec.order.axes(shape.len()).into_iter().find(|axis| shape[*axis] > 1);
    let rows = outermost.map_or(1, |axis| shape[axis]);
    (rows, span.len / rows.max(1))
}
