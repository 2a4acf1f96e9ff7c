//! Arithmetic of batch normalization.
//!
//! Sums are in double precision, row by row. The squares of `f32` are exact there, so the variance can be
//! computed from the sum of squares, in one pass, without the cancellation that `f32` would suffer.

use super::rows::{Formula, Terms, each, sums};

pub(super) struct Moments {
    pub(super) mean: Vec<f64>,
    pub(super) variance: Vec<f64>,
}

pub(super) fn moments(x: &[f32], channels: usize) -> Moments {
    let count = (x.len() / channels) as f64;
    let [sums, squares] = sums::<Squares>(&vec![0.0; channels], x, x);
    let mean: Vec<f64> = sums.iter().map(|sum| sum / count).collect();
    let variance = squares.iter().zip(&mean).map(|(sum, mean)| at_least_zero(sum / count - mean * mean));
    Moments { variance: variance.collect(), mean }
}

/// Rounding may make a variance negative, which becomes 0. NaN must stay NaN; `f64::max` would drop it.
fn at_least_zero(variance: f64) -> f64 {
    if variance < 0.0 { 0.0 } else { variance }
}

struct Squares;

impl Terms for Squares {
    #[inline(always)]
    fn at(_: f64, x: f64, _: f64) -> [f64; 2] {
        [x, x * x]
    }
}

/// Parameters of each channel's normalization: `(x - mean) · scale + shift`.
#[derive(Clone, Debug)]
pub(super) struct Affine {
    pub(super) mean: Vec<f32>,
    pub(super) scale: Vec<f32>,
    pub(super) shift: Vec<f32>,
}

/// Operation on the normalized values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Epilogue {
    Nothing,
    Relu,
    /// Adds the shortcut's values first.
    AddRelu,
}

impl Affine {
    /// Returns the layer's output; `shortcut` is used only by [`Epilogue::AddRelu`].
    pub(super) fn apply(&self, x: &[f32], shortcut: &[f32], epilogue: Epilogue) -> Vec<f32> {
        let (channels, numbers) = (self.mean.len(), [&*self.mean, &*self.scale, &*self.shift]);
        match epilogue {
            Epilogue::Nothing => each::<Normalized, 3>(channels, numbers, x, x),
            Epilogue::Relu => each::<NormalizedRelu, 3>(channels, numbers, x, x),
            Epilogue::AddRelu => each::<NormalizedAddRelu, 3>(channels, numbers, x, shortcut),
        }
    }

    /// Returns the gradient with respect to `x` if mean and scale do not depend on it.
    pub(super) fn gradient_by_scale(&self, gradient: &[f32]) -> Vec<f32> {
        each::<Scaled, 1>(self.mean.len(), [&self.scale], gradient, gradient)
    }

    /// Returns the gradient with respect to `x`: `(gradient - first - (x - mean) · second) · scale`.
    pub(super) fn gradient(&self, gradient: &[f32], x: &[f32], first: &[f32], second: &[f32]) -> Vec<f32> {
        each::<InputGradient, 4>(self.mean.len(), [&self.mean, &self.scale, first, second], gradient, x)
    }
}

/// NaN stays NaN, as in Burn: `f32::max` would make it 0, and a broken network would train on.
#[inline(always)]
fn relu(x: f32) -> f32 {
    if x <= 0.0 { 0.0 } else { x }
}

struct Normalized;
struct NormalizedRelu;
struct NormalizedAddRelu;
struct InputGradient;
struct Scaled;
struct ThroughRelu;

impl Formula<3> for Normalized {
    #[inline(always)]
    fn at([mean, scale, shift]: [f32; 3], x: f32, _: f32) -> f32 {
        (x - mean) * scale + shift
    }
}

impl Formula<3> for NormalizedRelu {
    #[inline(always)]
    fn at(numbers: [f32; 3], x: f32, _: f32) -> f32 {
        relu(Normalized::at(numbers, x, x))
    }
}

impl Formula<3> for NormalizedAddRelu {
    #[inline(always)]
    fn at(numbers: [f32; 3], x: f32, shortcut: f32) -> f32 {
        relu(Normalized::at(numbers, x, x) + shortcut)
    }
}

impl Formula<4> for InputGradient {
    #[inline(always)]
    fn at([mean, scale, first, second]: [f32; 4], gradient: f32, x: f32) -> f32 {
        (gradient - first - (x - mean) * second) * scale
    }
}

impl Formula<1> for Scaled {
    #[inline(always)]
    fn at([scale]: [f32; 1], gradient: f32, _: f32) -> f32 {
        gradient * scale
    }
}

impl Formula<0> for ThroughRelu {
    #[inline(always)]
    fn at(_: [f32; 0], gradient: f32, output: f32) -> f32 {
        if output <= 0.0 { 0.0 } else { gradient }
    }
}

/// Returns the gradient before the ReLU: the output's gradient if the output is positive or NaN, or else 0.
pub(super) fn through_relu(gradient: &[f32], output: &[f32], channels: usize) -> Vec<f32> {
    each::<ThroughRelu, 0>(channels, [], gradient, output)
}

struct GradientTerms;

impl Terms for GradientTerms {
    #[inline(always)]
    fn at(mean: f64, gradient: f64, x: f64) -> [f64; 2] {
        [gradient, gradient * (x - mean)]
    }
}

/// Returns for each channel the sum of `gradient`, and of its products with `x` minus the channel's mean.
pub(super) fn gradient_sums(gradient: &[f32], x: &[f32], mean: &[f32]) -> [Vec<f64>; 2] {
    let mean: Vec<f64> = mean.iter().copied().map(f64::from).collect();
    sums::<GradientTerms>(&mean, gradient, x)
}
