//! Gradient transforms: decisions over a step's whole gradient before the optimizer sees it.
//!
//! A new one is a file here and a line in [`TRANSFORMS`]; a user's own is a type that implements
//! [`GradientTransform`].

mod block_squares;
mod clip;
mod interface;

pub use self::block_squares::BlockSquares;
pub use self::interface::{Decision, GradientTransform};
use crate::buckets::{Slice, trained};
use crate::error::Error;
use kolo_optim::Layout;
use kolo_optim::table::{self, Choice, ChoiceError, Entry};
use std::fmt;

/// All gradient transforms.
pub static TRANSFORMS: &[Entry<dyn GradientTransform>] = &[clip::ENTRY];

/// Returns the entry of that name in [`TRANSFORMS`].
///
/// # Errors
///
/// There is none of that name; the error lists the known ones.
pub fn find(name: &str) -> Result<&'static Entry<dyn GradientTransform>, ChoiceError> {
    table::find("gradient transform", TRANSFORMS, name)
}

/// State of each of a replica's transforms from the steps so far.
pub type States = Vec<Vec<f64>>;

/// The transforms of a replica, one after another.
#[derive(Default)]
pub struct Transforms {
    all: Vec<Box<dyn GradientTransform>>,
    /// States before the current step, if they have seen a part of it, until it is complete.
    before: Option<States>,
    /// States from other ranks or a checkpoint: a program adds its own transforms after it has joined.
    given: States,
}

impl fmt::Debug for Transforms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Transforms({})", self.all.len())
    }
}

impl Transforms {
    /// Builds transforms of the table by name.
    pub fn named(choices: &[Choice], layout: &Layout) -> Result<Self, Error> {
        let mut all = Transforms::default();
        for Choice { name, settings } in choices {
            all.add(find(name)?.build(settings)?, layout)?;
        }
        Ok(all)
    }

    /// Adds a transform behind the others. If its state has been received before, it continues from that.
    ///
    /// # Errors
    ///
    /// The received state is not one of this transform.
    pub fn add(&mut self, mut transform: Box<dyn GradientTransform>, layout: &Layout) -> Result<(), Error> {
        transform.init(layout);
        if let Some(state) = self.given.get(self.all.len()) {
            restore(&mut *transform, state)?;
        }
        self.all.push(transform);
        Ok(())
    }

    /// Clears all states.
    pub fn init(&mut self, layout: &Layout) {
        (self.before, self.given) = (None, States::new());
        self.all.iter_mut().for_each(|transform| transform.init(layout));
    }

    /// Returns true if there is no transform.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// States from the steps so far; for transforms that are to be added, the received ones.
    pub fn states(&self) -> States {
        let own = self.all.iter().map(|transform| transform.state());
        own.chain(self.given.iter().skip(self.all.len()).cloned()).collect()
    }

    /// Continues from states of other ranks, or of a checkpoint; a transform without one begins anew.
    ///
    /// # Errors
    ///
    /// A state is not one of its transform.
    pub fn take_over(&mut self, layout: &Layout, states: States) -> Result<(), Error> {
        (self.before, self.given) = (None, states);
        for (number, transform) in self.all.iter_mut().enumerate() {
            match self.given.get(number) {
                Some(state) => restore(&mut **transform, state)?,
                None => transform.init(layout),
            }
        }
        Ok(())
    }

    /// Saves the states before a step.
    pub fn begin_step(&mut self) {
        self.before = (!self.is_empty()).then(|| self.states());
    }

    /// Discards the saved states: all updates of the step are made.
    pub fn end_step(&mut self) {
        self.before = None;
    }

    /// Restores the states from before a step that the transforms have seen, at least partly, and that will
    /// be repeated.
    ///
    /// # Errors
    ///
    /// A transform refuses a state that it returned before.
    pub fn take_back(&mut self) -> Result<(), Error> {
        let Some(before) = self.before.take() else { return Ok(()) };
        self.all.iter_mut().zip(&before).try_for_each(|(transform, state)| restore(&mut **transform, state))
    }

    /// Partial sums of all of them ([`GradientTransform::partial_sums`]).
    pub fn partial_sums(&mut self) -> impl Iterator<Item = &mut [f64]> {
        self.all.iter_mut().filter_map(|transform| transform.partial_sums())
    }

    /// Shows slices of the gradient to all of them.
    pub fn see(&mut self, layout: &Layout, slices: &[Slice], gradient: &[f32]) {
        for slice in trained(layout, slices) {
            self.all.iter_mut().for_each(|transform| transform.see(slice, &gradient[slice.range()]));
        }
    }

    /// Combines their decisions: the product of their factors, and the first norm.
    pub fn decide(&mut self, scale: f64) -> Decision {
        self.all.iter_mut().fold(Decision { factor: 1.0, norm: None }, |before, transform| {
            let Decision { factor, norm } = transform.decide(scale * before.factor);
            Decision { factor: before.factor * factor, norm: before.norm.or(norm) }
        })
    }
}

fn restore(transform: &mut dyn GradientTransform, state: &[f64]) -> Result<(), Error> {
    transform.restore(state).map_err(|problem| {
        let name = transform.name();
        Error::Setting(format!(
            "the gradient transform `{name}` cannot go on from what is kept for it: {problem}; give the job the transforms that it \
             had, in the same order"
        ))
    })
}
