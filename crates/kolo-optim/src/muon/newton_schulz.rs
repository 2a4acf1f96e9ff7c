//! Approximation of the nearest semi-orthogonal matrix by an iteration of matrix products.

use super::product::{Panels, Right, product};
use crate::norm::sum_of_squares;

/// a, b, c of X ← aX + (bA + cA²)X with A = XXᵀ. They raise small singular values fastest, and bring all of
/// them to between about 0.7 and 1.2 rather than to 1 (Jordan et al. 2024).
const COEFFICIENTS: [f32; 3] = [3.4445, -4.7750, 2.0315];
const STEPS: usize = 5;
/// Smallest norm to divide a matrix by.
const LEAST_NORM: f64 = 1e-7;

/// Buffers of the iteration, reused for the next matrix: three times the largest matrix and twice the square
/// of its shorter side.
#[derive(Default)]
pub(super) struct NewtonSchulz {
    /// X, with no more rows than columns.
    pub(super) x: Vec<f32>,
    next: Vec<f32>,
    gram: Vec<f32>,
    polynomial: Vec<f32>,
    panels: Panels,
}

impl NewtonSchulz {
    /// Replaces `x`, of `rows` × `columns` elements in row-major order with `rows` ≤ `columns`.
    ///
    /// The author and PyTorch use bf16; f32 keeps the bits of a sum the same for vectors of any width.
    pub(super) fn run(&mut self, rows: usize, columns: usize) {
        let NewtonSchulz { x, next, gram, polynomial, panels } = self;
        let norm = sum_of_squares(x).sqrt();
        // A NaN norm must stay NaN; `f64::max` would drop it.
        let scale = (1.0 / if norm < LEAST_NORM { LEAST_NORM } else { norm }) as f32;
        x.iter_mut().for_each(|x| *x *= scale);
        next.resize(rows * columns, 0.0);
        gram.resize(rows * rows, 0.0);
        polynomial.resize(rows * rows, 0.0);
        let [a, b, c] = COEFFICIENTS;
        for _ in 0..STEPS {
            product(x, Right::ColumnsOfSymmetric(x), [rows, columns, rows], gram, panels);
            product(gram, Right::RowsOfSymmetric(gram), [rows; 3], polynomial, panels);
            polynomial.iter_mut().zip(&*gram).for_each(|(p, g)| *p = b * *g + c * *p);
            product(polynomial, Right::Rows(x), [rows, rows, columns], next, panels);
            x.iter_mut().zip(&*next).for_each(|(x, next)| *x = a * *x + *next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a matrix U·diag(s)·Vᵀ, five steps apply the polynomial five times to each singular value.
    #[test]
    fn singular_values_are_what_the_polynomial_makes_of_them() {
        // Rotations in the plane of two axes, and their products, are orthogonal.
        let (rows, columns) = (3, 40);
        let s = [0.9f64, 0.3, 0.01];
        let mut x = vec![0.0f64; rows * columns];
        s.iter().enumerate().for_each(|(n, s)| x[n * columns + n] = *s);
        let mut expected = vec![0.0f64; rows * columns];
        let norm = s.iter().map(|s| s * s).sum::<f64>().sqrt();
        for (n, s) in s.iter().enumerate() {
            let [a, b, c] = COEFFICIENTS.map(f64::from);
            let last = (0..STEPS).fold(s / norm, |s, _| a * s + b * s.powi(3) + c * s.powi(5));
            assert!(n == 2 || (0.6..1.3).contains(&last), "{last}");
            expected[n * columns + n] = last;
        }
        for matrix in [&mut x, &mut expected] {
            for i in 0..columns - 1 {
                let (sin, cos) = (i as f64 * 1.3 + 0.4).sin_cos();
                for row in matrix.chunks_mut(columns) {
                    (row[i], row[i + 1]) = (cos * row[i] - sin * row[i + 1], sin * row[i] + cos * row[i + 1]);
                }
                if i < rows - 1 {
                    for column in 0..columns {
                        let (p, q) = (matrix[i * columns + column], matrix[(i + 1) * columns + column]);
                        matrix[i * columns + column] = cos * p - sin * q;
                        matrix[(i + 1) * columns + column] = sin * p + cos * q;
                    }
                }
            }
        }
        let mut iteration =
            NewtonSchulz { x: x.iter().map(|x| *x as f32).collect(), ..NewtonSchulz::default() };
        iteration.run(rows, columns);
        for (found, expected) in iteration.x.iter().zip(&expected) {
            assert!((f64::from(*found) - expected).abs() < 1e-5, "{found} {expected}");
        }
    }

    #[test]
    fn zeros_stay_zeros() {
        let mut iteration = NewtonSchulz { x: vec![0.0; 6], ..NewtonSchulz::default() };
        iteration.run(2, 3);
        assert_eq!(iteration.x, [0.0; 6]);
    }
}
