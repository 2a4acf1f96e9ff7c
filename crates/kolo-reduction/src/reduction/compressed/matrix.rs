//! Products of a matrix with a few vectors, in an order of additions that the shapes alone decide.
//!
//! A matrix is n rows of m elements. The few vectors are stored one after another: r of n elements on its
//! left side, r of m elements on its right side.

use kolo_optim::{Span, vectorized};

/// Views a tensor as a matrix: its outer axes in memory, and the others, divided so that the sum of rows and
/// columns is smallest. A kernel that lies as 3×3×512×512 is 4608 rows of 512, one that lies as 512×512×3×3
/// the reverse.
pub(super) fn shape(span: &Span) -> (usize, usize) {
    let shape = &span.spec.shape;
    let axes = span.spec.order.axes(shape.len()).into_iter();
    let rows = axes.scan(1, |rows, axis| {
        *rows *= shape[axis];
        Some(*rows)
    });
    let matrices = [1].into_iter().chain(rows).map(|rows| (rows, span.len / rows.max(1)));
    matrices.min_by_key(|(rows, columns)| rows + columns).unwrap_or((1, span.len))
}

/// Elements that are summed side by side.
const LANES: usize = 16;

/// Scalar product, as [`LANES`] running sums.
#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; LANES];
    let (mut a, mut b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    for (a, b) in (&mut a).zip(&mut b) {
        for lane in 0..LANES {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f32 = a.remainder().iter().zip(b.remainder()).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f32>() + rest
}

/// Computes `left` = M·`right`ᵀ: for each vector on the right one on the left.
pub(super) fn times(matrix: &[f32], (n, m): (usize, usize), right: &[f32], left: &mut [f32]) {
    vectorized(
        #[inline(always)]
        || {
            for (i, row) in matrix.chunks_exact(m).enumerate() {
                for (k, vector) in right.chunks_exact(m).enumerate() {
                    left[k * n + i] = dot(row, vector);
                }
            }
        },
    );
}

/// Computes `right` = Mᵀ·`left`: for each vector on the left one on the right.
pub(super) fn transposed_times(matrix: &[f32], (n, m): (usize, usize), left: &[f32], right: &mut [f32]) {
    right.fill(0.0);
    vectorized(
        #[inline(always)]
        || {
            for (i, row) in matrix.chunks_exact(m).enumerate() {
                for (k, vector) in right.chunks_exact_mut(m).enumerate() {
                    let factor = left[k * n + i];
                    vector.iter_mut().zip(row).for_each(|(sum, x)| *sum += factor * x);
                }
            }
        },
    );
}

/// M += `factor`·Σ leftₖ·rightₖᵀ.
pub(super) fn add_products(
    matrix: &mut [f32],
    (n, m): (usize, usize),
    factor: f32,
    left: &[f32],
    right: &[f32],
) {
    vectorized(
        #[inline(always)]
        || {
            for (i, row) in matrix.chunks_exact_mut(m).enumerate() {
                for (k, vector) in right.chunks_exact(m).enumerate() {
                    let factor = factor * left[k * n + i];
                    row.iter_mut().zip(vector).for_each(|(x, y)| *x += factor * y);
                }
            }
        },
    );
}

/// Makes vectors of `n` elements orthonormal by modified Gram-Schmidt, each twice (Giraud et al. 2005), in
/// double precision. A vector of zeros, or one in the span of the others, becomes zero.
pub(super) fn orthonormalize(vectors: &mut [f32], n: usize) {
    for k in 0..vectors.len() / n {
        let (before, rest) = vectors.split_at_mut(k * n);
        let vector = &mut rest[..n];
        let length = norm(vector);
        for _ in 0..2 {
            for other in before.chunks_exact(n) {
                let along: f64 = vector.iter().zip(other).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
                vector.iter_mut().zip(other).for_each(|(x, y)| *x -= (along * f64::from(*y)) as f32);
            }
        }
        let left = norm(vector);
        // The remainder of a vector in the span of the others is rounding.
        let scale = if left > 1e-5 * length { 1.0 / left } else { 0.0 };
        if scale.is_finite() {
            vector.iter_mut().for_each(|x| *x = (f64::from(*x) * scale) as f32);
        }
    }
}

fn norm(vector: &[f32]) -> f64 {
    kolo_optim::norm::sum_of_squares(vector).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kolo_optim::{Kind, Layout, MemoryOrder, ParamSpec};

    fn values(len: usize, seed: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * 7 + seed * 13) as f32 * 0.61).sin()).collect()
    }

    #[test]
    fn products_are_those_of_the_definition() {
        let (n, m, r) = (5, 37, 3);
        let (matrix, right, left) = (values(n * m, 1), values(r * m, 2), values(r * n, 3));
        let (mut p, mut q, mut sum) = (vec![0.0; r * n], vec![0.0; r * m], matrix.clone());
        times(&matrix, (n, m), &right, &mut p);
        transposed_times(&matrix, (n, m), &left, &mut q);
        add_products(&mut sum, (n, m), -1.0, &left, &right);
        for k in 0..r {
            for i in 0..n {
                let expected: f32 = (0..m).map(|j| matrix[i * m + j] * right[k * m + j]).sum();
                assert!((p[k * n + i] - expected).abs() < 1e-4);
            }
            for j in 0..m {
                let expected: f32 = (0..n).map(|i| matrix[i * m + j] * left[k * n + i]).sum();
                assert!((q[k * m + j] - expected).abs() < 1e-4);
            }
        }
        for i in 0..n {
            for j in 0..m {
                let product: f32 = (0..r).map(|k| left[k * n + i] * right[k * m + j]).sum();
                assert!((sum[i * m + j] - (matrix[i * m + j] - product)).abs() < 1e-4);
            }
        }
    }

    #[test]
    fn vectors_become_orthonormal_or_zero() {
        let n = 40;
        let mut vectors = values(4 * n, 5);
        // The third is the sum of the first two.
        for i in 0..n {
            vectors[2 * n + i] = vectors[i] + vectors[n + i];
        }
        orthonormalize(&mut vectors, n);
        for a in 0..4 {
            for b in 0..4 {
                let product = dot(&vectors[a * n..][..n], &vectors[b * n..][..n]);
                let expected = if a == b && a != 2 { 1.0 } else { 0.0 };
                assert!((product - expected).abs() < 1e-6, "{a} {b}: {product}");
            }
        }
        let mut zeros = vec![0.0; 8];
        orthonormalize(&mut zeros, 4);
        assert_eq!(zeros, [0.0; 8]);
    }

    #[test]
    fn a_tensor_is_the_matrix_with_the_fewest_rows_and_columns() {
        let of = |dims: &[usize], strides: &[usize]| {
            let order = MemoryOrder::of_strides(dims, strides);
            let spec =
                ParamSpec { order, ..ParamSpec::new("x", dims.to_vec(), Kind::Parameter { decay: true }) };
            shape(&Layout::new(vec![spec]).spans()[0])
        };
        assert_eq!(of(&[64, 32, 3, 3], &[288, 9, 3, 1]), (64, 288));
        assert_eq!(of(&[64, 32, 3, 3], &[1, 64, 6144, 2048]), (288, 64), "3×3×32×64 in memory");
        assert_eq!(of(&[10, 512], &[512, 1]), (10, 512));
        assert_eq!([of(&[300], &[1]), of(&[], &[]), of(&[0, 4], &[4, 1])], [(1, 300), (1, 1), (0, 0)]);
    }
}
