//! Innermost loop: a small tile of a matrix product that stays in registers.
//!
//! Every element is one chain of fused multiply-adds in the order of the segments. Neither the vector width
//! nor the size of the tile affects the bits.

use std::hint::black_box;
use std::mem::MaybeUninit;

use pulp::Simd;

/// Steps of a sum in one chain of additions. Longer sums consist of several chains, which keeps rounding
/// errors small. It is part of the order of additions, and so of the result.
pub(crate) const CHAIN: usize = 512;

/// Rows of the highest tile.
const MOST_ROWS: usize = 8;

/// Columns of the widest panel: 4 vectors of 512 bits.
const MOST_COLUMNS: usize = 64;

/// Steps of a sum at equal distances in both factors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    /// Start in the first factor, relative to that of the product.
    pub(crate) a: isize,
    /// First row of the panel.
    pub(crate) b: usize,
    pub(crate) len: usize,
}

/// `out[i][j] = Σ a[i][k] · b[k][j]` over the steps k of all segments, or added to the values of `out`.
#[derive(Clone, Copy)]
pub(crate) struct Product<'a> {
    pub(crate) segments: &'a [Segment],
    pub(crate) a: *const f32,
    /// Distance between rows i of the first factor; `a_step` is that between steps k.
    pub(crate) a_row: usize,
    pub(crate) a_step: usize,
    /// Second factor: rows of `V` vectors.
    pub(crate) panel: *const f32,
    /// Values with which the columns' sums begin, for whole vectors, or zeros.
    pub(crate) first: Option<&'a [f32]>,
    pub(crate) out: *mut f32,
    pub(crate) out_row: usize,
    /// Number of rows i; `columns` counts the columns j, of which the panel may have more.
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) accumulate: bool,
}

impl Product<'_> {
    /// Computes the product with a panel of 1, 2 or 4 vectors per row.
    ///
    /// # Safety
    ///
    /// All elements that the sizes describe must be within the memory behind the three pointers.
    #[inline(always)]
    pub(crate) unsafe fn compute<S: Simd>(&self, simd: S, vectors: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match vectors {
                1 => self.all_rows::<S, 1>(simd),
                2 => self.all_rows::<S, 2>(simd),
                _ => self.all_rows::<S, 4>(simd),
            }
        }
    }

    #[inline(always)]
    unsafe fn all_rows<S: Simd, const V: usize>(&self, simd: S) {
        // Registers allow this many rows of sums, besides the factors.
        let most = if S::REGISTER_COUNT >= 32 { 8 } else { 6 };
        let mut next = 0;
        while next < self.rows {
            // Otherwise the compiler carries the address of each row of a tile along.
            let row = black_box(next);
            // SAFETY: guaranteed by `compute`'s caller; these are some of its rows.
            unsafe {
                match (self.rows - row).min(most) {
                    8 => self.tile::<S, 8, V>(simd, row),
                    7 => self.tile::<S, 7, V>(simd, row),
                    6 => self.tile::<S, 6, V>(simd, row),
                    5 => self.tile::<S, 5, V>(simd, row),
                    4 => self.tile::<S, 4, V>(simd, row),
                    3 => self.tile::<S, 3, V>(simd, row),
                    2 => self.tile::<S, 2, V>(simd, row),
                    _ => self.tile::<S, 1, V>(simd, row),
                }
            }
            next += most;
        }
    }

    #[inline(always)]
    unsafe fn tile<S: Simd, const R: usize, const V: usize>(&self, simd: S, row: usize) {
        let mut first = [simd.splat_f32s(0.0); V];
        if let Some(values) = self.first {
            let vectors = S::as_simd_f32s(&values[..V * S::F32_LANES]).0;
            first.copy_from_slice(vectors);
        }
        let mut sums = [first; R];
        let is_whole = self.columns == V * S::F32_LANES;
        let adds = is_whole && self.accumulate;
        // SAFETY: guaranteed by `compute`'s caller.
        unsafe {
            if adds {
                for i in 0..R {
                    let out = self.out.add((row + i) * self.out_row);
                    (0..=V).for_each(|j| prefetch(out.add(j * S::F32_LANES - usize::from(j == V))));
                }
            }
            let rows = self.a.add(row * self.a_row);
            for segment in self.segments {
                let mut a = rows.offset(segment.a);
                let mut b = self.panel.add(segment.b * V * S::F32_LANES);
                for _ in 0..segment.len {
                    let mut vectors = [simd.splat_f32s(0.0); V];
                    for (j, vector) in vectors.iter_mut().enumerate() {
                        *vector = b.add(j * S::F32_LANES).cast::<S::f32s>().read_unaligned();
                    }
                    for (i, sums) in sums.iter_mut().enumerate() {
                        let value = simd.splat_f32s(*a.add(i * self.a_row));
                        for (sum, vector) in sums.iter_mut().zip(vectors) {
                            *sum = simd.mul_add_f32s(value, vector, *sum);
                        }
                    }
                    a = a.add(self.a_step);
                    b = b.add(V * S::F32_LANES);
                }
            }
            // The sums have one use, at constant places, so that they stay in registers.
            let mut values = [MaybeUninit::<f32>::uninit(); MOST_ROWS * MOST_COLUMNS];
            let (out, out_row) = if is_whole {
                (self.out.add(row * self.out_row), self.out_row)
            } else {
                (values.as_mut_ptr().cast(), MOST_COLUMNS)
            };
            for (i, sums) in sums.iter().enumerate() {
                for (j, sum) in sums.iter().enumerate() {
                    let out = out.add(i * out_row + j * S::F32_LANES).cast::<S::f32s>();
                    let sum = if adds { simd.add_f32s(out.read_unaligned(), *sum) } else { *sum };
                    out.write_unaligned(sum);
                }
            }
            if !is_whole {
                for i in 0..R {
                    let out = self.out.add((row + i) * self.out_row);
                    let values = values.as_ptr().add(i * MOST_COLUMNS).cast::<f32>();
                    for j in 0..self.columns {
                        let sum = *values.add(j);
                        *out.add(j) = if self.accumulate { *out.add(j) + sum } else { sum };
                    }
                }
            }
        }
    }
}

/// Fetches the cache line of an element that is used later.
#[inline(always)]
fn prefetch(at: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch neither reads nor writes.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}
