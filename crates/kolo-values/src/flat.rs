//! Flat memory that other ranks may read while nothing changes it.

use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use kolo_optim::SpanId;
use kolo_reduction::Error;

use crate::host_values::HostValues;
use crate::lendable::{LendableValues, Loan};
use crate::region::Region;

/// Values of a model in flat memory.
pub enum FlatValues {
    /// All values, which others may have as well. A change copies them then.
    Shared(Arc<Vec<f32>>),
    /// All values, of which tensors of another library may show single ones where they lie.
    Lendable(LendableValues),
    /// All values, in memory that the workers of a host share. Changes to a tensor are made to its next
    /// version.
    Host(HostValues),
    /// Values of which this rank has some. They do not change while other ranks may read them.
    Parts(Arc<Region>),
}

kolo_comm::opaque_debug!(FlatValues);

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

    /// Makes parts of so many values, at first zeros that take no memory before they are written.
    ///
    /// # Errors
    ///
    /// There are no addresses for the values.
    pub fn parts(len: usize) -> Result<Self, Error> {
        Ok(FlatValues::Parts(Region::new(len)?.into()))
    }

    /// Returns true if this rank has some of the values only.
    pub fn are_parts(&self) -> bool {
        matches!(self, FlatValues::Parts(_))
    }

    /// Keeps these runs of all values.
    ///
    /// # Errors
    ///
    /// There are no addresses for the values.
    pub fn keep(&mut self, runs: &[Range<usize>]) -> Result<(), Error> {
        let mut own = Region::new(self.len())?;
        runs.iter().for_each(|run| own[run.clone()].copy_from_slice(&self[run.clone()]));
        *self = FlatValues::Parts(own.into());
        Ok(())
    }

    /// Replaces the values by as many zeros that take no memory before they are written.
    ///
    /// # Errors
    ///
    /// There are no addresses for the values.
    pub fn clear_parts(&mut self) -> Result<(), Error> {
        *self = FlatValues::parts(self.len())?;
        Ok(())
    }

    /// Returns the values for readers, which stop changes; `None` if this rank has all.
    pub(crate) fn publish(&self) -> Option<Arc<Region>> {
        match self {
            FlatValues::Parts(values) => Some(values.clone()),
            _ => None,
        }
    }

    /// Returns true if there are no readers, so that changes are allowed.
    pub(crate) fn is_withdrawn(&mut self) -> bool {
        match self {
            FlatValues::Parts(values) => Arc::get_mut(values).is_some(),
            _ => true,
        }
    }
}

impl Deref for FlatValues {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            FlatValues::Shared(values) => values,
            FlatValues::Lendable(values) => values,
            FlatValues::Host(values) => values,
            FlatValues::Parts(values) => values,
        }
    }
}

impl DerefMut for FlatValues {
    /// # Panics
    ///
    /// If the values are published.
    fn deref_mut(&mut self) -> &mut [f32] {
        match self {
            FlatValues::Shared(values) => &mut Arc::make_mut(values)[..],
            FlatValues::Lendable(values) => values,
            FlatValues::Host(values) => values,
            FlatValues::Parts(values) => Arc::get_mut(values).expect("published values do not change"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_values_change_for_one_owner_only() {
        let given = Arc::new(vec![1.0, 2.0, 3.0]);
        let (mut changed, mut kept) = (FlatValues::Shared(given.clone()), FlatValues::Shared(given.clone()));
        changed.of_tensor_mut(SpanId(0), 1..3).fill(7.0);
        let (start, end) = (0..1, 2..3);
        kept.keep(&[start, end]).unwrap();
        assert_eq!(
            (&changed[..], &kept[..], &given[..]),
            (&[1.0, 7.0, 7.0][..], &[1.0, 0.0, 3.0][..], &[1.0, 2.0, 3.0][..])
        );
        assert!(kept.are_parts() && !changed.are_parts());
        kept.clear_parts().unwrap();
        assert_eq!(&kept[..], [0.0; 3]);
    }
}
