//! View of a tensor as the matrix that Muon orthogonalizes.

use crate::layout::Span;

/// Mapping of a tensor's elements to a matrix. The first dimension gives the rows and all others together the
/// columns, so a convolution's kernels are outputs × (inputs · height · width).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Matrix {
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// True if the tensor has more than two dimensions, as a convolution's kernels; in every library their
    /// first dimension is that of the outputs.
    pub(super) is_kernel: bool,
    /// Number of elements of a row that are contiguous in flat memory: all of them if the first dimension is
    /// outermost there, one if it is innermost.
    run: usize,
}

impl Matrix {
    /// Returns `None` for a tensor of fewer than two dimensions or without elements.
    pub(super) fn of(span: &Span) -> Option<Self> {
        let shape = &span.spec.shape;
        if shape.len() < 2 || span.len == 0 {
            return None;
        }
        // The order of the columns does not matter, as long as it is the same both ways: orthogonalizing
        // permuted columns gives the permuted result.
        let inside = span.spec.order.axes(shape.len()).into_iter().rev().take_while(|axis| *axis != 0);
        let run = inside.map(|axis| shape[axis]).product();
        Some(Matrix { rows: shape[0], columns: span.len / shape[0], is_kernel: shape.len() > 2, run })
    }

    /// Returns true if it is transposed, so that it has no more rows than columns.
    fn is_transposed(&self) -> bool {
        self.rows > self.columns
    }

    /// Returns rows and columns after the transposition, if any.
    pub(super) fn sides(&self) -> (usize, usize) {
        (self.rows.min(self.columns), self.rows.max(self.columns))
    }

    /// Returns the contiguous runs of flat memory and, for each, the place of its first element in the
    /// transposed matrix and the distance between neighboring elements there.
    pub(super) fn runs(&self) -> impl Iterator<Item = (std::ops::Range<usize>, usize, usize)> {
        let Matrix { rows, columns, run, .. } = *self;
        let (of_row, of_column) = if self.is_transposed() { (1, rows) } else { (columns, 1) };
        (0..columns / run).flat_map(move |block| {
            (0..rows).map(move |row| {
                let start = (block * rows + row) * run;
                (start..start + run, row * of_row + block * run * of_column, of_column)
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Kind, Layout, ParamSpec};
    use crate::memory_order::MemoryOrder;

    fn matrix(shape: &[usize], strides: Option<&[usize]>) -> Option<Matrix> {
        let order = strides.map_or_else(MemoryOrder::row_major, |s| MemoryOrder::of_strides(shape, s));
        let spec =
            ParamSpec { order, ..ParamSpec::new("w", shape.to_vec(), Kind::Parameter { decay: true }) };
        Matrix::of(&Layout::new(vec![spec]).spans()[0])
    }

    #[test]
    fn the_first_dimension_gives_the_rows() {
        assert_eq!(matrix(&[4], None), None);
        assert_eq!(matrix(&[], None), None);
        assert_eq!(matrix(&[4, 0], None), None);
        assert_eq!(matrix(&[4, 6], None), Some(Matrix { rows: 4, columns: 6, is_kernel: false, run: 6 }));
        assert_eq!(
            matrix(&[4, 3, 2, 2], None),
            Some(Matrix { rows: 4, columns: 12, is_kernel: true, run: 12 })
        );
        // Channels last, then outputs innermost, then outputs in the middle.
        let permuted = |strides| matrix(&[4, 3, 2, 2], Some(strides)).unwrap().run;
        assert_eq!(permuted(&[12, 1, 6, 3]), 12);
        assert_eq!(permuted(&[1, 4, 24, 12]), 1);
        assert_eq!(permuted(&[3, 1, 24, 12]), 3);
    }

    /// Elements of a tensor's row are in one row of the matrix, or in one column if it is transposed.
    #[test]
    fn every_element_has_one_place_in_its_row() {
        for (shape, strides) in [
            ([2, 3, 1, 2], None),
            ([9, 3, 1, 2], None),
            ([2, 3, 2, 2], Some([1, 2, 12, 6])),
            ([15, 3, 2, 2], Some([1, 15, 90, 45])),
            ([15, 3, 2, 2], Some([3, 1, 90, 45])),
        ] {
            let matrix = matrix(&shape, strides.as_ref().map(|s| &s[..])).unwrap();
            let strides = strides.unwrap_or([shape[1] * shape[2] * shape[3], 1, 1, 1]);
            let (short, long) = matrix.sides();
            assert!(short <= long && short * long == matrix.rows * matrix.columns);
            let mut seen = vec![false; short * long];
            for (range, place, distance) in matrix.runs() {
                for (n, element) in range.enumerate() {
                    let place = place + n * distance;
                    assert!(!std::mem::replace(&mut seen[place], true));
                    let row = if matrix.is_transposed() { place % long } else { place / long };
                    // Row by the strides of the tensor.
                    let expected =
                        if strides[0] == 1 { element % shape[0] } else { element / strides[0] % shape[0] };
                    assert_eq!(row, expected, "{shape:?} {strides:?}");
                }
            }
            assert!(seen.iter().all(|seen| *seen));
        }
    }
}
