//! Loops over matrices whose columns are channels, compiled for the widest vectors of the processor.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use pulp::{Arch, Simd, WithSimd};

/// Formula of one element of each of two matrices, and `N` numbers of their channel.
pub(super) trait Formula<const N: usize> {
    fn at(of_channel: [f32; N], a: f32, b: f32) -> f32;
}

pub(super) fn each<F: Formula<N>, const N: usize>(
    channels: usize,
    of_channel: [&[f32]; N],
    a: &[f32],
    b: &[f32],
) -> Vec<f32> {
    let mut out = Vec::with_capacity(a.len());
    let into = &mut out.spare_capacity_mut()[..a.len()];
    assert!(a.len() == b.len() && a.len().is_multiple_of(channels));
    Arch::new().dispatch(Each::<F, N> { channels, of_channel, a, b, into, formula: PhantomData });
    // SAFETY: all rows were written, and they are all of the vector.
    unsafe { out.set_len(a.len()) };
    out
}

struct Each<'a, F, const N: usize> {
    channels: usize,
    of_channel: [&'a [f32]; N],
    a: &'a [f32],
    b: &'a [f32],
    into: &'a mut [MaybeUninit<f32>],
    formula: PhantomData<F>,
}

impl<F: Formula<N>, const N: usize> WithSimd for Each<'_, F, N> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { channels, mut of_channel, .. } = self;
        for numbers in &mut of_channel {
            *numbers = &numbers[..channels];
        }
        let rows = self.a.chunks_exact(channels).zip(self.b.chunks_exact(channels));
        for (into, (a, b)) in self.into.chunks_exact_mut(channels).zip(rows) {
            let (into, a, b) = (&mut into[..channels], &a[..channels], &b[..channels]);
            for channel in 0..channels {
                let mut numbers = [0.0; N];
                for index in 0..N {
                    numbers[index] = of_channel[index][channel];
                }
                into[channel].write(F::at(numbers, a[channel], b[channel]));
            }
        }
    }
}

/// Two terms of sums, from one element of each of two matrices and a number of their channel.
pub(super) trait Terms {
    fn at(of_channel: f64, a: f64, b: f64) -> [f64; 2];
}

/// Returns the sums of the terms over each channel's elements, row by row.
pub(super) fn sums<T: Terms>(of_channel: &[f64], a: &[f32], b: &[f32]) -> [Vec<f64>; 2] {
    let channels = of_channel.len();
    let (mut first, mut second) = (vec![0.0; channels], vec![0.0; channels]);
    let terms = PhantomData;
    Arch::new().dispatch(Sums::<T> { of_channel, a, b, first: &mut first, second: &mut second, terms });
    [first, second]
}

struct Sums<'a, T> {
    of_channel: &'a [f64],
    a: &'a [f32],
    b: &'a [f32],
    first: &'a mut [f64],
    second: &'a mut [f64],
    terms: PhantomData<T>,
}

impl<T: Terms> WithSimd for Sums<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let channels = self.of_channel.len();
        let (first, second) = (&mut self.first[..channels], &mut self.second[..channels]);
        for (a, b) in self.a.chunks_exact(channels).zip(self.b.chunks_exact(channels)) {
            let (a, b) = (&a[..channels], &b[..channels]);
            for channel in 0..channels {
                let [x, y] = T::at(self.of_channel[channel], f64::from(a[channel]), f64::from(b[channel]));
                first[channel] += x;
                second[channel] += y;
            }
        }
    }
}
