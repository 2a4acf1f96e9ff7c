//! Groups of parameters: the learning rate, weight decay and other settings of some tensors, chosen by their
//! names or by what they are for, as PyTorch's param groups.
//!
//! A [`ParamGroup`] says which tensors ([`Selector`]) and what is different there. [`SpanGroups`] puts all
//! groups together for each tensor of a model, once, before the first step. An optimizer computes for each
//! group what its pass needs and finds it by an index, so a step costs the same with and without.

mod error;
mod group_settings;
mod param_group;
mod selector;
mod span_groups;

pub use error::GroupError;
pub use group_settings::GroupSettings;
pub use param_group::ParamGroup;
pub use selector::{CLASSES, Selector, TensorClass};
pub use span_groups::SpanGroups;

pub(crate) use group_settings::by_group;
