//! Either form of the unit, for rows of values.

use std::mem::MaybeUninit;

use super::{normal, tanh};
use crate::lanes::{LANES, vectorized};

/// Form of the Gaussian error linear unit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    /// By the normal distribution.
    Normal,
    /// The approximation by tanh.
    Tanh,
}

impl Unit {
    /// Replaces each value by the unit's.
    #[inline(always)]
    pub(crate) fn apply(self, values: &mut [f32]) {
        match self {
            Unit::Normal => values.iter_mut().for_each(|value| *value = normal::value_and_slope(*value)[0]),
            Unit::Tanh => values.iter_mut().for_each(|value| *value = tanh::value_and_slope(*value)[0]),
        }
    }

    /// Same as [`apply`](Self::apply), and writes the slope at each value.
    #[inline(always)]
    pub(crate) fn apply_with_slopes(self, values: &mut [f32], slopes: &mut [MaybeUninit<f32>]) {
        match self {
            Unit::Normal => with_slopes(values, slopes, normal::value_and_slope),
            Unit::Tanh => with_slopes(values, slopes, tanh::value_and_slope),
        }
    }
}

/// Takes [`LANES`] values at a time. A loop of unknown length would leave most of a short row to single
/// steps.
#[inline(always)]
fn with_slopes(values: &mut [f32], slopes: &mut [MaybeUninit<f32>], unit: impl Fn(f32) -> [f32; 2]) {
    let (values, values_rest) = values.as_chunks_mut::<LANES>();
    let (slopes, slopes_rest) = slopes.as_chunks_mut::<LANES>();
    for (values, slopes) in values.iter_mut().zip(slopes) {
        let (x, mut at) = (*values, [0.0; LANES]);
        for lane in 0..LANES {
            [values[lane], at[lane]] = unit(x[lane]);
        }
        *slopes = at.map(MaybeUninit::new);
    }
    for (value, slope) in values_rest.iter_mut().zip(slopes_rest) {
        let [of_value, at] = unit(*value);
        *value = of_value;
        slope.write(at);
    }
}

/// Multiplies slopes by the gradient of the unit's values.
pub(crate) fn multiplied(mut slopes: Vec<f32>, gradient: &[f32]) -> Vec<f32> {
    vectorized(
        #[inline(always)]
        || slopes.iter_mut().zip(gradient).for_each(|(slope, gradient)| *slope *= gradient),
    );
    slopes
}
