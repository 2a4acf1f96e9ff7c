//! Flat memory that other ranks may read while nothing changes it.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use kolo_optim::SpanId;

use crate::host_values::HostValues;
use crate::lendable::{LendableValues, Loan};
use crate::region::Region;

/// Values of a model in flat memory.
pub enum FlatValues {
    /// All values.
    Whole(Vec<f32>),
    /// All values, of which tensors of another library may show single ones where they lie.
    Lendable(LendableValues),
    /// All values, in memory that the workers of a host share. Changes to a tensor are made to its next
    /// version.
    Host(HostValues),
    /// Values of which this rank has some, and which may change.
    Own(Region),
    /// The same while other ranks may read them, which do not change.
    Published(Arc<Region>),
}

impl fmt::Debug for FlatValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_published = matches!(self, FlatValues::Published(_));
        write!(f, "FlatValues({}, published: {is_published})", self.len())
    }
}

impl FlatValues {
    /// Lends the values of a tensor, to be read where they lie; `None` if they are to be copied. Where the
    /// state is divided, values arrive bucket by bucket while earlier ones are read, so all are copied.
    pub fn lend(&mut self, id: SpanId) -> Option<Loan> {
        match self {
            FlatValues::Lendable(values) => values.lend(id),
            FlatValues::Host(values) => values.lend(id),
            _ => None,
        }
    }

    /// Returns a part of one tensor's values, to be changed: those of `range`, which is a range of flat
    /// memory.
    ///
    /// # Panics
    ///
    /// Panics if the tensor does not hold the whole range, or if the values are published.
    pub fn of_tensor_mut(&mut self, id: SpanId, range: Range<usize>) -> &mut [f32] {
        match self {
            FlatValues::Lendable(values) => values.of_tensor_mut(id, range),
            FlatValues::Host(values) => values.next_mut(range),
            other => &mut other[range],
        }
    }

    /// Stops changes, and returns the values for readers; `None` if this rank has all.
    pub(crate) fn publish(&mut self) -> Option<Arc<Region>> {
        match std::mem::replace(self, FlatValues::Whole(Vec::new())) {
            FlatValues::Own(values) => *self = FlatValues::Published(Arc::new(values)),
            other => *self = other,
        }
        match self {
            FlatValues::Published(values) => Some(values.clone()),
            _ => None,
        }
    }

    /// Allows changes, if there are no readers; returns true in this case.
    pub(crate) fn withdraw(&mut self) -> bool {
        match std::mem::replace(self, FlatValues::Whole(Vec::new())) {
            FlatValues::Published(values) => match Arc::try_unwrap(values) {
                Ok(values) => *self = FlatValues::Own(values),
                Err(values) => {
                    *self = FlatValues::Published(values);
                    return false;
                }
            },
            other => *self = other,
        }
        true
    }
}

impl Deref for FlatValues {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            FlatValues::Whole(values) => values,
            FlatValues::Lendable(values) => values,
            FlatValues::Host(values) => values,
            FlatValues::Own(values) => values,
            FlatValues::Published(values) => values,
        }
    }
}

impl DerefMut for FlatValues {
    /// # Panics
    ///
    /// If the values are published.
    fn deref_mut(&mut self) -> &mut [f32] {
        match self {
            FlatValues::Whole(values) => values,
            FlatValues::Lendable(values) => values,
            FlatValues::Host(values) => values,
            FlatValues::Own(values) => values,
            FlatValues::Published(_) => panic!("published values do not change"),
        }
    }
}
