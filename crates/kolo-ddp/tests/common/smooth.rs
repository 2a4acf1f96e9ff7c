//! A user's own gradient transform with state from earlier steps: it holds norms near their average.

use std::collections::BTreeMap;

use kolo_ddp::transform::{Decision, GradientTransform};
use kolo_ddp::{Layout, Slice};

#[derive(Default)]
pub struct Smooth {
    /// The average of the norms of earlier steps, and their number.
    average: f64,
    steps: f64,
    /// Squares of the current step, by tensor and first element: so the order does not matter.
    squares: BTreeMap<(usize, usize), f64>,
}

impl GradientTransform for Smooth {
    fn init(&mut self, _: &Layout) {
        *self = Smooth::default();
    }

    fn see(&mut self, slice: &Slice, gradient: &[f32]) {
        for (start, block) in
            (slice.elements.start..).step_by(kolo_ddp::BLOCK).zip(gradient.chunks(kolo_ddp::BLOCK))
        {
            let sum = block.iter().map(|g| f64::from(*g) * f64::from(*g)).sum();
            assert!(self.squares.insert((slice.span.0, start), sum).is_none(), "seen twice in a step");
        }
    }

    fn decide(&mut self, scale: f64) -> Decision {
        let norm = scale * std::mem::take(&mut self.squares).values().sum::<f64>().sqrt();
        let factor = if self.steps > 0.0 { (0.5 * self.average / norm).min(1.0) } else { 1.0 };
        self.average = (self.average * self.steps + norm) / (self.steps + 1.0);
        self.steps += 1.0;
        Decision { factor, norm: None }
    }

    fn state(&self) -> Vec<f64> {
        vec![self.average, self.steps]
    }

    fn restore(&mut self, state: &[f64]) -> Result<(), String> {
        let [average, steps] = *state else { return Err(format!("{} numbers in place of 2", state.len())) };
        *self = Smooth { average, steps, squares: BTreeMap::new() };
        Ok(())
    }
}
