//! What an optimizer is: a rule by which gradients change parameters, in one fused pass.

use std::any::type_name;
use std::ops::Range;

use crate::groups::{GroupError, GroupSettings};
use crate::layout::Layout;
use crate::settings::Settings;

/// How much of a tensor a rule has to see at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Nothing but the element itself: any run of a tensor's elements can be stepped alone, as soon as its
    /// bucket is back.
    Element,
    /// All of the tensor, such as its norm: a tensor that is cut across buckets is stepped when the last of
    /// them is back.
    Tensor,
}

/// Elements of one tensor that are to be stepped: with [`Scope::Tensor`] all of them, else any number.
#[derive(Debug)]
pub struct Update<'a> {
    /// Which elements of flat memory they are; the optimizer's state of them is there.
    pub range: Range<usize>,
    /// Their values, which the optimizer changes.
    pub parameters: &'a mut [f32],
    /// Their gradient, summed over the global batch; it still has to be multiplied by `scale`.
    pub gradient: &'a [f32],
    /// Makes the gradient the mean over the batch, times what its transforms have decided.
    pub scale: f32,
    /// Whether weight decay applies to this tensor.
    pub decay: bool,
    /// The tensor's group, an index of what [`Optimizer::set_groups`] has been given; 0 where there are none.
    pub group: usize,
}

/// A rule by which gradients change parameters.
///
/// Its results may depend on the values that it is given and on its state only. With [`Scope::Element`] they
/// must not depend on how a tensor was cut. Then the parameters are the same bits for any number of workers
/// and any buckets.
pub trait Optimizer: Send + 'static {
    /// What it is called where the ranks' settings are compared: that of its type, unless it says otherwise.
    fn name(&self) -> &str {
        std::any::type_name::<Self>()
    }

    /// Its settings, which must be the same on all ranks; what it does not state is not compared.
    fn settings(&self) -> Settings {
        Settings::default()
    }

    /// Another one with the same settings and without state, for a job with islands, each of which has one.
    /// Those of the table need not implement it: they are made by name.
    fn another(&self) -> Option<Box<dyn Optimizer>> {
        None
    }

    /// How much of a tensor it has to see at once.
    fn scope(&self) -> Scope {
        Scope::Element
    }

    /// Takes what is different for groups of tensors. The first holds all tensors that no group selects;
    /// nothing is different there. Called before [`Optimizer::init`], if there are groups at all; a second
    /// call replaces the first. Updates of a frozen group are never asked for.
    ///
    /// Unless it is implemented all tensors are stepped alike, or frozen.
    ///
    /// # Errors
    ///
    /// A group has a setting that the optimizer does not have, or with a value that it may not have; or the
    /// optimizer cannot step tensors differently.
    fn set_groups(&mut self, groups: &[GroupSettings]) -> Result<(), GroupError> {
        match groups.iter().all(|group| group.is_plain() || group.is_frozen()) {
            true => Ok(()),
            false => Err(GroupError::Unsupported { optimizer: type_name::<Self>() }),
        }
    }

    /// Makes its state for the tensors of `layout`, as it is before the first step. Called before everything
    /// else, and again where a worker has to begin anew.
    fn init(&mut self, layout: &Layout);

    /// Before the updates of step `step`, counted from 1.
    fn begin(&mut self, step: u64, learning_rate: f64);

    /// Steps some elements. In each step every element of every trained tensor is stepped once, in any order.
    fn update(&mut self, update: Update<'_>);

    /// Its state: name and one value for each element of flat memory. Together with the number of the step it
    /// is all that a checkpoint needs, and all that a worker gets which joins later.
    fn state(&mut self) -> Vec<(&'static str, &mut [f32])>;
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
}
