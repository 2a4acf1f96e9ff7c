//! Flat memory that other ranks may read while nothing changes it.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Values of a model in flat memory. Their address is the same whether they are published or not.
pub enum FlatValues {
    /// Values that may change.
    Own(Vec<f32>),
    /// Values that other ranks may read, which do not change.
    Published(Arc<Vec<f32>>),
}

impl fmt::Debug for FlatValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_published = matches!(self, FlatValues::Published(_));
        write!(f, "FlatValues({}, published: {is_published})", self.len())
    }
}

impl FlatValues {
    /// Stops changes, and returns the values for readers.
    pub(crate) fn publish(&mut self) -> Arc<Vec<f32>> {
        if let FlatValues::Own(values) = self {
            *self = FlatValues::Published(Arc::new(std::mem::take(values)));
        }
        match self {
            FlatValues::Published(values) => values.clone(),
            FlatValues::Own(_) => Arc::default(),
        }
    }

    /// Allows changes, if there are no readers; returns true in this case.
    pub(crate) fn withdraw(&mut self) -> bool {
        let FlatValues::Published(values) = self else { return true };
        match Arc::get_mut(values) {
            Some(values) => {
                *self = FlatValues::Own(std::mem::take(values));
                true
            }
            None => false,
        }
    }
}

impl Deref for FlatValues {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
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
            FlatValues::Own(values) => values,
            FlatValues::Published(_) => panic!("published values do not change"),
        }
    }
}
