//! One function for each operation. Buffers move in and out; all but all-to-all work in place.

use super::{DeviceBuffer, DeviceGroup};
use kolo_comm::Collective;
use kolo_comm::Element;
use kolo_rendezvous::Error;
use kolo_schedule::Op;
use kolo_schedule::Rank;
use kolo_schedule::{Chunks, Message, Range};

/// All fail as [`DeviceGroup::run`] does.
impl DeviceGroup {
    /// Every rank ends with the combination of all. NCCL's largest and smallest may pass over a NaN.
    pub fn all_reduce<T: Element>(&self, buffer: DeviceBuffer<T>, op: Op) -> Result<DeviceBuffer<T>, Error> {
        self.run(&Collective::AllReduce(op), buffer)
    }

    /// Rank r ends with the combination of everybody's chunk r, in its own chunk r; the rest is unspecified.
    pub fn reduce_scatter<T: Element>(
        &self,
        buffer: DeviceBuffer<T>,
        op: Op,
    ) -> Result<DeviceBuffer<T>, Error> {
        self.run(&Collective::ReduceScatter(op, Chunks::Equal), buffer)
    }

    /// Every rank ends with chunk r of rank r, for all r.
    pub fn all_gather<T: Element>(&self, buffer: DeviceBuffer<T>) -> Result<DeviceBuffer<T>, Error> {
        self.run(&Collective::AllGather(Chunks::Equal), buffer)
    }

    /// Every rank ends with the root's buffer.
    pub fn broadcast<T: Element>(
        &self,
        buffer: DeviceBuffer<T>,
        root: Rank,
    ) -> Result<DeviceBuffer<T>, Error> {
        self.run(&Collective::Broadcast(root), buffer)
    }

    /// The root ends with the combination of all; the others' buffers are unspecified.
    pub fn reduce<T: Element>(
        &self,
        buffer: DeviceBuffer<T>,
        op: Op,
        root: Rank,
    ) -> Result<DeviceBuffer<T>, Error> {
        self.run(&Collective::Reduce(op, root), buffer)
    }

    /// Rank r gets everybody's chunk r. The buffer's first half takes what is received, in rank order; its second half is
    /// what is sent.
    pub fn all_to_all<T: Element>(&self, buffer: DeviceBuffer<T>) -> Result<DeviceBuffer<T>, Error> {
        let world = self.world_size();
        if !buffer.len().is_multiple_of(2 * world) {
            let len = buffer.len();
            let problem = format!("all_to_all: {len} elements are not 2 × {world} ranks × a number");
            return Err(Error::Invalid(problem));
        }
        let counts = vec![buffer.len() / 2 / world; world];
        self.run(&Collective::AllToAll { send: counts.clone().into(), receive: counts.into() }, buffer)
    }

    /// Sends the buffer to a peer, which calls [`DeviceGroup::receive`] with as many elements.
    pub fn send<T: Element>(&self, buffer: DeviceBuffer<T>, to: Rank) -> Result<DeviceBuffer<T>, Error> {
        let send = [whole(&buffer, to)].into();
        self.run(&Collective::Exchange { send, receive: [].into() }, buffer)
    }

    /// Fills the buffer from a peer, which calls [`DeviceGroup::send`] with as many elements.
    pub fn receive<T: Element>(&self, buffer: DeviceBuffer<T>, from: Rank) -> Result<DeviceBuffer<T>, Error> {
        let receive = [whole(&buffer, from)].into();
        self.run(&Collective::Exchange { send: [].into(), receive }, buffer)
    }

    /// Returns when every rank has called it, and what was started before is over.
    pub fn barrier(&self) -> Result<(), Error> {
        self.run(&Collective::Barrier, self.alloc::<u8>(1)?).map(drop)
    }

    /// What a buffer holds.
    pub fn to_vec<T: Element>(&self, buffer: &DeviceBuffer<T>) -> Result<Vec<T>, Error> {
        let mut data = vec![T::default(); buffer.len()];
        self.read(buffer, &mut data)?;
        Ok(data)
    }
}

fn whole<T: Element>(buffer: &DeviceBuffer<T>, peer: Rank) -> Message {
    Message { peer, range: Range { start: 0, len: buffer.len() } }
}
