//! Passes that are an implicit matrix product of source positions with the weights of the taps that see them:
//! the output from the input, and the gradient of the input from that of the output.

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

use super::axis::{Plan, Run};
use super::geometry::Geometry;
use crate::tiles::{CHAIN, Panel, Product, Segment, panels};

/// Vectors per row of a panel.
const VECTORS: usize = 2;

/// Returns the output of a convolution without bias.
///
/// # Panics
///
/// Panics if the lengths of the slices are not those of the geometry.
pub fn forward(geometry: &Geometry, input: &[f32], weights: &[f32]) -> Vec<f32> {
    forward_on(Arch::new(), geometry, input, weights)
}

/// Same as [`forward`], with the vectors of one instruction set.
pub(super) fn forward_on(arch: Arch, geometry: &Geometry, input: &[f32], weights: &[f32]) -> Vec<f32> {
    assert_eq!(input.len(), geometry.input_len());
    assert_eq!(weights.len(), geometry.weight_len());
    // An empty sum is 0.
    if input.is_empty() || weights.is_empty() {
        return vec![0.0; geometry.output_len()];
    }
    let [source, target] = geometry.channels;
    run(
        arch,
        &ImplicitGemm {
            geometry,
            rows: geometry.rows.outputs(|_| false),
            columns: geometry.columns.outputs(|step| joined(geometry, step)),
            source: Side { height: geometry.rows.input, width: geometry.columns.input, channels: source },
            target: Side { height: geometry.rows.output, width: geometry.columns.output, channels: target },
            values: input,
            weights,
            transposed: false,
        },
    )
}

/// Returns the gradient of the loss with respect to the input, from that with respect to the output.
///
/// # Panics
///
/// Panics if the lengths of the slices are not those of the geometry.
pub fn input_gradient(geometry: &Geometry, gradient: &[f32], weights: &[f32]) -> Vec<f32> {
    input_gradient_on(Arch::new(), geometry, gradient, weights)
}

/// Same as [`input_gradient`], with the vectors of one instruction set.
pub(super) fn input_gradient_on(
    arch: Arch,
    geometry: &Geometry,
    gradient: &[f32],
    weights: &[f32],
) -> Vec<f32> {
    assert_eq!(gradient.len(), geometry.output_len());
    assert_eq!(weights.len(), geometry.weight_len());
    if gradient.is_empty() || weights.is_empty() {
        return vec![0.0; geometry.input_len()];
    }
    let [target, source] = geometry.channels;
    run(
        arch,
        &ImplicitGemm {
            geometry,
            rows: geometry.rows.inputs(|_| false),
            columns: geometry.columns.inputs(|step| joined(geometry, step)),
            source: Side { height: geometry.rows.output, width: geometry.columns.output, channels: source },
            target: Side { height: geometry.rows.input, width: geometry.columns.input, channels: target },
            values: gradient,
            weights,
            transposed: true,
        },
    )
}

/// Returns true if neighbors can be one matrix, because the rows of their samples are equally far apart.
fn joined(geometry: &Geometry, step: usize) -> bool {
    step == 1 || geometry.samples == 1
}

fn run(arch: Arch, gemm: &ImplicitGemm<'_>) -> Vec<f32> {
    let Side { height, width, channels } = gemm.target;
    let len = height * width * gemm.geometry.samples * gemm.geometry.groups * channels;
    let mut target = Vec::with_capacity(len);
    arch.dispatch(Pass { gemm, target: target.as_mut_ptr() });
    // SAFETY: every row and column of the target belongs to one run, and every channel to one panel, so all
    // of it was written.
    unsafe { target.set_len(len) };
    target
}

/// Activations that are read or written.
#[derive(Clone, Copy)]
struct Side {
    height: usize,
    width: usize,
    /// Channels of a group.
    channels: usize,
}

struct ImplicitGemm<'a> {
    geometry: &'a Geometry,
    rows: Plan,
    columns: Plan,
    source: Side,
    target: Side,
    /// Values of the source.
    values: &'a [f32],
    weights: &'a [f32],
    /// True if sums are over output channels.
    transposed: bool,
}

struct Pass<'a> {
    gemm: &'a ImplicitGemm<'a>,
    target: *mut f32,
}

impl WithSimd for Pass<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { gemm, target } = self;
        let slots = gemm.slots();
        let segments = gemm.all_segments(&slots);
        let mut panel = Panel::take();
        for group in 0..gemm.geometry.groups {
            for (columns, vectors) in panels(gemm.target.channels, S::F32_LANES, VECTORS) {
                gemm.pack(&mut panel, &slots, group, columns.clone(), vectors * S::F32_LANES);
                for row in &gemm.rows.runs {
                    for run in &gemm.columns.runs {
                        let segments = &segments[row.pattern * gemm.columns.patterns.len() + run.pattern];
                        // SAFETY: rows and columns are positions of the two sides. The segments are source
                        // positions of the run and rows of the panel.
                        unsafe {
                            let product = Product {
                                a: gemm.values.as_ptr().add(gemm.source_start(row, run, group)),
                                out: target.add(gemm.target_start(row, run, group) + columns.start),
                                ..gemm.product(run, &panel, columns.len())
                            };
                            for (index, segments) in segments.iter().enumerate() {
                                let product = Product { segments, accumulate: index > 0, ..product };
                                product.compute(simd, vectors);
                            }
                        }
                    }
                }
            }
        }
        panel.give_back();
    }
}

impl ImplicitGemm<'_> {
    /// Returns the chains of the sum for each pair of patterns: the terms' positions in both factors,
    /// relative to the first.
    fn all_segments(&self, slots: &[Option<usize>]) -> Vec<Vec<Vec<Segment>>> {
        let pairs = self
            .rows
            .patterns
            .iter()
            .flat_map(|row| self.columns.patterns.iter().map(move |column| (row, column)));
        pairs
            .map(|(row, column)| {
                let mut chains = Chains::default();
                for (row_tap, row) in row {
                    for (column_tap, column) in column {
                        let position = row * self.source.width as isize + column;
                        let a = position
                            * (self.geometry.samples * self.geometry.groups * self.source.channels) as isize;
                        let slot =
                            slots[self.tap(*row_tap, *column_tap)].expect("a tap that a position sees");
                        chains.push(a, slot * self.source.channels, self.source.channels);
                    }
                }
                chains.0
            })
            .collect()
    }

    fn tap(&self, row: usize, column: usize) -> usize {
        row * self.geometry.columns.kernel + column
    }

    /// Numbers the taps that see more than padding.
    fn slots(&self) -> Vec<Option<usize>> {
        let kernel = (0..self.geometry.rows.kernel)
            .flat_map(|row| (0..self.geometry.columns.kernel).map(move |column| (row, column)));
        let mut next = 0..;
        kernel
            .map(
                |(row, column)| {
                    if self.rows.sees(row) && self.columns.sees(column) { next.next() } else { None }
                },
            )
            .collect()
    }

    /// Packs some target channels of all taps that see a source.
    fn pack(
        &self,
        panel: &mut Panel,
        slots: &[Option<usize>],
        group: usize,
        targets: Range<usize>,
        width: usize,
    ) {
        let [input, output] = self.geometry.channels;
        let row = self.geometry.groups * output;
        let of_group = group * output..(group + 1) * output;
        panel.resize(slots.iter().flatten().count() * self.source.channels, width);
        for (tap, weights) in self.weights.chunks_exact(input * row).enumerate() {
            let Some(slot) = slots[tap] else { continue };
            let at = slot * self.source.channels;
            if self.transposed {
                let columns = targets.clone().map(|target| &weights[target * row..][of_group.clone()]);
                panel.pack_transposed(at, columns);
            } else {
                let columns = of_group.start + targets.start..of_group.start + targets.end;
                panel.pack(at, weights.chunks_exact(row), columns);
            }
        }
    }

    /// Returns the offset of a run's first tap in the source.
    fn source_start(&self, row: &Run, run: &Run, group: usize) -> usize {
        let position = row.source * self.source.width + run.source;
        (position * self.geometry.samples * self.geometry.groups + group) * self.source.channels
    }

    fn target_start(&self, row: &Run, run: &Run, group: usize) -> usize {
        let position = row.targets.start * self.target.width + run.targets.start;
        (position * self.geometry.samples * self.geometry.groups + group) * self.target.channels
    }

    /// Returns a run's product, without its place and its segments.
    fn product(&self, run: &Run, panel: &Panel, columns: usize) -> Product<'_> {
        let Geometry { samples, groups, .. } = *self.geometry;
        let distance = if run.targets.len() > 1 { self.columns.step } else { 1 };
        Product {
            segments: &[],
            a: self.values.as_ptr(),
            a_row: distance * groups * self.source.channels,
            a_step: 1,
            panel: panel.as_ptr(),
            first: None,
            out: std::ptr::null_mut(),
            out_row: groups * self.target.channels,
            rows: run.targets.len() * samples,
            columns,
            accumulate: false,
        }
    }
}

/// Terms of a sum, cut into chains.
struct Chains(Vec<Vec<Segment>>);

impl Default for Chains {
    /// Starts with one chain without terms: an empty sum is zero.
    fn default() -> Self {
        Chains(vec![Vec::new()])
    }
}

impl Chains {
    fn push(&mut self, mut a: isize, mut b: usize, mut len: usize) {
        while len > 0 {
            let part = len.min(CHAIN);
            let last = self.0.last_mut().expect("there is always one");
            let steps: usize = last.iter().map(|segment| segment.len).sum();
            let segment = Segment { a, b, len: part };
            if steps + part <= CHAIN {
                last.push(segment)
            } else {
                self.0.push(vec![segment])
            }
            (a, b, len) = (a + part as isize, b + part, len - part);
        }
    }
}
