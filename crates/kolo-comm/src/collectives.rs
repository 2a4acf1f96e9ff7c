//! Collectives over one kind of memory: the common interface of host memory ([`Group`](crate::Group),
//! with Kolo's own engine or MPI) and device memory.

use kolo_rendezvous::{Error, InvalidCall};
use kolo_schedule::{Chunks, Message, Op, Range, Rank};

use crate::collective::Collective;
use kolo_transport::Element;

/// Ranks that run collectives on buffers of their own kind of memory.
///
/// An implementation defines its buffers, and starts and awaits a collective; the operations follow from
/// that. All operations but all-to-all work in place. All have the errors of [`Collectives::run`].
pub trait Collectives {
    /// A buffer of elements in this memory.
    type Buffer<T: Element>;
    /// A collective that has been started.
    type Pending<T: Element>;

    /// This rank's number in the group.
    fn rank(&self) -> Rank;

    /// Number of ranks.
    fn world_size(&self) -> usize;

    /// Describes the backend and its transport, for logs and tables.
    fn describe(&self) -> String;

    /// Allocates a buffer of `len` zeros.
    ///
    /// # Errors
    ///
    /// Memory has run out, or the length overflows.
    fn alloc<T: Element>(&self, len: usize) -> Result<Self::Buffer<T>, Error>;

    /// Number of elements in a buffer.
    fn len<T: Element>(buffer: &Self::Buffer<T>) -> usize;

    /// Copies from the host to a buffer of the same length, after all collectives started before.
    ///
    /// # Errors
    ///
    /// The lengths differ, or the buffer is another group's; otherwise the errors of [`Collectives::run`].
    fn write<T: Element>(&self, data: &[T], buffer: &mut Self::Buffer<T>) -> Result<(), Error>;

    /// Copies a buffer to a host slice of the same length, after all collectives started before. Fails as
    /// [`Collectives::write`] does.
    fn read<T: Element>(&self, buffer: &Self::Buffer<T>, data: &mut [T]) -> Result<(), Error>;

    /// Starts a collective. Collectives run in the order in which they were started.
    fn start<T: Element>(&self, collective: Collective, buffer: Self::Buffer<T>) -> Self::Pending<T>;

    /// Waits for the end of a collective and returns the buffer.
    ///
    /// # Errors
    ///
    /// The first failure of the group, or the refusal of the call.
    fn wait<T: Element>(pending: Self::Pending<T>) -> Result<Self::Buffer<T>, Error>;

    /// Runs a collective on a buffer of this group and returns the buffer.
    ///
    /// # Errors
    ///
    /// The call is invalid ([`Error::is_refusal`]), which does not harm the group. Or a peer made another
    /// call, died, left or timed out, and the group has failed.
    fn run<T: Element>(
        &self,
        collective: &Collective,
        buffer: Self::Buffer<T>,
    ) -> Result<Self::Buffer<T>, Error> {
        Self::wait(self.start(collective.clone(), buffer))
    }

    /// Allocates a buffer with a copy of `data`.
    ///
    /// # Errors
    ///
    /// Those of [`Collectives::alloc`] and [`Collectives::write`].
    fn copied<T: Element>(&self, data: &[T]) -> Result<Self::Buffer<T>, Error> {
        let mut buffer = self.alloc(data.len())?;
        self.write(data, &mut buffer)?;
        Ok(buffer)
    }

    /// Copies a buffer to a new vector. Fails as [`Collectives::read`] does.
    fn to_vec<T: Element>(&self, buffer: &Self::Buffer<T>) -> Result<Vec<T>, Error> {
        let mut data = vec![T::default(); Self::len(buffer)];
        self.read(buffer, &mut data)?;
        Ok(data)
    }

    /// Every rank ends with the combination of all buffers. NCCL's maximum and minimum may ignore a NaN.
    /// Fails as [`Collectives::run`] does.
    fn all_reduce<T: Element>(&self, buffer: Self::Buffer<T>, op: Op) -> Result<Self::Buffer<T>, Error> {
        self.run(&Collective::AllReduce(op), buffer)
    }

    /// Rank r ends with the combination of all ranks' chunk r, in its own chunk r; the rest is unspecified.
    ///
    /// # Errors
    ///
    /// The buffer does not divide into equal chunks; otherwise the errors of [`Collectives::run`].
    fn reduce_scatter<T: Element>(&self, buffer: Self::Buffer<T>, op: Op) -> Result<Self::Buffer<T>, Error> {
        self.run(&Collective::ReduceScatter(op, Chunks::Equal), buffer)
    }

    /// Every rank ends with chunk r of rank r, for all r.
    ///
    /// # Errors
    ///
    /// The buffer does not divide into equal chunks; otherwise the errors of [`Collectives::run`].
    fn all_gather<T: Element>(&self, buffer: Self::Buffer<T>) -> Result<Self::Buffer<T>, Error> {
        self.run(&Collective::AllGather(Chunks::Equal), buffer)
    }

    /// Every rank ends with the root's buffer. Fails as [`Collectives::run`] does.
    fn broadcast<T: Element>(&self, buffer: Self::Buffer<T>, root: Rank) -> Result<Self::Buffer<T>, Error> {
        self.run(&Collective::Broadcast(root), buffer)
    }

    /// The root ends with the combination of all buffers; the other ranks' buffers are unspecified. Fails as
    /// [`Collectives::run`] does.
    fn reduce<T: Element>(
        &self,
        buffer: Self::Buffer<T>,
        op: Op,
        root: Rank,
    ) -> Result<Self::Buffer<T>, Error> {
        self.run(&Collective::Reduce(op, root), buffer)
    }

    /// Rank r receives chunk r of every rank. The first half of the buffer takes the received chunks, in
    /// rank order; the second half holds the chunks to send.
    ///
    /// # Errors
    ///
    /// The buffer is not two halves of equal chunks; otherwise the errors of [`Collectives::run`].
    fn all_to_all<T: Element>(&self, buffer: Self::Buffer<T>) -> Result<Self::Buffer<T>, Error> {
        let (elements, world) = (Self::len(&buffer), self.world_size());
        if !elements.is_multiple_of(2 * world) {
            return Err(InvalidCall::Halves { elements, world }.into());
        }
        let counts = vec![elements / 2 / world; world];
        self.run(&Collective::AllToAll { send: counts.clone().into(), receive: counts.into() }, buffer)
    }

    /// Sends the buffer to a peer, which calls [`Collectives::receive`] with the same number of elements.
    /// Returns when the peer has taken it. Fails as [`Collectives::run`] does.
    fn send<T: Element>(&self, buffer: Self::Buffer<T>, to: Rank) -> Result<Self::Buffer<T>, Error> {
        let send = [Message { peer: to, range: Range { start: 0, len: Self::len(&buffer) } }].into();
        self.run(&Collective::Exchange { send, receive: [].into() }, buffer)
    }

    /// Fills the buffer from a peer, which calls [`Collectives::send`] with the same number of elements.
    /// Fails as [`Collectives::run`] does.
    fn receive<T: Element>(&self, buffer: Self::Buffer<T>, from: Rank) -> Result<Self::Buffer<T>, Error> {
        let receive = [Message { peer: from, range: Range { start: 0, len: Self::len(&buffer) } }].into();
        self.run(&Collective::Exchange { send: [].into(), receive }, buffer)
    }

    /// Returns when every rank has called it and all collectives started before are over. Fails as
    /// [`Collectives::run`] does.
    fn barrier(&self) -> Result<(), Error> {
        self.run(&Collective::Barrier, self.alloc::<u8>(1)?).map(drop)
    }
}
