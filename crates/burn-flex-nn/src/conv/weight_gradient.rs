//! Gradient of the weights: for each tap, the product of the input that it sees with the gradient of the
//! output.

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

use super::geometry::Geometry;
use crate::tiles::{CHAIN, Panel, Product, Segment, panels};

/// Returns the gradient of the loss with respect to the weights, from that with respect to the output.
///
/// # Panics
///
/// Panics if the lengths of the slices are not those of the geometry.
pub fn weight_gradient(geometry: &Geometry, input: &[f32], gradient: &[f32]) -> Vec<f32> {
    weight_gradient_on(Arch::new(), geometry, input, gradient)
}

/// Same as [`weight_gradient`], with the vectors of one instruction set.
pub(super) fn weight_gradient_on(
    arch: Arch,
    geometry: &Geometry,
    input: &[f32],
    gradient: &[f32],
) -> Vec<f32> {
    assert_eq!(input.len(), geometry.input_len());
    assert_eq!(gradient.len(), geometry.output_len());
    let len = geometry.weight_len();
    // An empty sum is 0.
    if input.is_empty() || gradient.is_empty() {
        return vec![0.0; len];
    }
    let mut target = Vec::with_capacity(len);
    arch.dispatch(Pass { geometry, input, gradient, target: target.as_mut_ptr() });
    // SAFETY: each panel of each tap was written.
    unsafe { target.set_len(len) };
    target
}

struct Pass<'a> {
    geometry: &'a Geometry,
    input: &'a [f32],
    gradient: &'a [f32],
    target: *mut f32,
}

impl WithSimd for Pass<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Geometry { rows, columns, samples, groups, channels: [input, output] } = *self.geometry;
        let positions = rows.output * columns.output;
        // About one chain, in whole positions, so that all their samples stay together.
        let chunk = CHAIN.div_ceil(samples.max(1));
        let taps = rows.kernel * columns.kernel;
        // Tiles of few rows have longer rows.
        let vectors = if input > 4 { 2 } else { 4 };
        let mut panel = Panel::take();
        let mut segments = Vec::new();
        for group in 0..groups {
            for (channels, vectors) in panels(output, S::F32_LANES, vectors) {
                let mut written = vec![false; taps];
                let first = group * output + channels.start;
                let in_gradient = first..first + channels.len();
                for start in (0..positions).step_by(chunk) {
                    let chunk = start..positions.min(start + chunk);
                    let width = groups * output;
                    let part = &self.gradient[chunk.start * samples * width..chunk.end * samples * width];
                    panel.resize(chunk.len() * samples, vectors * S::F32_LANES);
                    panel.pack(0, part.chunks_exact(width), in_gradient.clone());
                    for (tap, written) in written.iter_mut().enumerate() {
                        self.segments(tap, chunk.clone(), &mut segments);
                        if segments.is_empty() {
                            continue;
                        }
                        // SAFETY: the segments are positions of the input and rows of the panel.
                        unsafe {
                            let product = Product {
                                segments: &segments,
                                a: self.input.as_ptr().add(group * input),
                                a_row: 1,
                                a_step: groups * input,
                                panel: panel.as_ptr(),
                                first: None,
                                out: self.target.add(tap * input * width + first),
                                out_row: width,
                                rows: input,
                                columns: channels.len(),
                                accumulate: *written,
                            };
                            product.compute(simd, vectors);
                        }
                        *written = true;
                    }
                }
                for tap in (0..taps).filter(|tap| !written[*tap]) {
                    for row in 0..input {
                        // SAFETY: one row of the panel in the target.
                        unsafe {
                            let out = self.target.add((tap * input + row) * groups * output + first);
                            out.write_bytes(0, channels.len());
                        }
                    }
                }
            }
        }
        panel.give_back();
    }
}

impl Pass<'_> {
    /// Collects the places in input and panel of the sum over some output positions.
    fn segments(&self, tap: usize, positions: Range<usize>, into: &mut Vec<Segment>) {
        let Geometry { rows, columns, samples, groups, channels: [input, _] } = *self.geometry;
        let (row_tap, column_tap) = (tap / columns.kernel, tap % columns.kernel);
        let seen = columns.outputs_of(column_tap);
        into.clear();
        let mut at = positions.start;
        while at < positions.end {
            let (row, first) = (at / columns.output, at % columns.output);
            let end = columns.output.min(first + positions.end - at);
            if let Some(source_row) = rows.source(row, row_tap) {
                let part = first.max(seen.start)..end.min(seen.end);
                let one = if columns.stride == 1 { part.len() } else { 1 };
                for column in part.clone().step_by(one.max(1)) {
                    let source = columns.source(column, column_tap).expect("a column that the tap sees");
                    into.push(Segment {
                        a: ((source_row * columns.input + source) * samples * groups * input) as isize,
                        b: (at - positions.start + column - first) * samples,
                        len: one * samples,
                    });
                }
            }
            at += end - first;
        }
    }
}
