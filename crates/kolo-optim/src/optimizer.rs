//! The [`Optimizer`] trait: a rule by which gradients change parameters, in one fused pass.

use std::any::type_name;

use crate::groups::{GroupError, GroupSettings};
use crate::layout::Layout;
use crate::settings::Settings;
use crate::store::{StateStore, StatelessRule};

pub use crate::update::{Scope, Update};

/// Learning rates that an optimizer is used with: bounds so wide that they exclude mistakes but no deliberate
/// choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UsualRates {
    /// Lowest rate.
    pub least: f64,
    /// Highest rate.
    pub most: f64,
    /// Reason for the bounds, with its source: sentences without a final period.
    pub source: &'static str,
}

/// A rule by which gradients change parameters.
///
/// The results may depend only on the arguments and on the optimizer's state. With [`Scope::Element`] they
/// must not depend on how a tensor is cut. The parameters are then the same bits for any number of workers
/// and any buckets.
///
/// The rule of your own optimizer, here plain gradient descent without state:
///
/// ```
/// use kolo_optim::{Layout, Optimizer, Update};
///
/// #[derive(Default)]
/// struct Descent(f32);
///
/// impl Optimizer for Descent {
///     fn init(&mut self, _: &Layout) {}
///
///     fn begin(&mut self, _step: u64, learning_rate: f64) {
///         self.0 = learning_rate as f32;
///     }
///
///     fn update(&mut self, update: Update<'_>) {
///         for (value, gradient) in update.parameters.iter_mut().zip(update.gradient) {
///             *value -= self.0 * update.scale * gradient;
///         }
///     }
///
///     fn state(&mut self) -> Vec<(&'static str, &mut [f32])> {
///         Vec::new()
///     }
/// }
///
/// let mut optimizer = Descent::default();
/// optimizer.begin(1, 0.5);
/// let mut values = [1.0];
/// let (parameters, gradient) = (&mut values[..], &[4.0][..]);
/// optimizer.update(Update { range: 0..1, parameters, gradient, scale: 0.25, decay: true, group: 0 });
/// assert_eq!(values, [0.5]);
/// ```
pub trait Optimizer: Send + 'static {
    /// Returns the name by which ranks compare their settings; by default the name of the type.
    fn name(&self) -> &str {
        std::any::type_name::<Self>()
    }

    /// Returns the settings, which must be the same on all ranks. Ranks do not compare what is missing here.
    fn settings(&self) -> Settings {
        Settings::default()
    }

    /// Returns a new optimizer with the same settings and no state. A job with islands needs one for each
    /// island. Optimizers of the table need not implement this: Kolo builds them by name.
    fn another(&self) -> Option<Box<dyn Optimizer>> {
        None
    }

    /// Returns the learning rates outside of which `kolo check` warns; `None` if none are known.
    fn usual_rates(&self) -> Option<UsualRates> {
        None
    }

    /// Returns the part of a tensor that one update has to see.
    fn scope(&self) -> Scope {
        Scope::Element
    }

    /// Sets what differs for groups of tensors. The first group holds all tensors that no group selects, and
    /// nothing differs there. If there are groups, this is called before [`Optimizer::init`]. It may be called
    /// again, also between steps: the new groups replace the old ones, and the state stays, except that state
    /// which only the new groups need begins at 0. A frozen group never gets an update.
    ///
    /// The default implementation accepts only groups that are frozen or differ in nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if the optimizer does not have a group's setting, if the value is not allowed, or if
    /// the optimizer cannot step tensors differently.
    fn set_groups(&mut self, groups: &[GroupSettings]) -> Result<(), GroupError> {
        match groups.iter().all(|group| group.is_plain() || group.is_frozen()) {
            true => Ok(()),
            false => Err(GroupError::Unsupported { optimizer: type_name::<Self>() }),
        }
    }

    /// Creates the state for the tensors of `layout`, as it is before the first step. This is called before
    /// all other methods but [`Optimizer::set_groups`], and again when a worker starts over.
    fn init(&mut self, layout: &Layout);

    /// Prepares the updates of step `step`, counted from 1.
    fn begin(&mut self, step: u64, learning_rate: f64);

    /// Steps some elements. A step covers every element of every trained tensor once, in any order.
    fn update(&mut self, update: Update<'_>);

    /// Returns the state: names, each with one value per element of flat memory. Together with the step
    /// number, this is all that a checkpoint or a worker that joins later needs. Empty if the state is in a
    /// [`store`](Optimizer::store); [`visit_state`](crate::visit_state) visits it wherever it lies.
    fn state(&mut self) -> Vec<(&'static str, &mut [f32])>;

    /// Returns the rule apart from its state, for a caller that holds the state, such as a file. `None`, the
    /// default, if this optimizer can only hold it in memory of its own.
    fn rule(&mut self) -> Option<&mut dyn StatelessRule> {
        None
    }

    /// Returns the store of the state, if it is not in this optimizer's memory.
    fn store(&mut self) -> Option<&mut dyn StateStore> {
        None
    }
}

impl<O: Optimizer + ?Sized> Optimizer for Box<O> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn settings(&self) -> Settings {
        (**self).settings()
    }

    fn another(&self) -> Option<Box<dyn Optimizer>> {
        (**self).another()
    }

    fn usual_rates(&self) -> Option<UsualRates> {
        (**self).usual_rates()
    }

    fn scope(&self) -> Scope {
        (**self).scope()
    }

    fn set_groups(&mut self, groups: &[GroupSettings]) -> Result<(), GroupError> {
        (**self).set_groups(groups)
    }

    fn init(&mut self, layout: &Layout) {
        (**self).init(layout);
    }

    fn begin(&mut self, step: u64, learning_rate: f64) {
        (**self).begin(step, learning_rate);
    }

    fn update(&mut self, update: Update<'_>) {
        (**self).update(update);
    }

    fn state(&mut self) -> Vec<(&'static str, &mut [f32])> {
        (**self).state()
    }

    fn rule(&mut self) -> Option<&mut dyn StatelessRule> {
        (**self).rule()
    }

    fn store(&mut self) -> Option<&mut dyn StateStore> {
        (**self).store()
    }
}
