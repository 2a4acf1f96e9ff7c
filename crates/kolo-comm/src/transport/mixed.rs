//! The transport of a group that spans nodes: shared memory within a node, TCP between nodes.

use std::sync::Arc;
use std::time::Instant;

use super::mailbox::Mailbox;
use super::tcp::Tcp;
use super::{Span, Transport};
use crate::wait::Patience;
use kolo_rendezvous::Error;
use kolo_schedule::Rank;
use kolo_schedule::Topology;

/// See the module's text.
pub(crate) struct Mixed {
    here: Rank,
    topology: Arc<Topology>,
    near: Mailbox,
    far: Tcp,
}

impl Mixed {
    pub(crate) fn new(here: Rank, topology: Arc<Topology>, near: Mailbox, far: Tcp) -> Self {
        Mixed { here, topology, near, far }
    }

    fn is_near(&self, peer: Rank) -> bool {
        self.topology.together(self.here, peer)
    }
}

impl Transport for Mixed {
    fn send(&mut self, to: Rank, span: Span<'_>, copied: bool, patience: &Patience<'_>) -> Result<(), Error> {
        if self.is_near(to) {
            self.near.send(to, span, copied, patience, &mut self.far)
        } else {
            self.far.send(to, span, copied, patience)
        }
    }

    fn receive(&mut self, from: Rank, bytes: usize, patience: &Patience<'_>) -> Result<*const u8, Error> {
        if self.is_near(from) {
            self.near.receive(from, bytes, patience, &mut self.far)
        } else {
            self.far.receive(from, bytes, patience)
        }
    }

    fn release(&mut self, from: Rank) {
        if self.is_near(from) { self.near.release(from) } else { self.far.release(from) }
    }

    unsafe fn receive_into(
        &mut self,
        from: Rank,
        into: *mut u8,
        bytes: usize,
        patience: &Patience<'_>,
    ) -> Result<(), Error> {
        if !self.is_near(from) {
            // SAFETY: handed on.
            return unsafe { self.far.receive_into(from, into, bytes, patience) };
        }
        let message = self.near.receive(from, bytes, patience, &mut self.far)?;
        // SAFETY: the message has that many bytes, in memory of the peer; the caller vouches for `into`.
        unsafe { std::ptr::copy_nonoverlapping(message, into, bytes) };
        self.near.release(from);
        Ok(())
    }

    fn settle(&mut self, patience: &Patience<'_>) -> Result<(), Error> {
        self.near.settle(patience, &mut self.far)?;
        self.far.settle(patience)
    }

    fn drain(&mut self, gone: &dyn Fn(Rank) -> bool, until: Instant) {
        self.near.drain(gone, until);
    }

    fn name(&self) -> &'static str {
        "shm+tcp"
    }
}
