//! Division of a bucket into compressed elements and others. Small tensors and statistics are summed without
//! compression, because there is nothing to gain from it.

use std::ops::Range;

use crate::buckets::Bucket;
use kolo_optim::{Kind, Layout, Span, SpanId};

/// A range of a bucket's elements that is compressed: elements of one tensor.
pub(super) struct Part {
    /// Their tensor.
    pub(super) span: SpanId,
    /// The first of them in the tensor.
    pub(super) first: usize,
    /// Their range in the bucket.
    pub(super) range: Range<usize>,
    /// Rows and columns of the whole tensor as it lies in memory.
    pub(super) matrix: (usize, usize),
}

/// A bucket's elements: compressed, or summed without compression.
pub(super) struct Parts {
    pub(super) compressed: Vec<Part>,
    /// Ranges of the bucket's elements.
    pub(super) dense: Vec<Range<usize>>,
}

impl Parts {
    /// Divides a bucket. Tensors of fewer than `dense_below` elements, and parts for which `leave` returns
    /// true, are not compressed.
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

    /// Number of elements that are summed without compression.
    pub(super) fn dense_len(&self) -> usize {
        self.dense.iter().map(Range::len).sum()
    }
}

/// Views a tensor as a matrix: its outer axes in memory, and the others, divided so that the sum of rows and
/// columns is smallest. A kernel that lies as 3×3×512×512 is 4608 rows of 512, one that lies as 512×512×3×3
/// the reverse.
fn matrix(span: &Span) -> (usize, usize) {
    let shape = &span.spec.shape;
    let axes = span.spec.order.axes(shape.len()).into_iter();
    let rows = axes.scan(1, |rows, axis| {
        *rows *= shape[axis];
        Some(*rows)
    });
    let matrices = [1].into_iter().chain(rows).map(|rows| (rows, span.len / rows.max(1)));
    matrices.min_by_key(|(rows, columns)| rows + columns).unwrap_or((1, span.len))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kolo_optim::{MemoryOrder, ParamSpec};

    #[test]
    fn a_tensor_is_the_matrix_with_the_fewest_rows_and_columns() {
        let of = |shape: &[usize], strides: &[usize]| {
            let order = MemoryOrder::of_strides(shape, strides);
            let spec =
                ParamSpec { order, ..ParamSpec::new("x", shape.to_vec(), Kind::Parameter { decay: true }) };
            matrix(&Layout::new(vec![spec]).spans()[0])
        };
        assert_eq!(of(&[64, 32, 3, 3], &[288, 9, 3, 1]), (64, 288));
        assert_eq!(of(&[64, 32, 3, 3], &[1, 64, 6144, 2048]), (288, 64), "3×3×32×64 in memory");
        assert_eq!(of(&[10, 512], &[512, 1]), (10, 512));
        assert_eq!([of(&[300], &[1]), of(&[], &[]), of(&[0, 4], &[4, 1])], [(1, 300), (1, 1), (0, 0)]);
    }
}
