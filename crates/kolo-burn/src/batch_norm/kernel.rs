//! Arithmetic of batch normalization on flat memory: runs of one channel's elements, or rows of all channels.
//!
//! Sums are in double precision, where the squares of `f32` are exact. The variance can thus be computed from
//! the sum of squares, in one pass and one exchange, without the cancellation that `f32` would suffer.

use std::ops::Range;

/// Number of running sums. It is part of the order of additions, and so of the result.
const LANES: usize = 8;

/// Shape of the normalized tensor: `[samples, channels, inner]` in row-major order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// Number of samples, or of samples times positions if the channels are innermost.
    pub(super) samples: usize,
    pub(super) channels: usize,
    /// Number of contiguous elements of one channel in one sample.
    pub(super) inner: usize,
}

impl Extent {
    pub(super) fn count(&self) -> f64 {
        (self.samples * self.inner) as f64
    }

    /// Returns the ranges of the channels' elements, sample by sample.
    fn runs(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        let (channels, inner) = (self.channels, self.inner);
        (0..self.samples * channels).map(move |run| (run % channels, run * inner..(run + 1) * inner))
    }
}

/// Returns the sums of `x` for all channels, then the sums of its squares for all channels.
pub(super) fn moments(extent: Extent, x: &[f32]) -> Vec<f64> {
    pairs(extent, x, x, |_| |x, _| [x, x * x])
}

/// Returns for each channel the sum of `gradient` and of its products with `x` minus the channel's mean, in
/// the order of [`moments`].
pub(super) fn gradient_moments(extent: Extent, gradient: &[f32], x: &[f32], mean: &[f64]) -> Vec<f64> {
    pairs(extent, gradient, x, |channel| {
        let mean = mean[channel];
        move |gradient, x| [gradient, gradient * (x - mean)]
    })
}

/// Returns `(x - mean) * scale + shift`, with the numbers of each channel.
pub(super) fn normalize(extent: Extent, x: &[f32], mean: &[f64], scale: &[f64], shift: &[f32]) -> Vec<f32> {
    let mut out = Vec::with_capacity(x.len());
    if extent.inner == 1 {
        let (mean, scale) = (rounded(mean), rounded(scale));
        for row in x.chunks_exact(extent.channels.max(1)) {
            let of_channel = mean.iter().zip(&scale).zip(shift);
            out.extend(
                row.iter().zip(of_channel).map(|(x, ((mean, scale), shift))| (x - mean) * scale + shift),
            );
        }
        return out;
    }
    for (channel, run) in extent.runs() {
        let (mean, scale, shift) = (mean[channel] as f32, scale[channel] as f32, shift[channel]);
        out.extend(x[run].iter().map(|x| (x - mean) * scale + shift));
    }
    out
}

/// Returns the gradient of the loss with respect to `x`: `(gradient - first - (x - mean) * second) * scale`,
/// with the numbers of each channel.
pub(super) fn gradient(
    extent: Extent,
    gradient: &[f32],
    x: &[f32],
    mean: &[f64],
    [scale, first, second]: [&[f64]; 3],
) -> Vec<f32> {
    let mut out = Vec::with_capacity(x.len());
    if extent.inner == 1 {
        let [mean, scale, first, second] = [mean, scale, first, second].map(rounded);
        for (gradient, x) in
            gradient.chunks_exact(extent.channels.max(1)).zip(x.chunks_exact(extent.channels.max(1)))
        {
            let of_channel = mean.iter().zip(&scale).zip(first.iter().zip(&second));
            let pairs = gradient.iter().zip(x).zip(of_channel);
            out.extend(pairs.map(|((gradient, x), ((mean, scale), (first, second)))| {
                (gradient - first - (x - mean) * second) * scale
            }));
        }
        return out;
    }
    for (channel, run) in extent.runs() {
        let (mean, scale) = (mean[channel] as f32, scale[channel] as f32);
        let (first, second) = (first[channel] as f32, second[channel] as f32);
        let pairs = gradient[run.clone()].iter().zip(&x[run]);
        out.extend(pairs.map(|(gradient, x)| (gradient - first - (x - mean) * second) * scale));
    }
    out
}

fn rounded(values: &[f64]) -> Vec<f32> {
    values.iter().map(|value| *value as f32).collect()
}

/// Returns two sums over the elements of `a` and `b` for each channel.
fn pairs<F: Fn(f64, f64) -> [f64; 2]>(
    extent: Extent,
    a: &[f32],
    b: &[f32],
    of_channel: impl Fn(usize) -> F,
) -> Vec<f64> {
    let mut sums = vec![0.0; 2 * extent.channels];
    if extent.inner == 1 {
        let terms: Vec<F> = (0..extent.channels).map(of_channel).collect();
        let (first, second) = sums.split_at_mut(extent.channels);
        for (a, b) in a.chunks_exact(extent.channels.max(1)).zip(b.chunks_exact(extent.channels.max(1))) {
            let sums = first.iter_mut().zip(second.iter_mut()).zip(&terms);
            for (((first, second), term), (a, b)) in sums.zip(a.iter().zip(b)) {
                let [x, y] = term(f64::from(*a), f64::from(*b));
                *first += x;
                *second += y;
            }
        }
        return sums;
    }
    for (channel, run) in extent.runs() {
        let [first, second] = sum(&a[run.clone()], &b[run], of_channel(channel));
        sums[channel] += first;
        sums[extent.channels + channel] += second;
    }
    sums
}

fn sum(a: &[f32], b: &[f32], term: impl Fn(f64, f64) -> [f64; 2]) -> [f64; 2] {
    let (mut first, mut second) = ([0.0; LANES], [0.0; LANES]);
    let mut add = |lane: usize, a: f32, b: f32| {
        let [x, y] = term(f64::from(a), f64::from(b));
        first[lane] += x;
        second[lane] += y;
    };
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter().zip(b) {
        (0..LANES).for_each(|lane| add(lane, a[lane], b[lane]));
    }
    a_rest.iter().zip(b_rest).enumerate().for_each(|(lane, (a, b))| add(lane, *a, *b));
    [first.iter().sum(), second.iter().sum()]
}
