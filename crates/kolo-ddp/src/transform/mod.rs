//! Gradient transforms: what is decided over a step's whole gradient before the optimizer sees it.
//!
//! A new one is a file here and a line in [`TRANSFORMS`]; a user's own is a type that implements
//! [`GradientTransform`].

mod block_squares;
mod clip;

pub(crate) use self::block_squares::BlockSquares;
use crate::buckets::{Bucket, Slice};
use crate::error::Error;
use kolo_optim::table::{self, Choice, ChoiceError, Entry};
use kolo_optim::{Layout, Settings};

/// A look at the summed gradient, and what follows from it for the step.
///
/// All ranks see the same bits, so they decide the same without asking one another; a transform must take
/// nothing else into account. It does not see running statistics. A step with any transform waits for all of
/// its gradient before the first parameter changes.
pub trait GradientTransform: Send + 'static {
    /// What it is called where the ranks' settings are compared: that of its type, unless it says otherwise.
    fn name(&self) -> &str {
        std::any::type_name::<Self>()
    }

    /// Its settings, which must be the same on all ranks; what it does not state is not compared.
    fn settings(&self) -> Settings {
        Settings::default()
    }

    /// Makes room for what it has to know of the tensors of `layout`. Called before everything else, and
    /// again where a worker has to begin anew.
    fn init(&mut self, layout: &Layout);

    /// Looks at the gradient of a slice, which is summed over the global batch. In each step every element of
    /// every trained tensor is seen once, in any order; a slice begins at a multiple of 16,384 elements of
    /// its tensor and, unless it ends there, is a multiple of that long. Whatever is summed must be summed so
    /// that the order does not matter.
    fn see(&mut self, slice: &Slice, gradient: &[f32]);

    /// Decides, when all of the gradient has been seen. `scale` makes it the mean over the batch, after the
    /// transforms before this one.
    fn decide(&mut self, scale: f64) -> Decision;

    /// What it knows from the steps so far and needs for the next ones, such as an average of norms; nothing,
    /// unless it says otherwise. Like its decisions it must be the same on all ranks. Kolo saves it in
    /// checkpoints, gives it to workers that join, and brings it back where a step is done again.
    fn state(&self) -> Vec<f64> {
        Vec::new()
    }

    /// Goes on from what [`GradientTransform::state`] has given, here or on another rank. Also called where a
    /// step has failed that it has seen a part of: it must forget what it has seen since its last decision.
    ///
    /// # Errors
    ///
    /// What is wrong with the state, as where another version of the program has saved it.
    fn restore(&mut self, state: &[f64]) -> Result<(), String> {
        match state {
            [] => Ok(()),
            _ => Err("it keeps nothing from step to step".into()),
        }
    }
}

/// What a [`GradientTransform`] decides of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// What the gradient is multiplied by.
    pub factor: f64,
    /// Global norm of the gradient before that, where it has been computed.
    pub norm: Option<f64>,
}

impl<T: GradientTransform + ?Sized> GradientTransform for Box<T> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn settings(&self) -> Settings {
        (**self).settings()
    }

    fn init(&mut self, layout: &Layout) {
        (**self).init(layout);
    }

    fn see(&mut self, slice: &Slice, gradient: &[f32]) {
        (**self).see(slice, gradient);
    }

    fn decide(&mut self, scale: f64) -> Decision {
        (**self).decide(scale)
    }

    fn state(&self) -> Vec<f64> {
        (**self).state()
    }

    fn restore(&mut self, state: &[f64]) -> Result<(), String> {
        (**self).restore(state)
    }
}

/// Every gradient transform there is.
pub static TRANSFORMS: &[Entry<dyn GradientTransform>] = &[clip::ENTRY];

/// The entry of that name in [`TRANSFORMS`].
///
/// # Errors
///
/// There is none of that name; lists the known ones.
pub fn find(name: &str) -> Result<&'static Entry<dyn GradientTransform>, ChoiceError> {
    table::find("gradient transform", TRANSFORMS, name)
}

/// What each of a replica's transforms knows from the steps so far.
pub(crate) type States = Vec<Vec<f64>>;

/// The transforms of a replica, one after another.
#[derive(Default)]
pub(crate) struct Transforms {
    all: Vec<Box<dyn GradientTransform>>,
    /// What they knew before the step that they have seen, or a part of it, as long as it is not complete.
    before: Option<States>,
    /// What others knew, or a checkpoint holds: a program adds its own transforms when it has joined.
    given: States,
}

impl Transforms {
    /// Those of the table by name.
    pub(crate) fn named(choices: &[Choice], layout: &Layout) -> Result<Self, Error> {
        let mut all = Transforms::default();
        for Choice { name, settings } in choices {
            all.add(find(name)?.build(settings)?, layout)?;
        }
        Ok(all)
    }

    /// Adds one behind the others, which goes on from what it has been given, if that has come before.
    ///
    /// # Errors
    ///
    /// That is no state of it.
    pub(crate) fn add(
        &mut self,
        mut transform: Box<dyn GradientTransform>,
        layout: &Layout,
    ) -> Result<(), Error> {
        transform.init(layout);
        if let Some(state) = self.given.get(self.all.len()) {
            restore(&mut *transform, state)?;
        }
        self.all.push(transform);
        Ok(())
    }

    /// They forget what they know.
    pub(crate) fn init(&mut self, layout: &Layout) {
        (self.before, self.given) = (None, States::new());
        self.all.iter_mut().for_each(|transform| transform.init(layout));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// What they know from the steps so far; of those that are to be added, what has been given.
    pub(crate) fn states(&self) -> States {
        let own = self.all.iter().map(|transform| transform.state());
        own.chain(self.given.iter().skip(self.all.len()).cloned()).collect()
    }

    /// They go on from what others know, or a checkpoint holds; one of which nothing is known begins anew.
    ///
    /// # Errors
    ///
    /// That is no state of one of them.
    pub(crate) fn take_over(&mut self, layout: &Layout, states: States) -> Result<(), Error> {
        (self.before, self.given) = (None, states);
        for (number, transform) in self.all.iter_mut().enumerate() {
            match self.given.get(number) {
                Some(state) => restore(&mut **transform, state)?,
                None => transform.init(layout),
            }
        }
        Ok(())
    }

    /// They are about to see a step.
    pub(crate) fn begin_step(&mut self) {
        self.before = (!self.is_empty()).then(|| self.states());
    }

    /// All updates of the step are made.
    pub(crate) fn end_step(&mut self) {
        self.before = None;
    }

    /// A step that they have seen, or a part of it, is not complete and will be done again.
    ///
    /// # Errors
    ///
    /// One of them does not take back what it has said.
    pub(crate) fn take_back(&mut self) -> Result<(), Error> {
        let Some(before) = self.before.take() else { return Ok(()) };
        self.all.iter_mut().zip(&before).try_for_each(|(transform, state)| restore(&mut **transform, state))
    }

    /// Shows a bucket to all of them.
    pub(crate) fn see(&mut self, layout: &Layout, bucket: &Bucket, gradient: &[f32]) {
        let trained = |slice: &&Slice| layout.span(slice.span).spec.kind.is_trained();
        for slice in bucket.slices.iter().filter(trained) {
            self.all.iter_mut().for_each(|transform| transform.see(slice, &gradient[slice.range()]));
        }
    }

    /// What they decide together: the product of their factors, and the first norm.
    pub(crate) fn decide(&mut self, scale: f64) -> Decision {
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
