//! Collectives over one kind of memory: what host memory ([`Group`](crate::Group), by Kolo's own engine or by
//! MPI) and the memory of devices have in common.

use kolo_rendezvous::{Error, InvalidCall};
use kolo_schedule::{Chunks, Message, Op, Range, Rank};

use crate::collective::Collective;
use crate::element::Element;

/// Ranks that run collectives on buffers of a memory of theirs.
///
/// An implementation says what its buffers are and how a collective is started and awaited; the operations
/// follow from that. Buffers move in and out; all operations but all-to-all work in place. All fail as
/// [`Collectives::run`] does.
pub trait Collectives {
    /// Elements in this memory.
    type Buffer<T: Element>;
    /// A collective that has been started.
    type Pending<T: Element>;

    /// This rank, in this group.
    fn rank(&self) -> Rank;

    /// Number of ranks.
    fn world_size(&self) -> usize;

    /// What does the work, and over what: for logs and tables.
    fn describe(&self) -> String;

    /// A buffer of `len` zeros.
    ///
    /// # Errors
    ///
    /// There is no more memory, or the length overflows.
    fn alloc<T: Element>(&self, len: usize) -> Result<Self::Buffer<T>, Error>;

    /// Number of elements in a buffer.
    fn len<T: Element>(buffer: &Self::Buffer<T>) -> usize;

    /// Copies from the host to a buffer of one length, after what was started before.
    ///
    /// # Errors
    ///
    /// The lengths differ, or the buffer is another group's; otherwise as [`Collectives::run`].
    fn write<T: Element>(&self, data: &[T], buffer: &mut Self::Buffer<T>) -> Result<(), Error>;

    /// Copies a buffer to the host, to a slice of one length, after what was started before.
    ///
    /// # Errors
    ///
    /// As [`Collectives::write`].
    fn read<T: Element>(&self, buffer: &Self::Buffer<T>, data: &mut [T]) -> Result<(), Error>;

    /// Starts a collective. Collectives run in the order in which they were started.
    fn start<T: Element>(&self, collective: Collective, buffer: Self::Buffer<T>) -> Self::Pending<T>;

    /// Waits for the end of a collective and gives the buffer back.
    ///
    /// # Errors
    ///
    /// What ended the collective: the first failure of the group; or it was refused.
    fn wait<T: Element>(pending: Self::Pending<T>) -> Result<Self::Buffer<T>, Error>;

    /// Runs a collective on a buffer of this group and gives it back.
    ///
    /// # Errors
    ///
    /// The call is wrong by itself ([`Error::is_refusal`]; the group is not harmed), a peer called something
    /// else, died, left, or did not take part in time (the group has failed).
    fn run<T: Element>(
        &self,
        collective: &Collective,
        buffer: Self::Buffer<T>,
    ) -> Result<Self::Buffer<T>, Error> {
        Self::wait(self.start(collective.clone(), buffer))
    }

    /// A buffer that holds a copy of `data`.
    ///
    /// # Errors
    ///
    /// As [`Collectives::alloc`] and [`Collectives::write`].
    fn copied<T: Element>(&self, data: &[T]) -> Result<Self::Buffer<T>, Error> {
        let mut buffer = self.alloc(data.len())?;
        self.write(data, &mut buffer)?;
        Ok(buffer)
    }

    /// What a buffer holds.
    ///
    /// # Errors
    ///
    /// As [`Collectives::read`].
    fn to_vec<T: Element>(&self, buffer: &Self::Buffer<T>) -> Result<Vec<T>, Error> {
        let mut data = vec![T::default(); Self::len(buffer)];
        self.read(buffer, &mut data)?;
        Ok(data)
    }

    /// Every rank ends with the combination of all. NCCL's largest and smallest may pass over a NaN.
    ///
    /// # Errors
    ///
    /// As [`Collectives::run`].
    fn all_reduce<T: Element>(&self, buffer: Self::Buffer<T>, op: Op) -> Result<Self::Buffer<T>, Error> {
        self.run(&Collective::AllReduce(op), buffer)
    }

    /// Rank r ends with the combination of everybody's chunk r, in its own chunk r; the rest is unspecified.
    ///
    /// # Errors
    ///
    /// The buffer does not divide into equal chunks; otherwise as [`Collectives::run`].
    fn reduce_scatter<T: Element>(&self, buffer: Self::Buffer<T>, op: Op) -> Result<Self::Buffer<T>, Error> {
        self.run(&Collective::ReduceScatter(op, Chunks::Equal), buffer)
    }

    /// Every rank ends with chunk r of rank r, for all r.
    ///
    /// # Errors
    ///
    /// The buffer does not divide into equal chunks; otherwise as [`Collectives::run`].
    fn all_gather<T: Element>(&self, buffer: Self::Buffer<T>) -> Result<Self::Buffer<T>, Error> {
        self.run(&Collective::AllGather(Chunks::Equal), buffer)
    }

    /// Every rank ends with the root's buffer.
    ///
    /// # Errors
    ///
    /// As [`Collectives::run`].
    fn broadcast<T: Element>(&self, buffer: Self::Buffer<T>, root: Rank) -> Result<Self::Buffer<T>, Error> {
        self.run(&Collective::Broadcast(root), buffer)
    }

    /// The root ends with the combination of all; the others' buffers are unspecified.
    ///
    /// # Errors
    ///
    /// As [`Collectives::run`].
    fn reduce<T: Element>(
        &self,
        buffer: Self::Buffer<T>,
        op: Op,
        root: Rank,
    ) -> Result<Self::Buffer<T>, Error> {
        self.run(&Collective::Reduce(op, root), buffer)
    }

    /// Rank r gets everybody's chunk r. The buffer's first half takes what is received, in rank order; its
    /// second half is what is sent.
    ///
    /// # Errors
    ///
    /// The buffer is not two halves of equal chunks; otherwise as [`Collectives::run`].
    fn all_to_all<T: Element>(&self, buffer: Self::Buffer<T>) -> Result<Self::Buffer<T>, Error> {
        let (elements, world) = (Self::len(&buffer), self.world_size());
        if !elements.is_multiple_of(2 * world) {
            return Err(InvalidCall::Halves { elements, world }.into());
        }
        let counts = vec![elements / 2 / world; world];
        self.run(&Collective::AllToAll { send: counts.clone().into(), receive: counts.into() }, buffer)
    }

    /// Sends the buffer to a peer, which calls [`Collectives::receive`] with as many elements. Returns when
    /// the peer has taken it.
    ///
    /// # Errors
    ///
    /// As [`Collectives::run`].
    fn send<T: Element>(&self, buffer: Self::Buffer<T>, to: Rank) -> Result<Self::Buffer<T>, Error> {
        let send = [Message { peer: to, range: Range { start: 0, len: Self::len(&buffer) } }].into();
        self.run(&Collective::Exchange { send, receive: [].into() }, buffer)
    }

    /// Fills the buffer from a peer, which calls [`Collectives::send`] with as many elements.
    ///
    /// # Errors
    ///
    /// As [`Collectives::run`].
    fn receive<T: Element>(&self, buffer: Self::Buffer<T>, from: Rank) -> Result<Self::Buffer<T>, Error> {
        let receive = [Message { peer: from, range: Range { start: 0, len: Self::len(&buffer) } }].into();
        self.run(&Collective::Exchange { send: [].into(), receive }, buffer)
    }

    /// Returns when every rank has called it, and what was started before is over.
    ///
    /// # Errors
    ///
    /// As [`Collectives::run`].
    fn barrier(&self) -> Result<(), Error> {
        self.run(&Collective::Barrier, self.alloc::<u8>(1)?).map(drop)
    }
}
