//! A group's operations on slices, and its implementation of [`Collectives`] over host memory.
//!
//! Peers cannot read a slice in place, so these operations copy its data for them. To avoid the copy,
//! allocate a [`Buffer`] and call [`Group::run`] or [`Group::start`], or pass slices of
//! [`SharedMemory`](kolo_transport::SharedMemory).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::collective::Collective;
use crate::collectives::Collectives;
use crate::group::Group;
use crate::pending::Pending;
use kolo_rendezvous::{Error, InvalidCall};
use kolo_schedule::{Chunks, Message, Op, Range, Rank};
use kolo_transport::{Buffer, Element, WaitMode};

/// Operations on slices, with the errors of [`Group::run`]; a wrong length is an [`InvalidCall`].
impl Group {
    /// Combines `data` element by element over all ranks; every rank gets the same bits. Fails as
    /// [`Group::run`] does.
    pub fn all_reduce<T: Element>(&self, data: &mut [T], op: Op) -> Result<(), Error> {
        self.run_on_slice(&Collective::AllReduce(op), data)
    }

    /// Combines `input` over all ranks into `output`, which has the same length.
    ///
    /// # Errors
    ///
    /// The lengths differ; otherwise the errors of [`Group::run`].
    pub fn all_reduce_into<T: Element>(&self, input: &[T], output: &mut [T], op: Op) -> Result<(), Error> {
        self.fits("all_reduce", input.len(), 1, output.len())?;
        output.copy_from_slice(input);
        self.run_on_slice(&Collective::AllReduce(op), output)
    }

    /// Combines `data` over all ranks; only the root's `data` changes. Fails as [`Group::run`] does.
    pub fn reduce<T: Element>(&self, data: &mut [T], op: Op, root: Rank) -> Result<(), Error> {
        let result = Collectives::reduce(self, self.copied(data)?, op, root)?;
        if self.rank() == root {
            data.copy_from_slice(&result);
        }
        Ok(())
    }

    /// Combines `input` over all ranks; rank r gets chunk r. `input` is world size × `output` long.
    ///
    /// # Errors
    ///
    /// The lengths do not fit; otherwise the errors of [`Group::run`].
    pub fn reduce_scatter<T: Element>(&self, input: &[T], output: &mut [T], op: Op) -> Result<(), Error> {
        if self.shared.queued.load(Ordering::Acquire) == 0 {
            return self.reduce_scatter_directly(input, output, op, WaitMode::Blocking);
        }
        self.fits("reduce_scatter", input.len(), self.world_size(), output.len())?;
        let result = Collectives::reduce_scatter(self, self.copied(input)?, op)?;
        output.copy_from_slice(&result[self.rank().0 * output.len()..][..output.len()]);
        Ok(())
    }

    /// Gathers the inputs of all ranks on every rank, in rank order. `output` is world size × `input` long.
    ///
    /// # Errors
    ///
    /// The lengths do not fit; otherwise the errors of [`Group::run`].
    pub fn all_gather<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<(), Error> {
        self.fits("all_gather", output.len(), self.world_size(), input.len())?;
        output[self.rank().0 * input.len()..][..input.len()].copy_from_slice(input);
        self.run_on_slice(&Collective::AllGather(Chunks::Equal), output)
    }

    /// Gathers the inputs of all ranks, which may differ in length, on every rank: one vector per rank.
    ///
    /// This also gathers the lengths. To avoid that, run [`Collective::AllGather`] with [`Chunks::Varied`].
    /// Fails as [`Group::run`] does.
    pub fn all_gather_varied<T: Element>(&self, input: &[T]) -> Result<Vec<Vec<T>>, Error> {
        let mut lens = vec![0i64; self.world_size()];
        self.all_gather(&[input.len() as i64], &mut lens)?;
        let lens: Arc<[usize]> = lens.iter().map(|len| *len as usize).collect();
        let chunks = Chunks::Varied(lens.clone());
        let ranges = chunks.ranges(0, self.world_size());
        let mut buffer = self.alloc(lens.iter().sum())?;
        let own = ranges[self.rank().0];
        buffer[own.start..][..own.len].copy_from_slice(input);
        let result = self.run(&Collective::AllGather(chunks), buffer)?;
        Ok(ranges.iter().map(|range| result[range.start..][..range.len].to_vec()).collect())
    }

    /// Copies the root's `data` to every rank. Fails as [`Group::run`] does.
    pub fn broadcast<T: Element>(&self, data: &mut [T], root: Rank) -> Result<(), Error> {
        self.run_on_slice(&Collective::Broadcast(root), data)
    }

    /// Gathers the inputs of all ranks on the root, in rank order. The root's `output` is world size ×
    /// `input` long; the other ranks' `output` is not used.
    ///
    /// # Errors
    ///
    /// The lengths do not fit; otherwise the errors of [`Group::run`].
    pub fn gather<T: Element>(&self, input: &[T], output: &mut [T], root: Rank) -> Result<(), Error> {
        if self.rank() != root {
            return self.run(&Collective::Gather(root), self.copied(input)?).map(drop);
        }
        self.fits("gather", output.len(), self.world_size(), input.len())?;
        output[self.rank().0 * input.len()..][..input.len()].copy_from_slice(input);
        self.run_on_slice(&Collective::Gather(root), output)
    }

    /// Copies chunk r of the root's `input` to rank r. The root's `input` is world size × `output` long;
    /// the other ranks' `input` is not used.
    ///
    /// # Errors
    ///
    /// The lengths do not fit; otherwise the errors of [`Group::run`].
    pub fn scatter<T: Element>(&self, input: &[T], output: &mut [T], root: Rank) -> Result<(), Error> {
        if self.rank() != root {
            return self.run_on_slice(&Collective::Scatter(root), output);
        }
        self.fits("scatter", input.len(), self.world_size(), output.len())?;
        let result = self.run(&Collective::Scatter(root), self.copied(input)?)?;
        output.copy_from_slice(&result[self.rank().0 * output.len()..][..output.len()]);
        Ok(())
    }

    /// Copies chunk r of every rank's `input` to rank r, in rank order. The length of both is a multiple of
    /// the world size.
    ///
    /// # Errors
    ///
    /// The lengths do not fit; otherwise the errors of [`Group::run`].
    pub fn all_to_all<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<(), Error> {
        let world = self.world_size();
        self.fits("all_to_all", input.len(), 1, output.len())?;
        self.fits("all_to_all", input.len(), world, input.len() / world)?;
        let counts: Arc<[usize]> = vec![input.len() / world; world].into();
        output.copy_from_slice(&self.all_to_all_known(input, counts.clone(), counts)?);
        Ok(())
    }

    /// Sends slice r of `inputs` to rank r. `inputs` has one slice for each rank, of any length. Returns
    /// the slices received from each rank.
    ///
    /// # Errors
    ///
    /// `inputs` does not have one slice for each rank; otherwise the errors of [`Group::run`].
    pub fn all_to_all_varied<T: Element>(&self, inputs: &[&[T]]) -> Result<Vec<Vec<T>>, Error> {
        self.fits("all_to_all", inputs.len(), self.world_size(), 1)?;
        let lens: Vec<i64> = inputs.iter().map(|input| input.len() as i64).collect();
        let mut receive = vec![0i64; inputs.len()];
        self.all_to_all(&lens, &mut receive)?;
        let counts = |lens: &[i64]| -> Arc<[usize]> { lens.iter().map(|len| *len as usize).collect() };
        let (send, receive) = (counts(&lens), counts(&receive));
        let received = self.all_to_all_known(&inputs.concat(), send, receive.clone())?;
        let ranges = Chunks::Varied(receive).ranges(0, self.world_size());
        Ok(ranges.iter().map(|range| received[range.start..][..range.len].to_vec()).collect())
    }

    fn all_to_all_known<T: Element>(
        &self,
        input: &[T],
        send: Arc<[usize]>,
        receive: Arc<[usize]>,
    ) -> Result<Vec<T>, Error> {
        let received: usize = receive.iter().sum();
        let mut buffer = self.alloc(received + input.len())?;
        buffer[received..].copy_from_slice(input);
        let result = self.run(&Collective::AllToAll { send, receive }, buffer)?;
        Ok(result[..received].to_vec())
    }

    /// Sends `data` to a peer, which calls [`Group::receive`]. Returns when the peer has taken it. Fails as
    /// [`Group::run`] does.
    pub fn send<T: Element>(&self, data: &[T], to: Rank) -> Result<(), Error> {
        Collectives::send(self, self.copied(data)?, to).map(drop)
    }

    /// Receives from a peer, which calls [`Group::send`] with the same number of elements. Fails as
    /// [`Group::run`] does.
    pub fn receive<T: Element>(&self, data: &mut [T], from: Rank) -> Result<(), Error> {
        data.copy_from_slice(&Collectives::receive(self, self.alloc(data.len())?, from)?);
        Ok(())
    }

    /// Sends to one peer and receives from one at the same time, so ranks in a circle do not deadlock. Fails
    /// as [`Group::run`] does.
    pub fn send_receive<T: Element>(
        &self,
        data: &[T],
        to: Rank,
        into: &mut [T],
        from: Rank,
    ) -> Result<(), Error> {
        let send = [Message { peer: to, range: Range { start: into.len(), len: data.len() } }].into();
        let receive = [Message { peer: from, range: Range { start: 0, len: into.len() } }].into();
        let mut buffer = self.alloc(into.len() + data.len())?;
        buffer[into.len()..].copy_from_slice(data);
        let result = self.run(&Collective::Exchange { send, receive }, buffer)?;
        into.copy_from_slice(&result[..into.len()]);
        Ok(())
    }

    /// Returns when every rank has called it. Fails as [`Group::run`] does.
    pub fn barrier(&self) -> Result<(), Error> {
        Collectives::barrier(self)
    }

    pub(super) fn fits(
        &self,
        operation: &str,
        long: usize,
        world: usize,
        short: usize,
    ) -> Result<(), InvalidCall> {
        let operation = || operation.to_string();
        match world {
            _ if Some(long) == short.checked_mul(world) => Ok(()),
            1 => Err(InvalidCall::Lengths { operation: operation(), input: long, output: short }),
            _ => Err(InvalidCall::LengthByRanks { operation: operation(), long, world, short }),
        }
    }
}

impl Collectives for Group {
    type Buffer<T: Element> = Buffer<T>;
    type Pending<T: Element> = Pending<Buffer<T>>;

    fn rank(&self) -> Rank {
        self.rank()
    }

    fn world_size(&self) -> usize {
        self.world_size()
    }

    fn describe(&self) -> String {
        self.transport().into()
    }

    fn alloc<T: Element>(&self, len: usize) -> Result<Buffer<T>, Error> {
        self.alloc(len)
    }

    fn len<T: Element>(buffer: &Buffer<T>) -> usize {
        <[T]>::len(buffer)
    }

    fn write<T: Element>(&self, data: &[T], buffer: &mut Buffer<T>) -> Result<(), Error> {
        self.fits("write", data.len(), 1, buffer.len())?;
        buffer.copy_from_slice(data);
        Ok(())
    }

    fn read<T: Element>(&self, buffer: &Buffer<T>, data: &mut [T]) -> Result<(), Error> {
        self.fits("read", buffer.len(), 1, data.len())?;
        data.copy_from_slice(buffer);
        Ok(())
    }

    fn start<T: Element>(&self, collective: Collective, buffer: Buffer<T>) -> Pending<Buffer<T>> {
        self.start(collective, buffer)
    }

    fn wait<T: Element>(pending: Pending<Buffer<T>>) -> Result<Buffer<T>, Error> {
        pending.wait()
    }

    fn run<T: Element>(&self, collective: &Collective, buffer: Buffer<T>) -> Result<Buffer<T>, Error> {
        self.run(collective, buffer)
    }

    fn copied<T: Element>(&self, data: &[T]) -> Result<Buffer<T>, Error> {
        self.copied(data)
    }
}
