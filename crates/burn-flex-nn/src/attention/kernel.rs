//! Arithmetic of attention, head by head and some queries at a time: their scores, weights and output follow
//! each other while the first cache holds them. Of a causal attention, keys after the last of these queries
//! are skipped.

use std::mem::MaybeUninit;
use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

use super::softmax::Rows;
use crate::dropout_mask::DropoutMask;
use crate::lanes::LANES;
use crate::tiles::{CHAIN, Panel, Product, Segment, panels};

/// Queries that are computed together; a multiple of a vector's length, so that rows end with vectors.
const QUERIES: usize = 16;

/// Sizes of an attention.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) batch: usize,
    pub(super) time: usize,
    pub(super) heads: usize,
    /// Width of a head.
    pub(super) head: usize,
}

impl Sizes {
    pub(super) fn scale(&self) -> f32 {
        (1.0 / (self.head as f64).sqrt()) as f32
    }

    fn width(&self) -> usize {
        self.heads * self.head
    }

    /// Rows of weights, one for each query of each head, and their length.
    pub(super) fn rows_of_weights(&self) -> [usize; 2] {
        [self.batch * self.heads * self.time, self.time]
    }

    /// Number of weights.
    pub(super) fn weights(&self) -> usize {
        self.batch * self.heads * self.time * self.time
    }

    /// Returns all heads, each with its number, and its first elements in queries, keys and values, and in
    /// the output.
    fn each_head(self) -> impl Iterator<Item = (usize, [usize; 3], usize)> {
        let width = self.width();
        (0..self.batch * self.heads).map(move |number| {
            let (row, column) = (number / self.heads * self.time, number % self.heads * self.head);
            let parts = [0, 1, 2].map(|part| (3 * row + part) * width + column);
            (number, parts, row * width + column)
        })
    }
}

/// Weights of the keys that were not skipped.
pub(super) type Weights = Vec<MaybeUninit<f32>>;

/// Returns output and weights.
pub(super) fn forward(
    qkv: &[f32],
    sizes: Sizes,
    rows: Rows<'_>,
    mask: Option<&DropoutMask>,
) -> (Vec<f32>, Weights) {
    forward_on(Arch::new(), qkv, sizes, rows, mask)
}

/// Same as [`forward`], with the vectors of one instruction set.
pub(super) fn forward_on(
    arch: Arch,
    qkv: &[f32],
    sizes: Sizes,
    rows: Rows<'_>,
    mask: Option<&DropoutMask>,
) -> (Vec<f32>, Weights) {
    let len = sizes.batch * sizes.time * sizes.width();
    assert!(qkv.len() == 3 * len && mask.is_none_or(|mask| mask.dims() == sizes.rows_of_weights()));
    let mut output = Vec::with_capacity(len);
    let mut weights = Vec::with_capacity(sizes.weights());
    arch.dispatch(Forward {
        qkv,
        sizes,
        rows,
        mask,
        weights: weights.as_mut_ptr(),
        output: output.as_mut_ptr(),
    });
    // SAFETY: the output of each query of each head was written; weights need not be.
    unsafe {
        output.set_len(len);
        weights.set_len(sizes.weights());
    }
    (output, weights)
}

/// Returns the gradient with respect to queries, keys and values.
pub(super) fn backward(
    qkv: &[f32],
    sizes: Sizes,
    rows: Rows<'_>,
    mask: Option<&DropoutMask>,
    weights: Weights,
    gradient: &[f32],
) -> Vec<f32> {
    backward_on(Arch::new(), qkv, sizes, rows, mask, weights, gradient)
}

/// Same as [`backward`], with the vectors of one instruction set.
pub(super) fn backward_on(
    arch: Arch,
    qkv: &[f32],
    sizes: Sizes,
    rows: Rows<'_>,
    mask: Option<&DropoutMask>,
    mut weights: Weights,
    gradient: &[f32],
) -> Vec<f32> {
    assert!(gradient.len() * 3 == qkv.len() && weights.len() == sizes.weights());
    let mut of_qkv = Vec::with_capacity(qkv.len());
    arch.dispatch(Backward {
        qkv,
        sizes,
        rows,
        mask,
        weights: weights.as_mut_ptr().cast(),
        gradient,
        of_qkv: of_qkv.as_mut_ptr(),
    });
    // SAFETY: all three parts of each position of each head were written.
    unsafe { of_qkv.set_len(qkv.len()) };
    of_qkv
}

/// Rows of a head, in memory at equal distances.
#[derive(Clone, Copy)]
struct Part<'a> {
    values: &'a [f32],
    row: usize,
    rows: usize,
    width: usize,
}

impl<'a> Part<'a> {
    fn row(&self, row: usize) -> &'a [f32] {
        &self.values[row * self.row..][..self.width]
    }

    /// Returns true if all elements are finite.
    #[inline(always)]
    fn is_finite(&self) -> bool {
        let mut most = [0; LANES];
        for row in (0..self.rows).map(|row| self.row(row)) {
            let (chunks, rest) = row.as_chunks::<LANES>();
            for chunk in chunks {
                for lane in 0..LANES {
                    most[lane] = most[lane].max(chunk[lane].abs().to_bits());
                }
            }
            for (most, value) in most.iter_mut().zip(rest) {
                *most = (*most).max(value.abs().to_bits());
            }
        }
        most.into_iter().all(|most| most < f32::INFINITY.to_bits())
    }
}

/// Second factor of products, packed.
struct Packed {
    panel: Panel,
    rows: usize,
    columns: usize,
    vectors: usize,
}

impl Packed {
    fn new(vectors: usize) -> Self {
        Packed { panel: Panel::take(), rows: 0, columns: 0, vectors }
    }

    #[inline(always)]
    fn pack<S: Simd>(&mut self, part: Part<'_>) {
        (self.rows, self.columns) = (part.rows, part.width);
        let width = self.vectors * S::F32_LANES;
        self.panel.resize(self.columns.div_ceil(width) * self.rows, width);
        for (number, (columns, _)) in panels(part.width, S::F32_LANES, self.vectors).enumerate() {
            self.panel.pack(number * part.rows, (0..part.rows).map(|row| part.row(row)), columns);
        }
    }

    #[inline(always)]
    fn pack_transposed<S: Simd>(&mut self, part: Part<'_>) {
        (self.rows, self.columns) = (part.width, part.rows);
        let width = self.vectors * S::F32_LANES;
        self.panel.resize(self.columns.div_ceil(width) * self.rows, width);
        for (number, (columns, _)) in panels(part.rows, S::F32_LANES, self.vectors).enumerate() {
            self.panel.pack_transposed(number * part.width, columns.map(|row| part.row(row)));
        }
    }

    /// Computes the first `columns` columns of `a · self`, over some rows of the factor.
    ///
    /// # Safety
    ///
    /// All elements of `a` and `out` must be within their memory.
    #[inline(always)]
    unsafe fn multiply<S: Simd>(
        &self,
        simd: S,
        (a, a_row, a_step): (*const f32, usize, usize),
        inner: Range<usize>,
        (out, out_row): (*mut f32, usize),
        rows: usize,
        columns: usize,
    ) {
        for (number, (columns, _)) in panels(columns, S::F32_LANES, self.vectors).enumerate() {
            for start in inner.clone().step_by(CHAIN) {
                let len = CHAIN.min(inner.end - start);
                let segments = [Segment { a: 0, b: number * self.rows + start, len }];
                // SAFETY: guaranteed by the caller.
                unsafe {
                    let product = Product {
                        segments: &segments,
                        a: a.add((start - inner.start) * a_step),
                        a_row,
                        a_step,
                        panel: self.panel.as_ptr(),
                        first: None,
                        out: out.add(columns.start),
                        out_row,
                        rows,
                        columns: columns.len(),
                        accumulate: start > inner.start,
                    };
                    product.compute(simd, self.vectors);
                }
            }
        }
    }
}

/// Number of vectors whose length divides [`QUERIES`], so that no more is computed than is used.
fn narrow<S: Simd>() -> usize {
    if S::F32_LANES < QUERIES { 2 } else { 1 }
}

fn blocks(time: usize) -> impl Iterator<Item = Range<usize>> {
    (0..time).step_by(QUERIES).map(move |start| start..time.min(start + QUERIES))
}

struct Forward<'a> {
    qkv: &'a [f32],
    sizes: Sizes,
    rows: Rows<'a>,
    mask: Option<&'a DropoutMask>,
    weights: *mut MaybeUninit<f32>,
    output: *mut f32,
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { sizes, rows, .. } = self;
        let Sizes { time, head, .. } = sizes;
        let width = sizes.width();
        let (mut keys, mut values) = (Packed::new(narrow::<S>()), Packed::new(2));
        let mut seen = vec![0.0; if self.mask.is_some() { QUERIES * time } else { 0 }];
        for (number, [q, k, v], output) in sizes.each_head() {
            let part =
                |start: usize| Part { values: &self.qkv[start..], row: 3 * width, rows: time, width: head };
            keys.pack_transposed::<S>(part(k));
            values.pack::<S>(part(v));
            // Weights of 0 must meet values that are not finite.
            let skips = rows.causal && part(v).is_finite();
            for block in blocks(time) {
                let end = if skips { block.end } else { time };
                let first = number * time + block.start;
                // SAFETY: rows of queries, weights and output of this head.
                unsafe {
                    let weights = self.weights.add(first * time).cast::<f32>();
                    let q = (self.qkv.as_ptr().add(q + block.start * 3 * width), 3 * width, 1);
                    keys.multiply(simd, q, 0..head, (weights, time), block.len(), end);
                    for index in 0..block.len() {
                        let weights = std::slice::from_raw_parts_mut(weights.add(index * time), end);
                        rows.softmax(first + index, weights);
                        if let Some(mask) = self.mask {
                            let seen = &mut seen[index * time..][..end];
                            seen.copy_from_slice(weights);
                            mask.multiply(first + index, 0, seen);
                        }
                    }
                    let seen = if self.mask.is_some() { seen.as_ptr() } else { weights };
                    let output = self.output.add(output + block.start * width);
                    values.multiply(simd, (seen, time, 1), 0..end, (output, width), block.len(), head);
                }
            }
        }
        keys.panel.give_back();
        values.panel.give_back();
    }
}

struct Backward<'a> {
    qkv: &'a [f32],
    sizes: Sizes,
    rows: Rows<'a>,
    mask: Option<&'a DropoutMask>,
    weights: *mut f32,
    gradient: &'a [f32],
    of_qkv: *mut f32,
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { sizes, rows, .. } = self;
        let Sizes { time, head, .. } = sizes;
        let (width, row) = (sizes.width(), 3 * sizes.width());
        let mut values = Packed::new(narrow::<S>());
        let [mut queries, mut keys, mut gradients] = [2; 3].map(Packed::new);
        let square = |is_used: bool| Vec::<f32>::with_capacity(if is_used { time * time } else { 0 });
        let (mut of_scores, mut seen) = (square(true), square(self.mask.is_some()));
        let (of_scores, seen) = (of_scores.as_mut_ptr(), seen.as_mut_ptr());
        for (number, [q, k, v], output) in sizes.each_head() {
            let part = |start: usize| Part { values: &self.qkv[start..], row, rows: time, width: head };
            let gradient = Part { values: &self.gradient[output..], row: width, rows: time, width: head };
            values.pack_transposed::<S>(part(v));
            queries.pack::<S>(part(q));
            keys.pack::<S>(part(k));
            gradients.pack::<S>(gradient);
            // The forward pass has written all weights if values are not finite.
            let has_all = !rows.causal || !part(v).is_finite();
            let skips = !has_all && [part(q), part(k), gradient].iter().all(Part::is_finite);
            // SAFETY: rows of weights, of their copies, and of the three gradients of this head.
            unsafe {
                let weights = self.weights.add(number * time * time);
                let of_part =
                    |start: usize, rows: &Range<usize>| (self.of_qkv.add(start + rows.start * row), row);
                for block in blocks(time) {
                    let end = if skips { block.end } else { time };
                    let at = block.start * time;
                    let gradient = (gradient.values.as_ptr().add(block.start * width), width, 1);
                    values.multiply(simd, gradient, 0..head, (of_scores.add(at), time), block.len(), end);
                    for index in block.clone() {
                        let at = index * time;
                        if !has_all && !skips {
                            weights.add(at + block.end).write_bytes(0, time - block.end);
                        }
                        let weights = std::slice::from_raw_parts(weights.add(at), end);
                        let of_scores = std::slice::from_raw_parts_mut(of_scores.add(at), end);
                        let row = number * time + index;
                        if let Some(mask) = self.mask {
                            seen.add(at).copy_from_nonoverlapping(weights.as_ptr(), end);
                            mask.multiply(row, 0, std::slice::from_raw_parts_mut(seen.add(at), end));
                        }
                        rows.gradient(row, weights, self.mask, of_scores);
                    }
                    let of_scores = (of_scores.add(at).cast_const(), time, 1);
                    keys.multiply(simd, of_scores, 0..end, of_part(q, &block), block.len(), head);
                }
                let seen = if self.mask.is_some() { seen } else { weights };
                for block in blocks(time) {
                    let first = if skips { block.start } else { 0 };
                    let at = first * time + block.start;
                    let (rows, inner) = (block.len(), first..time);
                    let of_scores = (of_scores.add(at).cast_const(), 1, time);
                    queries.multiply(simd, of_scores, inner.clone(), of_part(k, &block), rows, head);
                    let seen = (seen.add(at).cast_const(), 1, time);
                    gradients.multiply(simd, seen, inner, of_part(v, &block), rows, head);
                }
            }
        }
        for packed in [values, queries, keys, gradients] {
            packed.panel.give_back();
        }
    }
}
