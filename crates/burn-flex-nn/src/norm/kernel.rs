//! The arithmetic of batch normalisation.
//!
//! Sums are made in double precision, row by row: the squares of `f32` are exact there, so that the variance
//! can be had from the sum of squares, in one pass, without the cancellation that this would suffer in `f32`.

use super::rows::{Formula, Terms, each, sums};

/// Mean and variance of each channel.
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

/// What rounding has made negative is 0. NaN stays, which `f64::max` would replace.
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

/// For each channel what turns its elements into normalised ones: `(x - mean) · scale + shift`.
#[derive(Clone, Debug)]
pub(super) struct Affine {
    pub(super) mean: Vec<f32>,
    pub(super) scale: Vec<f32>,
    pub(super) shift: Vec<f32>,
}

/// What is done to the normalised values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Epilogue {
    Nothing,
    Relu,
    /// The shortcut's values are added first.
    AddRelu,
}

impl Affine {
    /// The layer's output. `shortcut` is looked at where it is added.
    pub(super) fn apply(&self, x: &[f32], shortcut: &[f32], epilogue: Epilogue) -> Vec<f32> {
        let (channels, numbers) = (self.mean.len(), [&*self.mean, &*self.scale, &*self.shift]);
        match epilogue {
            Epilogue::Nothing => each::<Normalised, 3>(channels, numbers, x, x),
            Epilogue::Relu => each::<NormalisedRelu, 3>(channels, numbers, x, x),
            Epilogue::AddRelu => each::<NormalisedAddRelu, 3>(channels, numbers, x, shortcut),
        }
    }

    /// The gradient with respect to `x` where mean and scale are not its own.
    pub(super) fn gradient_by_scale(&self, gradient: &[f32]) -> Vec<f32> {
        each::<Scaled, 1>(self.mean.len(), [&self.scale], gradient, gradient)
    }

    /// The gradient with respect to `x`: `(gradient - first - (x - mean) · second) · scale`.
    pub(super) fn gradient(&self, gradient: &[f32], x: &[f32], first: &[f32], second: &[f32]) -> Vec<f32> {
        each::<InputGradient, 4>(self.mean.len(), [&self.mean, &self.scale, first, second], gradient, x)
    }
}

/// NaN stays NaN, as in Burn's: `f32::max` would make 0 of it, and a broken network would train on.
#[inline(always)]
fn relu(x: f32) -> f32 {
    if x <= 0.0 { 0.0 } else { x }
}

struct Normalised;
struct NormalisedRelu;
struct NormalisedAddRelu;
struct InputGradient;
struct Scaled;
struct ThroughRelu;

impl Formula<3> for Normalised {
    #[inline(always)]
    fn at([mean, scale, shift]: [f32; 3], x: f32, _: f32) -> f32 {
        (x - mean) * scale + shift
    }
}

impl Formula<3> for NormalisedRelu {
    #[inline(always)]
    fn at(numbers: [f32; 3], x: f32, _: f32) -> f32 {
        relu(Normalised::at(numbers, x, x))
    }
}

impl Formula<3> for NormalisedAddRelu {
    #[inline(always)]
    fn at(numbers: [f32; 3], x: f32, shortcut: f32) -> f32 {
        relu(Normalised::at(numbers, x, x) + shortcut)
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

/// The gradient with respect to what was cut off below zero: that of the output where the output is positive,
/// or NaN.
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

/// For each channel the sum of `gradient`, and of its products with `x` less the channel's mean.
pub(super) fn gradient_sums(gradient: &[f32], x: &[f32], mean: &[f32]) -> [Vec<f64>; 2] {
    let mean: Vec<f64> = mean.iter().copied().map(f64::from).collect();
    sums::<GradientTerms>(&mean, gradient, x)
}
