//! Clipping by the global norm.

use serde::{Deserialize, Serialize};

use super::{Decision, GradientTransform};
use crate::buckets::{BLOCK, Slice};
use kolo_optim::Layout;
use kolo_optim::norm::sum_of_squares;
use kolo_optim::table::{Entry, Setting, Settings};

pub(super) const ENTRY: Entry<dyn GradientTransform> = Entry {
    name: "clip",
    about: "Clips the gradient to a global norm (Pascanu, Mikolov & Bengio 2013, algorithm 1)",
    settings: &[Setting::positive("clip_norm", 1.0, "Clip gradients to this global norm")],
    make: |settings| Box::new(Clip { settings: settings.read(), squares: Vec::new() }),
};

/// Settings of [`Clip`].
#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ClipSettings {
    clip_norm: f64,
}

/// Multiplies the gradient so that its norm is at most the limit.
struct Clip {
    settings: ClipSettings,
    /// Sums of squares by tensor and block. They come in any order and are added in the model's: how tensors
    /// were cut into buckets does not matter.
    squares: Vec<Vec<f64>>,
}

impl GradientTransform for Clip {
    fn name(&self) -> &str {
        ENTRY.name
    }

    fn settings(&self) -> Settings {
        Settings::of(&self.settings)
    }

    fn init(&mut self, layout: &Layout) {
        self.squares = layout.spans().iter().map(|span| vec![0.0; span.len.div_ceil(BLOCK)]).collect();
    }

    fn see(&mut self, slice: &Slice, gradient: &[f32]) {
        let blocks = &mut self.squares[slice.span.0][slice.elements.start / BLOCK..];
        blocks.iter_mut().zip(gradient.chunks(BLOCK)).for_each(|(sum, block)| *sum = sum_of_squares(block));
    }

    fn decide(&mut self, scale: f64) -> Decision {
        let norm = scale * self.squares.iter().flatten().sum::<f64>().sqrt();
        Decision { factor: factor(norm, self.settings.clip_norm), norm: Some(norm) }
    }
}

/// What to multiply gradients by so that their norm is at most `limit`; the 10⁻⁶ is PyTorch's.
fn factor(norm: f64, limit: f64) -> f64 {
    (limit / (norm + 1e-6)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_gradients_get_shorter() {
        assert_eq!(factor(0.5, 1.0), 1.0);
        assert!((factor(10.0, 1.0) - 0.1).abs() < 1e-6);
    }
}
