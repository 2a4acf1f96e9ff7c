//! What the ranks of a group can do together, on slices.
//!
//! Slices are copied into and out of memory that peers can read. Who cares for that copy allocates a
//! [`Buffer`](crate::Buffer) and calls [`Group::run`] or [`Group::start`].

use std::sync::Arc;

use crate::collective::Collective;
use crate::element::Element;
use crate::group::Group;
use kolo_rendezvous::Error;
use kolo_schedule::Op;
use kolo_schedule::Rank;
use kolo_schedule::{Chunks, Message, Range};

/// All fail as [`Group::run`] does; a length that does not fit is [`Error::Invalid`].
impl Group {
    /// Combines `data` element by element over all ranks; every rank gets the same bits.
    ///
    /// # Errors
    ///
    /// As [`Group::run`].
    pub fn all_reduce<T: Element>(&self, data: &mut [T], op: Op) -> Result<(), Error> {
        data.copy_from_slice(&self.run(&Collective::AllReduce(op), self.copied(data)?)?);
        Ok(())
    }

    /// As [`Group::all_reduce`], from `input` to `output`, which are of one length.
    ///
    /// # Errors
    ///
    /// The lengths differ; otherwise as [`Group::run`].
    pub fn all_reduce_into<T: Element>(&self, input: &[T], output: &mut [T], op: Op) -> Result<(), Error> {
        self.fits("all_reduce", input.len(), 1, output.len())?;
        output.copy_from_slice(&self.run(&Collective::AllReduce(op), self.copied(input)?)?);
        Ok(())
    }

    /// Combines `data` over all ranks; only the root's `data` changes.
    ///
    /// # Errors
    ///
    /// As [`Group::run`].
    pub fn reduce<T: Element>(&self, data: &mut [T], op: Op, root: Rank) -> Result<(), Error> {
        let result = self.run(&Collective::Reduce(op, root), self.copied(data)?)?;
        if self.rank() == root {
            data.copy_from_slice(&result);
        }
        Ok(())
    }

    /// Combines `input` over all ranks; rank r gets chunk r of the result. `input` is world size × `output` long.
    ///
    /// # Errors
    ///
    /// The lengths do not fit; otherwise as [`Group::run`].
    pub fn reduce_scatter<T: Element>(&self, input: &[T], output: &mut [T], op: Op) -> Result<(), Error> {
        self.fits("reduce_scatter", input.len(), self.world_size(), output.len())?;
        let result = self.run(&Collective::ReduceScatter(op, Chunks::Equal), self.copied(input)?)?;
        output.copy_from_slice(&result[self.rank().0 * output.len()..][..output.len()]);
        Ok(())
    }

    /// Every rank gets the inputs of all, in rank order. `output` is world size × `input` long.
    ///
    /// # Errors
    ///
    /// The lengths do not fit; otherwise as [`Group::run`].
    pub fn all_gather<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<(), Error> {
        self.fits("all_gather", output.len(), self.world_size(), input.len())?;
        let mut buffer = self.alloc(output.len())?;
        buffer[self.rank().0 * input.len()..][..input.len()].copy_from_slice(input);
        output.copy_from_slice(&self.run(&Collective::AllGather(Chunks::Equal), buffer)?);
        Ok(())
    }

    /// Every rank gets the inputs of all, which may differ in length. Returns one vector for each rank.
    ///
    /// The lengths are gathered first; who knows them runs [`Collective::AllGather`] with [`Chunks::Varied`].
    ///
    /// # Errors
    ///
    /// As [`Group::run`].
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

    /// Every rank gets the root's `data`.
    ///
    /// # Errors
    ///
    /// As [`Group::run`].
    pub fn broadcast<T: Element>(&self, data: &mut [T], root: Rank) -> Result<(), Error> {
        data.copy_from_slice(&self.run(&Collective::Broadcast(root), self.copied(data)?)?);
        Ok(())
    }

    /// The root gets the inputs of all, in rank order. There `output` is world size × `input` long; elsewhere it is not
    /// touched.
    ///
    /// # Errors
    ///
    /// The lengths do not fit; otherwise as [`Group::run`].
    pub fn gather<T: Element>(&self, input: &[T], output: &mut [T], root: Rank) -> Result<(), Error> {
        if self.rank() != root {
            return self.run(&Collective::Gather(root), self.copied(input)?).map(drop);
        }
        self.fits("gather", output.len(), self.world_size(), input.len())?;
        let mut buffer = self.alloc(output.len())?;
        buffer[self.rank().0 * input.len()..][..input.len()].copy_from_slice(input);
        output.copy_from_slice(&self.run(&Collective::Gather(root), buffer)?);
        Ok(())
    }

    /// Rank r gets chunk r of the root's `input`, which is world size × `output` long; elsewhere `input` is not looked at.
    ///
    /// # Errors
    ///
    /// The lengths do not fit; otherwise as [`Group::run`].
    pub fn scatter<T: Element>(&self, input: &[T], output: &mut [T], root: Rank) -> Result<(), Error> {
        if self.rank() != root {
            let result = self.run(&Collective::Scatter(root), self.alloc(output.len())?)?;
            output.copy_from_slice(&result);
            return Ok(());
        }
        self.fits("scatter", input.len(), self.world_size(), output.len())?;
        let result = self.run(&Collective::Scatter(root), self.copied(input)?)?;
        output.copy_from_slice(&result[self.rank().0 * output.len()..][..output.len()]);
        Ok(())
    }

    /// Rank r gets chunk r of everybody's `input`, in rank order. Both are of one length, a multiple of the world size.
    ///
    /// # Errors
    ///
    /// The lengths do not fit; otherwise as [`Group::run`].
    pub fn all_to_all<T: Element>(&self, input: &[T], output: &mut [T]) -> Result<(), Error> {
        let world = self.world_size();
        self.fits("all_to_all", input.len(), 1, output.len())?;
        self.fits("all_to_all", input.len(), world, input.len() / world)?;
        let counts: Arc<[usize]> = vec![input.len() / world; world].into();
        output.copy_from_slice(&self.all_to_all_known(input, counts.clone(), counts)?);
        Ok(())
    }

    /// Rank r gets the slice r of everybody: `inputs` has one slice for each rank, of any length. Returns what came from
    /// each rank.
    ///
    /// # Errors
    ///
    /// There is not one slice for each rank; otherwise as [`Group::run`].
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

    /// Sends `data` to a peer, which calls [`Group::receive`]. Returns when the peer has taken it.
    ///
    /// # Errors
    ///
    /// As [`Group::run`].
    pub fn send<T: Element>(&self, data: &[T], to: Rank) -> Result<(), Error> {
        let send = [Message { peer: to, range: Range { start: 0, len: data.len() } }].into();
        self.run(&Collective::Exchange { send, receive: [].into() }, self.copied(data)?).map(drop)
    }

    /// Receives from a peer, which calls [`Group::send`] with as many elements.
    ///
    /// # Errors
    ///
    /// As [`Group::run`].
    pub fn receive<T: Element>(&self, data: &mut [T], from: Rank) -> Result<(), Error> {
        let receive = [Message { peer: from, range: Range { start: 0, len: data.len() } }].into();
        let exchange = Collective::Exchange { send: [].into(), receive };
        data.copy_from_slice(&self.run(&exchange, self.alloc(data.len())?)?);
        Ok(())
    }

    /// Sends to one peer and receives from one, at once: ranks that all do so do not wait for each other in a circle.
    ///
    /// # Errors
    ///
    /// As [`Group::run`].
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

    /// Returns when every rank has called it.
    ///
    /// # Errors
    ///
    /// As [`Group::run`].
    pub fn barrier(&self) -> Result<(), Error> {
        self.run(&Collective::Barrier, self.alloc::<u8>(1)?).map(drop)
    }

    fn fits(&self, call: &str, long: usize, times: usize, short: usize) -> Result<(), Error> {
        if Some(long) == short.checked_mul(times) {
            return Ok(());
        }
        Err(Error::Invalid(match times {
            1 => format!("{call}: {long} elements in and {short} elements out must be equal"),
            _ => format!("{call}: {long} elements are not {times} ranks × {short} elements"),
        }))
    }
}
