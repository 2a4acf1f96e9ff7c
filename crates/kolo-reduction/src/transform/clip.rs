//! Clipping by the global norm.

use serde::{Deserialize, Serialize};

use super::block_squares::BlockSquares;
use super::interface::{Decision, GradientTransform};
use crate::buckets::Slice;
use kolo_optim::Layout;
use kolo_optim::table::{Entry, Setting, Settings};

pub(super) const ENTRY: Entry<dyn GradientTransform> = Entry {
    name: "clip",
    about: "Clips the gradient to a global norm (Pascanu, Mikolov & Bengio 2013, algorithm 1)",
    settings: &[Setting::positive("clip_norm", 1.0, "Clip gradients to this global norm")],
    make: |settings| Box::new(Clip { settings: settings.read(), squares: BlockSquares::default() }),
};

#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct ClipSettings {
    clip_norm: f64,
}

/// Multiplies the gradient so that its norm is at most the limit.
struct Clip {
    settings: ClipSettings,
    squares: BlockSquares,
}

impl GradientTransform for Clip {
    fn name(&self) -> &str {
        ENTRY.name
    }

    fn settings(&self) -> Settings {
        Settings::of(&self.settings)
    }

    fn init(&mut self, layout: &Layout) {
        self.squares = BlockSquares::new(layout);
    }

    fn see(&mut self, slice: &Slice, gradient: &[f32]) {
        self.squares.see(slice, gradient);
    }

    fn partial_sums(&mut self) -> Option<&mut [f64]> {
        Some(self.squares.sums())
    }

    fn decide(&mut self, scale: f64) -> Decision {
        let norm = scale * self.squares.sum().sqrt();
        Decision { factor: factor(norm, self.settings.clip_norm), norm: Some(norm) }
    }
}

/// Factor of gradients with which their norm is at most `limit`; the 10⁻⁶ is PyTorch's.
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
