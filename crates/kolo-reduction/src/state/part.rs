//! A part of the state that is kept from step to step.

use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Component that keeps an array of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StateKind {
    /// The model itself.
    Weights,
    /// An optimizer.
    Optimizer,
    /// The reduction of gradients.
    Reduction,
}

/// Name of an array with one value for each element of flat memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StateName {
    /// Component that keeps it.
    pub kind: StateKind,
    /// Name among the component's arrays; empty for the weights.
    pub name: String,
    /// Shard that the array belongs to, or island where there are islands. `None` if it is the job's, and the
    /// same on all ranks that hold it.
    pub shard: Option<usize>,
}

impl StateName {
    /// Creates the name of an array of the job.
    pub fn of_job(kind: StateKind, name: impl Into<String>) -> Self {
        StateName { kind, name: name.into(), shard: None }
    }

    /// Creates the name of an array of one shard.
    pub fn of_shard(kind: StateKind, name: impl Into<String>, shard: usize) -> Self {
        StateName { kind, name: name.into(), shard: Some(shard) }
    }
}

/// Values of an array in one run of flat memory. A rank that holds all of an array may list it in one part or
/// in several; one that owns a range of it lists that.
#[derive(Debug)]
pub struct StatePart<'a> {
    /// Name of the array.
    pub name: StateName,
    /// Elements of flat memory.
    pub place: Range<usize>,
    /// Values of these elements.
    pub values: &'a mut [f32],
}

impl<'a> StatePart<'a> {
    /// Creates the only part of an array, with all of its values.
    pub fn whole(name: StateName, values: &'a mut [f32]) -> Self {
        StatePart { name, place: 0..values.len(), values }
    }
}

/// Function that is called with each part of some state. The parts of one array follow one another.
pub type Visit<'a> = dyn FnMut(StatePart<'_>) + 'a;
