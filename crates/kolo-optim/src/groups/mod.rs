//! Groups of parameters, like PyTorch's param groups: tensors with their own learning rate, weight decay and
//! other settings, selected by name or by role.
//!
//! A [`ParamGroup`] names the tensors ([`Selector`]) and their differences. [`SpanGroups`] merges all groups
//! once, before the first step, for each tensor of a model. An optimizer prepares the values of each group
//! and finds them by index, so groups do not slow a step down.

mod error;
mod group_settings;
mod param_group;
mod selector;
mod span_groups;
mod turns;

pub use error::GroupError;
pub use group_settings::GroupSettings;
pub use param_group::ParamGroup;
pub use selector::{CLASSES, Selector, TensorClass};
pub use span_groups::SpanGroups;
pub use turns::Turns;

pub(crate) use group_settings::by_group;
