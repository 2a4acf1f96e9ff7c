//! Arithmetic of pooling on activations in memory order.

use pulp::{Arch, Simd, WithSimd};

use crate::conv::Axis;
use crate::lanes::vectorized;

/// Maxima, and the tap that each came from.
pub(super) struct Maxima {
    pub(super) values: Vec<f32>,
    pub(super) taps: Vec<u8>,
}

/// Returns the largest value that each output position's taps see: the first of equal ones, and the last of
/// several NaN. `len` is the number of elements per position.
pub(super) fn forward(rows: Axis, columns: Axis, len: usize, x: &[f32]) -> Maxima {
    let outputs = rows.output * columns.output * len;
    let (mut values, mut taps) = (vec![f32::NEG_INFINITY; outputs], vec![0; outputs]);
    // The first tap always counts: where all taps see -∞, none would be larger than the initial -∞.
    let mut begun = usize::MAX;
    Arch::new().dispatch(Each {
        rows,
        columns,
        visit: |output: usize, source: usize, tap: u8| {
            let x = &x[source * len..][..len];
            let (values, taps) = (&mut values[output * len..][..len], &mut taps[output * len..][..len]);
            if begun != output {
                begun = output;
                values.copy_from_slice(x);
                taps.fill(tap);
                return;
            }
            for ((value, best), x) in values.iter_mut().zip(taps).zip(x) {
                let better = *x > *value || x.is_nan();
                *value = if better { *x } else { *value };
                *best = if better { tap } else { *best };
            }
        },
    });
    Maxima { values, taps }
}

/// Returns the gradient with respect to the input: each output's gradient goes to its maximum.
pub(super) fn backward(rows: Axis, columns: Axis, len: usize, gradient: &[f32], taps: &[u8]) -> Vec<f32> {
    let mut of_input = vec![0.0; rows.input * columns.input * len];
    Arch::new().dispatch(Each {
        rows,
        columns,
        visit: |output: usize, source: usize, tap: u8| {
            let from = gradient[output * len..][..len].iter().zip(&taps[output * len..][..len]);
            for (into, (gradient, best)) in of_input[source * len..][..len].iter_mut().zip(from) {
                *into += if *best == tap { *gradient } else { 0.0 };
            }
        },
    });
    of_input
}

/// Returns the mean over the positions, each of `len` elements. Sums are in double precision.
pub(super) fn averages(x: &[f32], len: usize) -> Vec<f32> {
    let positions = (x.len() / len) as f64;
    let mut sums = vec![0.0; len];
    vectorized(
        #[inline(always)]
        || {
            for x in x.chunks_exact(len) {
                sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += f64::from(*x));
            }
        },
    );
    sums.into_iter().map(|sum| (sum / positions) as f32).collect()
}

/// Visits each output position and each of its taps that sees an input position, in a fixed order.
struct Each<F> {
    rows: Axis,
    columns: Axis,
    visit: F,
}

impl<F: FnMut(usize, usize, u8)> WithSimd for Each<F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) {
        let Self { rows, columns, .. } = self;
        for row in 0..rows.output {
            for column in 0..columns.output {
                for (tap_row, source_row) in
                    (0..rows.kernel).filter_map(|tap| Some((tap, rows.source(row, tap)?)))
                {
                    for tap_column in 0..columns.kernel {
                        let Some(source_column) = columns.source(column, tap_column) else { continue };
                        let tap = tap_row * columns.kernel + tap_column;
                        (self.visit)(
                            row * columns.output + column,
                            source_row * columns.input + source_column,
                            tap as u8,
                        );
                    }
                }
            }
        }
    }
}
