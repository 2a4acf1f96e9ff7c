//! Matrix products on one thread, with the same bits for vectors of any width.
//!
//! Each element is a sum over chains of [`CHAIN`] fused multiply-adds, in the order of the inner dimension;
//! the chains are then added one after another. Neither the vector width nor the cache sizes affect that
//! order.

use pulp::{Arch, Simd, WithSimd};

/// Steps of the inner dimension in one chain of additions. A panel of the right factor has as many rows and
/// fits into the innermost cache. It is part of the order of additions, and so of the result.
const CHAIN: usize = 256;
/// Rows of a tile; their sums stay in registers.
const ROWS: usize = 6;
/// Vectors per row of a tile.
const VECTORS: usize = 2;

/// Right factor of a product, by its layout in memory.
#[derive(Clone, Copy)]
pub(super) enum Right<'a> {
    /// Row-major.
    Rows(&'a [f32]),
    /// Column-major. The product is known to be symmetric, and only half of it is computed.
    ColumnsOfSymmetric(&'a [f32]),
    /// Row-major; the product is known to be symmetric.
    RowsOfSymmetric(&'a [f32]),
}

/// Buffers for the copies of both factors, reused for the next product.
#[derive(Default)]
pub(super) struct Panels {
    left: Vec<[f32; ROWS]>,
    right: Vec<f32>,
}

/// Computes `out = left · right`, row-major, with `left` of `rows` × `inner` and `out` of `rows` × `columns`
/// elements.
pub(super) fn product(
    left: &[f32],
    right: Right<'_>,
    [rows, inner, columns]: [usize; 3],
    out: &mut [f32],
    panels: &mut Panels,
) {
    product_on(Arch::new(), left, right, [rows, inner, columns], out, panels);
}

/// Same as [`product`], with the vectors of one instruction set.
fn product_on(
    arch: Arch,
    left: &[f32],
    right: Right<'_>,
    [rows, inner, columns]: [usize; 3],
    out: &mut [f32],
    panels: &mut Panels,
) {
    assert_eq!((left.len(), out.len()), (rows * inner, rows * columns));
    assert_eq!(right.values().len(), inner * columns);
    arch.dispatch(Product { left, right, inner, columns, out, panels });
    if right.is_symmetric() {
        for row in 0..rows {
            for column in row + 1..columns {
                out[row * columns + column] = out[column * columns + row];
            }
        }
    }
}

impl<'a> Right<'a> {
    fn values(self) -> &'a [f32] {
        let (Right::Rows(values) | Right::ColumnsOfSymmetric(values) | Right::RowsOfSymmetric(values)) = self;
        values
    }

    fn is_symmetric(self) -> bool {
        !matches!(self, Right::Rows(_))
    }
}

struct Product<'a> {
    left: &'a [f32],
    right: Right<'a>,
    inner: usize,
    columns: usize,
    out: &'a mut [f32],
    panels: &'a mut Panels,
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Product { left, right, inner, columns, out, panels } = self;
        let width = VECTORS * S::F32_LANES;
        for start in (0..inner).step_by(CHAIN) {
            let steps = start..inner.min(start + CHAIN);
            pack_left(left, inner, steps.clone(), &mut panels.left);
            for column in (0..columns).step_by(width) {
                pack_right(right, [inner, columns], steps.clone(), column, width, &mut panels.right);
                let (panel, _) = S::as_simd_f32s(&panels.right);
                let (panel, _) = panel.as_chunks::<VECTORS>();
                for (tile, out) in out.chunks_mut(ROWS * columns).enumerate() {
                    // Of a symmetric product, compute only tiles on or below the diagonal.
                    if right.is_symmetric() && (tile + 1) * ROWS <= column {
                        continue;
                    }
                    let left = &panels.left[tile * steps.len()..(tile + 1) * steps.len()];
                    let sums = sums(simd, left, panel);
                    for (out, sums) in out.chunks_mut(columns).zip(&sums) {
                        let sums: &[f32] = pulp::bytemuck::cast_slice(sums);
                        let out = out[column..].iter_mut().zip(sums);
                        match start {
                            0 => out.for_each(|(out, sum)| *out = *sum),
                            _ => out.for_each(|(out, sum)| *out += *sum),
                        }
                    }
                }
            }
        }
    }
}

/// Innermost loop: one chain for each element of a tile.
#[inline(always)]
fn sums<S: Simd>(simd: S, left: &[[f32; ROWS]], right: &[[S::f32s; VECTORS]]) -> [[S::f32s; VECTORS]; ROWS] {
    let mut sums = [[simd.splat_f32s(0.0); VECTORS]; ROWS];
    for (left, right) in left.iter().zip(right) {
        for (sums, value) in sums.iter_mut().zip(left) {
            let value = simd.splat_f32s(*value);
            for (sum, vector) in sums.iter_mut().zip(right) {
                *sum = simd.mul_add_f32s(value, *vector, *sum);
            }
        }
    }
    sums
}

/// Copies some columns of the left factor: the rows of each tile side by side, padded with zeros.
#[inline(always)]
fn pack_left(left: &[f32], inner: usize, steps: std::ops::Range<usize>, panel: &mut Vec<[f32; ROWS]>) {
    let tiles = left.chunks(ROWS * inner);
    panel.clear();
    panel.resize(tiles.len() * steps.len(), [0.0; ROWS]);
    for (tile, panel) in tiles.zip(panel.chunks_mut(steps.len())) {
        for (row, values) in tile.chunks(inner).enumerate() {
            panel.iter_mut().zip(&values[steps.clone()]).for_each(|(step, value)| step[row] = *value);
        }
    }
}

/// Copies some rows of `width` columns of the right factor, padded with zeros.
#[inline(always)]
fn pack_right(
    right: Right<'_>,
    [inner, columns]: [usize; 2],
    steps: std::ops::Range<usize>,
    column: usize,
    width: usize,
    panel: &mut Vec<f32>,
) {
    let there = width.min(columns - column);
    panel.clear();
    panel.resize(steps.len() * width, 0.0);
    match right {
        Right::Rows(values) | Right::RowsOfSymmetric(values) => {
            for (panel, row) in panel.chunks_mut(width).zip(steps) {
                let from = row * columns + column;
                panel[..there].copy_from_slice(&values[from..from + there]);
            }
        }
        Right::ColumnsOfSymmetric(values) => {
            for (n, values) in values.chunks(inner).skip(column).take(there).enumerate() {
                let places = panel.iter_mut().skip(n).step_by(width);
                places.zip(&values[steps.clone()]).for_each(|(place, value)| *place = *value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize, seed: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * 7_919 + seed * 104_729) as f32 * 0.37).sin()).collect()
    }

    fn instruction_sets() -> Vec<Arch> {
        #[allow(unused_mut, reason = "there may be no others")]
        let mut all = vec![Arch::Scalar, Arch::new()];
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(pulp::x86::V3::try_new().map(Arch::V3));
            all.extend(pulp::x86::V4::try_new().map(Arch::V4));
        }
        all
    }

    /// Computes the product in double precision; `right` maps row and column to an element.
    fn naive(
        left: &[f32],
        right: impl Fn(usize, usize) -> f32,
        [rows, inner, columns]: [usize; 3],
    ) -> Vec<f64> {
        let element = |n: usize| {
            let (row, column) = (n / columns, n % columns);
            (0..inner).map(|k| f64::from(left[row * inner + k]) * f64::from(right(k, column))).sum()
        };
        (0..rows * columns).map(element).collect()
    }

    #[test]
    fn products_are_right_and_the_same_bits_with_every_instruction_set() {
        for [rows, inner, columns] in
            [[1, 1, 1], [1, 300, 1], [6, 256, 32], [7, 257, 33], [13, 600, 70], [40, 3, 100], [100, 100, 5]]
        {
            let (left, right) = (noise(rows * inner, 1), noise(inner * columns, 2));
            let mut square = vec![0.0; rows * rows];
            product_on(
                Arch::Scalar,
                &left,
                Right::ColumnsOfSymmetric(&left),
                [rows, inner, rows],
                &mut square,
                &mut Panels::default(),
            );
            let cases = [
                (&left, Right::Rows(&right), [rows, inner, columns]),
                (&left, Right::ColumnsOfSymmetric(&left), [rows, inner, rows]),
                (&square, Right::RowsOfSymmetric(&square), [rows; 3]),
            ];
            for (left, right, sizes) in cases {
                let [rows, inner, columns] = sizes;
                let element = |row: usize, column: usize| match right {
                    Right::ColumnsOfSymmetric(values) => values[column * inner + row],
                    other => other.values()[row * columns + column],
                };
                let expected = naive(left, element, sizes);
                let largest = expected.iter().fold(1.0, |most: f64, value| most.max(value.abs()));
                let on = |arch| {
                    // Stale values in the panels must not matter.
                    let mut panels = Panels { left: vec![[f32::NAN; ROWS]; 9], right: vec![f32::NAN; 99] };
                    let mut out = vec![f32::NAN; rows * columns];
                    product_on(arch, left, right, sizes, &mut out, &mut panels);
                    out
                };
                let scalar = on(Arch::Scalar);
                for (value, expected) in scalar.iter().zip(&expected) {
                    assert!((f64::from(*value) - expected).abs() < 1e-6 * largest, "{sizes:?}");
                }
                let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
                let scalar = bits(scalar);
                assert!(instruction_sets().into_iter().all(|arch| bits(on(arch)) == scalar), "{sizes:?}");
            }
        }
    }
}
