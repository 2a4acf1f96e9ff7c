//! Two-dimensional convolution: its arithmetic on flat memory, and the operation of Burn's graph.

mod axis;
mod geometry;
mod implicit_gemm;
mod layer;
mod weight_gradient;
mod window;

pub use axis::Axis;
pub use geometry::Geometry;
pub use implicit_gemm::{forward, input_gradient};
pub use layer::conv2d;
pub use weight_gradient::weight_gradient;
pub(crate) use window::{Window, padded_axes};

#[cfg(test)]
mod tests {
    use pulp::Arch;

    use super::implicit_gemm::{forward_on, input_gradient_on};
    use super::weight_gradient::weight_gradient_on;
    use super::*;
    use crate::tiles::instruction_sets;

    #[test]
    fn every_instruction_set_gives_the_same_bits() {
        let values = |len: usize, seed: usize| -> Vec<f32> {
            (0..len).map(|i| ((i * 7_919 + seed * 104_729) as f32 * 0.37).sin()).collect()
        };
        for (channels, groups, samples, size, kernel, stride) in [
            ([3, 64], 1, 5, 11, 7, 2),
            ([19, 37], 1, 3, 6, 3, 1),
            ([600, 7], 1, 2, 2, 1, 1),
            ([5, 6], 3, 1, 7, 3, 2),
            ([40, 80], 1, 9, 4, 3, 1),
        ] {
            let padding = kernel / 2;
            let output = (size + 2 * padding - kernel) / stride + 1;
            let axis = Axis { input: size, output, kernel, stride, padding, dilation: 1 };
            let geometry = Geometry { rows: axis, columns: axis, samples, groups, channels };
            let x = values(geometry.input_len(), 1);
            let weights = values(geometry.weight_len(), 2);
            let gradient = values(geometry.output_len(), 3);
            let bits = |arch| {
                let passes = [
                    forward_on(arch, &geometry, &x, &weights),
                    input_gradient_on(arch, &geometry, &gradient, &weights),
                    weight_gradient_on(arch, &geometry, &x, &gradient),
                ];
                passes.map(|values| values.into_iter().map(f32::to_bits).collect::<Vec<_>>())
            };
            let scalar = bits(Arch::Scalar);
            assert!(instruction_sets().into_iter().all(|arch| bits(arch) == scalar), "{geometry:?}");
        }
    }
}
