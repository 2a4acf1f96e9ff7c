//! Collectives of a group on slices, behind the same trait as those on its buffers.

use kolo_comm::{Collective, Collectives, Element, Error, Group, Rank};

/// A group whose collectives run on vectors, memory that peers cannot read in place.
pub(super) struct Slices<'a>(pub(super) &'a Group);

impl Collectives for Slices<'_> {
    type Buffer<T: Element> = Vec<T>;
    type Pending<T: Element> = Result<Vec<T>, Error>;

    fn rank(&self) -> Rank {
        self.0.rank()
    }

    fn world_size(&self) -> usize {
        self.0.world_size()
    }

    fn describe(&self) -> String {
        self.0.transport().into()
    }

    fn alloc<T: Element>(&self, len: usize) -> Result<Vec<T>, Error> {
        Ok(vec![T::default(); len])
    }

    fn len<T: Element>(buffer: &Vec<T>) -> usize {
        buffer.len()
    }

    fn write<T: Element>(&self, data: &[T], buffer: &mut Vec<T>) -> Result<(), Error> {
        buffer.copy_from_slice(data);
        Ok(())
    }

    fn read<T: Element>(&self, buffer: &Vec<T>, data: &mut [T]) -> Result<(), Error> {
        data.copy_from_slice(buffer);
        Ok(())
    }

    fn start<T: Element>(&self, collective: Collective, mut buffer: Vec<T>) -> Result<Vec<T>, Error> {
        self.0.run_on_slice(&collective, &mut buffer).map(|()| buffer)
    }

    fn wait<T: Element>(pending: Result<Vec<T>, Error>) -> Result<Vec<T>, Error> {
        pending
    }
}
