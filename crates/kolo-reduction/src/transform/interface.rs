//! A gradient transform, and its decision.

use crate::buckets::Slice;
use kolo_optim::{Layout, Settings};

/// Observes the summed gradient, and decides on the step.
///
/// All ranks see the same bits, so they decide the same without communication; a transform must depend on
/// nothing else. It does not see running statistics. A step with any transform waits for all of its gradient
/// before the first parameter changes.
///
/// One that skips the updates of the first three steps, for `Trainer::transform`:
///
/// ```
/// use kolo_optim::Layout;
/// use kolo_reduction::Slice;
/// use kolo_reduction::transform::{Decision, GradientTransform};
///
/// struct LateStart(f64);
///
/// impl GradientTransform for LateStart {
///     fn init(&mut self, _: &Layout) {
///         self.0 = 0.0;
///     }
///
///     fn see(&mut self, _: &Slice, _gradient: &[f32]) {}
///
///     fn decide(&mut self, _scale: f64) -> Decision {
///         self.0 += 1.0;
///         Decision { factor: if self.0 > 3.0 { 1.0 } else { 0.0 }, norm: None }
///     }
///
///     fn state(&self) -> Vec<f64> {
///         vec![self.0]
///     }
///
///     fn restore(&mut self, state: &[f64]) -> Result<(), String> {
///         self.0 = *state.first().ok_or("the number of steps is missing")?;
///         Ok(())
///     }
/// }
///
/// let mut transform = LateStart(0.0);
/// assert_eq!([(); 4].map(|_| transform.decide(1.0).factor), [0.0, 0.0, 0.0, 1.0]);
/// ```
pub trait GradientTransform: Send + 'static {
    /// Name in the comparison of the ranks' settings; the default is the type's name.
    fn name(&self) -> &str {
        std::any::type_name::<Self>()
    }

    /// Settings that must be the same on all ranks; others are not compared.
    fn settings(&self) -> Settings {
        Settings::default()
    }

    /// Allocates state for the tensors of `layout`. Called before all other methods, and again if a worker
    /// must begin anew.
    fn init(&mut self, layout: &Layout);

    /// Observes the gradient of a slice, which is summed over the global batch. In each step every element
    /// of every trained tensor is seen once, in any order. A slice begins at a multiple of 16,384 elements
    /// of its tensor and, unless it ends there, is a multiple of that long. Sums must not depend on the
    /// order of the slices.
    fn see(&mut self, slice: &Slice, gradient: &[f32]);

    /// Numbers that [`GradientTransform::see`] fills, for jobs in which each worker sees a part of the
    /// gradient only (`Sharding::Gradients`). Kolo sets them to 0 before a step, and to their sums over all
    /// workers before the decision. Each must be filled by one slice, or one block of 16,384 elements of it.
    /// `None`: such a job refuses the transform.
    fn partial_sums(&mut self) -> Option<&mut [f64]> {
        None
    }

    /// Decides, when all of the gradient has been seen. `scale` makes it the mean over the batch, after the
    /// transforms before this one.
    fn decide(&mut self, scale: f64) -> Decision;

    /// State from the steps so far that later ones need, such as an average of norms; empty by default. Like
    /// its decisions it must be the same on all ranks. Kolo saves it in checkpoints, sends it to workers
    /// that join, and restores it when a step is repeated.
    fn state(&self) -> Vec<f64> {
        Vec::new()
    }

    /// Continues from a state of [`GradientTransform::state`], of this or another rank. Also called when a
    /// step has failed that it has seen a part of: it must discard its observations since its last decision.
    ///
    /// # Errors
    ///
    /// The fault of the state, for example if another version of the program has saved it.
    fn restore(&mut self, state: &[f64]) -> Result<(), String> {
        match state {
            [] => Ok(()),
            _ => Err("it keeps nothing from step to step".into()),
        }
    }
}

/// Decision of a [`GradientTransform`] on a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// Factor of the gradient.
    pub factor: f64,
    /// Global norm of the gradient before that, if it has been computed.
    pub norm: Option<f64>,
}
