//! Places of an optimizer's state other than its own memory: a rule whose state the caller holds, and the
//! store that holds it.

use std::any::Any;
use std::fmt;
use std::ops::Range;

use crate::layout::Layout;
use crate::update::{Scope, Update};

/// The rule of an optimizer, apart from its state, which the caller holds.
pub trait StatelessRule {
    /// Returns the names of the arrays of state, in the order of
    /// [`Optimizer::state`](crate::Optimizer::state).
    fn arrays(&mut self) -> Vec<&'static str>;

    /// Same as [`Optimizer::init`](crate::Optimizer::init), without creating state. The caller's state
    /// begins at 0.
    fn init_stateless(&mut self, layout: &Layout);

    /// Same as [`Optimizer::update`](crate::Optimizer::update), with the state of exactly these elements:
    /// one slice for each array.
    fn update_with(&mut self, update: Update<'_>, state: &mut [&mut [f32]]);
}

/// Function that is called with runs of state: the array's name, the first element, and the values.
pub type VisitRun<'a> = dyn FnMut(&'static str, usize, &mut [f32]) + 'a;

/// A place of an optimizer's state other than its memory.
pub trait StateStore {
    /// Returns the names of the arrays.
    fn names(&self) -> &[&'static str];

    /// Begins anew with these arrays for the tensors of `layout`, all of them 0.
    fn init(&mut self, layout: &Layout, scope: Scope, arrays: Vec<&'static str>);

    /// Prepares the updates of a step.
    fn begin(&mut self) {}

    /// Runs an update of a rule whose arrays this store has.
    fn update(&mut self, rule: &mut dyn StatelessRule, update: Update<'_>);

    /// Visits all of the state, one array after another, each in runs that follow one another and of which
    /// there is at least one. What the function changes is kept.
    fn visit(&mut self, visit: &mut VisitRun<'_>);

    /// Visits at least the runs of one array that hold some of these elements. A store that reads what it
    /// visits from elsewhere reads no more than those.
    fn visit_array(&mut self, _array: &str, _elements: &Range<usize>, visit: &mut VisitRun<'_>) {
        self.visit(visit);
    }

    /// Returns the first failure of the store. From a failure on updates change nothing, and the state is
    /// lost.
    ///
    /// # Errors
    ///
    /// The failure.
    fn check(&mut self) -> Result<(), StoreFailure>;

    /// Takes a warning for the user: the state is elsewhere than it should be.
    fn take_warning(&mut self) -> Option<String> {
        None
    }

    /// Receives the memory of a store that gets it only when workers meet. Other stores do nothing.
    fn attach(&mut self, _memory: Box<dyn Any>) {}
}

/// Fault of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFault {
    /// The place that the user gave cannot hold any state.
    Folder,
    /// The place has no room for this worker's state.
    NoRoom,
    /// State that was written is lost.
    Lost,
}

/// Failure of a store, after which the state is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFailure {
    /// Its fault.
    pub fault: StoreFault,
    /// Place and cause, and advice.
    pub problem: String,
}

impl fmt::Display for StoreFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problem)
    }
}

impl std::error::Error for StoreFailure {}
