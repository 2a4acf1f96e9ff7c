//! Product of two matrices in memory. What follows a product is done while its values are in the first cache.

use std::hint::black_box;
use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

use super::panel::{Panel, panels};
use super::tile::{CHAIN, Product, Segment};

/// Vectors per row of a panel.
const VECTORS: usize = 2;

/// Rows that are finished together: a multiple of the heights of all tiles.
const STRIP: usize = 24;

/// Distance of rows at which the first cache of most processors holds only as many as a tile is high.
const CONFLICT: usize = 1024;

/// Elements of the first factor that meet all panels before the next ones do. It affects no bits.
const BLOCK: usize = 1 << 16;

/// Matrix that is read, at any distances between rows and between columns.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    row_step: usize,
    column_step: usize,
}

impl<'a> Matrix<'a> {
    /// Takes the distances between rows and between columns, of which either is 1.
    pub(crate) fn new(
        values: &'a [f32],
        [rows, columns]: [usize; 2],
        [row_step, column_step]: [usize; 2],
    ) -> Self {
        Matrix { values, rows, columns, row_step, column_step }
    }

    pub(crate) fn row_major(values: &'a [f32], columns: usize) -> Self {
        Matrix::new(values, [values.len() / columns, columns], [columns, 1])
    }

    pub(crate) fn transposed(self) -> Self {
        Matrix {
            rows: self.columns,
            columns: self.rows,
            row_step: self.column_step,
            column_step: self.row_step,
            ..self
        }
    }

    /// Returns the numbers of rows and columns.
    pub(crate) fn dims(&self) -> [usize; 2] {
        [self.rows, self.columns]
    }

    /// Packs some rows and columns of the matrix, of which either must be contiguous.
    #[inline(always)]
    fn pack(&self, panel: &mut Panel, at: usize, rows: Range<usize>, columns: Range<usize>) {
        if self.column_step == 1 {
            let row = |row: usize| &self.values[row * self.row_step..][..self.columns];
            panel.pack(at, rows.map(row), columns);
        } else {
            let column = |column: usize| &self.values[column * self.column_step..][rows.clone()];
            panel.pack_transposed(at, columns.map(column));
        }
    }
}

/// Work beside a product, on values that are in the cache at that time.
pub(crate) trait Beside {
    /// Reads some columns of the second factor: rows of `width` elements, of which those beyond the range are
    /// 0. Each element is seen once; rows are in order.
    #[inline(always)]
    fn read(&mut self, _columns: Range<usize>, _packed: &[f32], _width: usize) {}

    /// Changes some columns of a row of the product, and what belongs to it.
    #[inline(always)]
    fn finish(&mut self, _row: usize, _columns: Range<usize>, _values: &mut [f32]) {}
}

/// Nothing.
impl Beside for () {}

/// Returns `a · b`, with the bias added to every row, and does the work beside it.
///
/// Every element is a chain of fused multiply-adds that starts with the bias, cut every [`CHAIN`] terms.
///
/// # Panics
///
/// Panics if a factor is empty, or if the inner lengths differ.
pub(crate) fn multiply(a: Matrix<'_>, b: Matrix<'_>, bias: Option<&[f32]>, beside: impl Beside) -> Vec<f32> {
    let mut out = Vec::new();
    multiply_on(Arch::new(), &mut out, a, b, bias, beside);
    out
}

/// Appends the rows of `a · b`: see [`multiply`].
pub(crate) fn multiply_onto(out: &mut Vec<f32>, a: Matrix<'_>, b: Matrix<'_>) {
    multiply_on(Arch::new(), out, a, b, None, ());
}

/// Adds `a · b` to a matrix of rows: see [`multiply`].
///
/// # Panics
///
/// Panics as [`multiply`] does, or if the matrix has another size.
pub(crate) fn add_product(sums: &mut [f32], a: Matrix<'_>, b: Matrix<'_>) {
    check(a, b, None);
    assert_eq!(sums.len(), a.rows * b.columns);
    let out = sums.as_mut_ptr();
    Arch::new().dispatch(Multiplication { a, b, bias: None, out, is_added: true, beside: () });
}

/// Same as [`multiply`], with the vectors of one instruction set; appends the rows.
fn multiply_on(
    arch: Arch,
    out: &mut Vec<f32>,
    a: Matrix<'_>,
    b: Matrix<'_>,
    bias: Option<&[f32]>,
    beside: impl Beside,
) {
    check(a, b, bias);
    let len = a.rows * b.columns;
    out.reserve_exact(len);
    let rest = out.spare_capacity_mut().as_mut_ptr().cast();
    arch.dispatch(Multiplication { a, b, bias, out: rest, is_added: false, beside });
    // SAFETY: each row of each panel was written.
    unsafe { out.set_len(out.len() + len) };
}

fn check(a: Matrix<'_>, b: Matrix<'_>, bias: Option<&[f32]>) {
    assert!(a.columns == b.rows && bias.is_none_or(|bias| bias.len() == b.columns));
    for matrix in [a, b] {
        let last = (matrix.rows - 1) * matrix.row_step + (matrix.columns - 1) * matrix.column_step;
        assert!(last < matrix.values.len());
    }
}

struct Multiplication<'a, B> {
    a: Matrix<'a>,
    b: Matrix<'a>,
    bias: Option<&'a [f32]>,
    out: *mut f32,
    /// True if the product is added to the values of `out`.
    is_added: bool,
    beside: B,
}

impl<B: Beside> WithSimd for Multiplication<'_, B> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let (a, b, most) = (self.a, self.b, VECTORS * S::F32_LANES);
        let mut bias = self.bias.map(<[f32]>::to_vec).unwrap_or_default();
        if !bias.is_empty() {
            bias.resize(b.columns.next_multiple_of(most), 0.0);
        }
        let (mut panel, mut packed) = (Panel::take(), Panel::take());
        for start in (0..a.columns).step_by(CHAIN) {
            let len = CHAIN.min(a.columns - start);
            let block = (BLOCK / len).next_multiple_of(STRIP);
            // If there are several blocks, each of them reads every panel.
            let is_kept = block < a.rows;
            if is_kept {
                panel.resize(b.columns.div_ceil(most) * len, most);
            }
            for first in (0..a.rows).step_by(block) {
                let block = first..a.rows.min(first + block);
                // Columns of a matrix would be read at distances at which the caches hold few of them, and so
                // would some rows.
                let is_strips = a.row_step == 1;
                let is_packed = is_strips || a.row_step % CONFLICT == 0;
                if is_strips {
                    let row = |row: usize| &a.values[row * a.column_step..][..a.rows];
                    packed.pack_strips::<STRIP>((start..start + len).map(row), block.clone());
                } else if is_packed {
                    packed.resize(block.len(), len);
                    a.pack(&mut packed, 0, block.clone(), start..start + len);
                }
                for (number, (columns, vectors)) in panels(b.columns, S::F32_LANES, VECTORS).enumerate() {
                    let (at, vectors) = if is_kept { (number * len, VECTORS) } else { (0, vectors) };
                    let width = vectors * S::F32_LANES;
                    if first == 0 {
                        if !is_kept {
                            panel.resize(len, width);
                        }
                        b.pack(&mut panel, at, start..start + len, columns.clone());
                        self.beside.read(columns.clone(), panel.rows(at, len), width);
                    }
                    let segments = [Segment { a: 0, b: at, len }];
                    for row in block.clone().step_by(STRIP) {
                        // Otherwise the compiler carries the address of each row of each tile along.
                        let row = black_box(row);
                        let rows = row..block.end.min(row + STRIP);
                        // SAFETY: the sizes were compared with those of the slices, and the output has a
                        // place for every row and column.
                        unsafe {
                            let out = self.out.add(row * b.columns + columns.start);
                            let (values, a_row, a_step) = if is_strips {
                                (packed.rows((row - first) / STRIP * len, len).as_ptr(), 1, STRIP)
                            } else if is_packed {
                                (packed.rows(row - first, rows.len()).as_ptr(), len, 1)
                            } else {
                                let at = row * a.row_step + start * a.column_step;
                                (a.values.as_ptr().add(at), a.row_step, a.column_step)
                            };
                            let product = Product {
                                segments: &segments,
                                a: values,
                                a_row,
                                a_step,
                                panel: panel.as_ptr(),
                                first: (start == 0 && !bias.is_empty()).then(|| &bias[columns.start..]),
                                out,
                                out_row: b.columns,
                                rows: rows.len(),
                                columns: columns.len(),
                                accumulate: self.is_added || start > 0,
                            };
                            product.compute(simd, vectors);
                            if start + len == a.columns {
                                for (index, row) in rows.enumerate() {
                                    let values = std::slice::from_raw_parts_mut(
                                        out.add(index * b.columns),
                                        columns.len(),
                                    );
                                    self.beside.finish(row, columns.clone(), values);
                                }
                            }
                        }
                    }
                }
            }
        }
        panel.give_back();
        packed.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiles::instruction_sets;

    fn values(len: usize, seed: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * 7_919 + seed * 104_729) as f32 * 0.37).sin()).collect()
    }

    /// Also for several blocks, several chains, rests of vectors, rows that are copied for their distance, and
    /// factors that lie in columns.
    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        for [rows, inner, columns] in
            [[1, 1, 1], [7, 19, 37], [50, 130, 64], [300, 513, 40], [25, 1030, 5], [70, 1024, 33]]
        {
            let (a, b, bias) = (values(rows * inner, 1), values(inner * columns, 2), values(columns, 3));
            let in_columns = |values: &[f32], columns: usize| -> Vec<f32> {
                let rows = values.len() / columns;
                (0..values.len()).map(|i| values[i % rows * columns + i / rows]).collect()
            };
            let (a_columns, b_columns) = (in_columns(&a, inner), in_columns(&b, columns));
            let product = |arch: Arch, a_lies: bool, b_lies: bool| -> Vec<u32> {
                let a = match a_lies {
                    true => Matrix::row_major(&a_columns, rows).transposed(),
                    false => Matrix::row_major(&a, inner),
                };
                let b = match b_lies {
                    true => Matrix::row_major(&b_columns, inner).transposed(),
                    false => Matrix::row_major(&b, columns),
                };
                let mut out = Vec::new();
                multiply_on(arch, &mut out, a, b, Some(&bias), ());
                out.into_iter().map(f32::to_bits).collect()
            };
            let scalar = product(Arch::Scalar, false, false);
            for (index, bits) in scalar.iter().enumerate() {
                let (row, column) = (index / columns, index % columns);
                let terms =
                    (0..inner).map(|k| f64::from(a[row * inner + k]) * f64::from(b[k * columns + column]));
                let sum = f64::from(bias[column]) + terms.sum::<f64>();
                assert!((f64::from(f32::from_bits(*bits)) - sum).abs() < 1e-4, "{rows}, {inner}, {columns}");
            }
            for arch in instruction_sets() {
                for (a, b) in [(false, false), (false, true), (true, false), (true, true)] {
                    assert!(product(arch, a, b) == scalar, "{rows}, {inner}, {columns}, {arch:?}");
                }
            }
        }
    }
}
