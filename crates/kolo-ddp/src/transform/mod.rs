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
use kolo_optim::{Kind, Layout, Settings};

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
    /// again where a worker has to begin anew: what a transform knows from earlier steps is in no checkpoint.
    fn init(&mut self, layout: &Layout);

    /// Looks at the gradient of a slice, which is summed over the global batch. In each step every element of
    /// every trained tensor is seen once, in any order; a slice begins at a multiple of 16,384 elements of
    /// its tensor and, unless it ends there, is a multiple of that long. Whatever is summed must be summed so
    /// that the order does not matter.
    fn see(&mut self, slice: &Slice, gradient: &[f32]);

    /// Decides, when all of the gradient has been seen. `scale` makes it the mean over the batch, after the
    /// transforms before this one.
    fn decide(&mut self, scale: f64) -> Decision;
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

/// The transforms of a replica, one after another.
#[derive(Default)]
pub(crate) struct Transforms(Vec<Box<dyn GradientTransform>>);

impl Transforms {
    /// Those of the table by name.
    pub(crate) fn named(choices: &[Choice], layout: &Layout) -> Result<Self, Error> {
        let mut all = Transforms::default();
        for Choice { name, settings } in choices {
            all.add(find(name)?.build(settings)?, layout);
        }
        Ok(all)
    }

    /// Adds one behind the others.
    pub(crate) fn add(&mut self, mut transform: Box<dyn GradientTransform>, layout: &Layout) {
        transform.init(layout);
        self.0.push(transform);
    }

    /// They forget what they know.
    pub(crate) fn init(&mut self, layout: &Layout) {
        self.0.iter_mut().for_each(|transform| transform.init(layout));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Shows a bucket to all of them.
    pub(crate) fn see(&mut self, layout: &Layout, bucket: &Bucket, gradient: &[f32]) {
        let trained = |slice: &&Slice| layout.span(slice.span).spec.kind != Kind::Statistic;
        for slice in bucket.slices.iter().filter(trained) {
            self.0.iter_mut().for_each(|transform| transform.see(slice, &gradient[slice.range()]));
        }
    }

    /// What they decide together: the product of their factors, and the first norm.
    pub(crate) fn decide(&mut self, scale: f64) -> Decision {
        self.0.iter_mut().fold(Decision { factor: 1.0, norm: None }, |before, transform| {
            let Decision { factor, norm } = transform.decide(scale * before.factor);
            Decision { factor: before.factor * factor, norm: before.norm.or(norm) }
        })
    }
}
