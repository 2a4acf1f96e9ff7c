//! Innermost loop: a small tile of a matrix product that stays in registers.
//!
//! Every element is one chain of fused multiply-adds in the order of the segments. Neither the vector width
//! nor the size of the tile affects the bits.

use std::mem::MaybeUninit;

use pulp::Simd;

/// Steps of a sum in one chain of additions. Longer sums consist of several chains, which keeps rounding
/// errors small. It is part of the order of additions, and so of the result.
pub(crate) const CHAIN: usize = 512;

/// Rows of the highest tile.
const MOST_ROWS: usize = 8;

/// Number of rows of the second factor that a tile fetches in advance while it packs.
const AHEAD: usize = 16;

/// Where a tile that does not pack would read the second factor.
const NO_SOURCE: (*const f32, usize) = (std::ptr::null(), 0);

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

    /// Same as [`compute`](Self::compute) with [`most_rows`] rows or more, and packs a panel of two whole
    /// vectors per row: the first tile reads the rows of the second factor where they are, and writes them
    /// into the panel for the others. Thus its sums hide how long memory takes.
    ///
    /// # Safety
    ///
    /// As [`compute`](Self::compute); `source` has the rows of the only segment, at the distance
    /// `source_row`, and the panel has a place for them.
    #[inline(always)]
    pub(crate) unsafe fn pack_and_compute<S: Simd>(&self, simd: S, source: *const f32, source_row: usize) {
        debug_assert!(self.rows >= most_rows::<S>() && self.segments.len() == 1);
        // SAFETY: guaranteed by the caller.
        unsafe {
            match most_rows::<S>() {
                8 => self.tile::<S, 8, 2, true>(simd, 0, (source, source_row)),
                _ => self.tile::<S, 6, 2, true>(simd, 0, (source, source_row)),
            }
            self.rows_from::<S, 2>(simd, most_rows::<S>());
        }
    }

    #[inline(always)]
    unsafe fn all_rows<S: Simd, const V: usize>(&self, simd: S) {
        // SAFETY: guaranteed by `compute`'s caller.
        unsafe { self.rows_from::<S, V>(simd, 0) }
    }

    #[inline(always)]
    unsafe fn rows_from<S: Simd, const V: usize>(&self, simd: S, mut row: usize) {
        let most = most_rows::<S>();
        while row < self.rows {
            // SAFETY: guaranteed by `compute`'s caller; these are some of its rows.
            unsafe {
                match (self.rows - row).min(most) {
                    8 => self.tile::<S, 8, V, false>(simd, row, NO_SOURCE),
                    7 => self.tile::<S, 7, V, false>(simd, row, NO_SOURCE),
                    6 => self.tile::<S, 6, V, false>(simd, row, NO_SOURCE),
                    5 => self.tile::<S, 5, V, false>(simd, row, NO_SOURCE),
                    4 => self.tile::<S, 4, V, false>(simd, row, NO_SOURCE),
                    3 => self.tile::<S, 3, V, false>(simd, row, NO_SOURCE),
                    2 => self.tile::<S, 2, V, false>(simd, row, NO_SOURCE),
                    _ => self.tile::<S, 1, V, false>(simd, row, NO_SOURCE),
                }
            }
            row += most;
        }
    }

    /// Computes `R` rows. If it packs, it reads the second factor from rows of `source`.
    #[inline(always)]
    unsafe fn tile<S: Simd, const R: usize, const V: usize, const PACKS: bool>(
        &self,
        simd: S,
        row: usize,
        (source, source_row): (*const f32, usize),
    ) {
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
                let mut panel = self.panel.add(segment.b * V * S::F32_LANES);
                let mut b = if PACKS { source } else { panel };
                for _ in 0..segment.len {
                    let mut vectors = [simd.splat_f32s(0.0); V];
                    for (j, vector) in vectors.iter_mut().enumerate() {
                        *vector = b.add(j * S::F32_LANES).cast::<S::f32s>().read_unaligned();
                        if PACKS {
                            let into = panel.add(j * S::F32_LANES).cast_mut();
                            into.cast::<S::f32s>().write_unaligned(*vector);
                        }
                    }
                    if PACKS {
                        let ahead = b.wrapping_add(AHEAD * source_row);
                        prefetch(ahead);
                        prefetch(ahead.wrapping_add(V * S::F32_LANES - 1));
                        panel = panel.add(V * S::F32_LANES);
                    }
                    for (i, sums) in sums.iter_mut().enumerate() {
                        let value = simd.splat_f32s(*a.add(i * self.a_row));
                        for (sum, vector) in sums.iter_mut().zip(vectors) {
                            *sum = simd.mul_add_f32s(value, vector, *sum);
                        }
                    }
                    a = a.add(self.a_step);
                    b = b.wrapping_add(if PACKS { source_row } else { V * S::F32_LANES });
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

/// Returns the rows of the highest tile: as many sums as there are registers for, besides the factors.
pub(crate) const fn most_rows<S: Simd>() -> usize {
    if S::REGISTER_COUNT >= 32 { 8 } else { 6 }
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
