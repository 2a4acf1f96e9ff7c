//! The transport to each rank. A group whose ranks all have the same distance has one transport; a group
//! that spans nodes has shared memory within a node and a network between nodes.

use std::collections::BTreeSet;
use std::time::Instant;

use kolo_rendezvous::Error;
use kolo_schedule::Rank;
use parking_lot::Mutex;

use super::interface::{InPlace, NoOthers, Progress, Transport};
use super::kind::{Distance, TransportKind};
use crate::memory::Segment;
use crate::wait::WaitContext;

/// The transports of one rank of a group.
pub struct Routes {
    /// Transports, nearest first.
    transports: Vec<Box<dyn Transport>>,
    /// Index in `transports` for each rank of the group; 0 for this rank, which sends nothing to itself.
    to: Vec<u8>,
    name: &'static str,
    reach: Distance,
    /// Number of contents sent so far ([`Segment::content`]).
    contents: u64,
}

kolo_schedule::opaque_debug!(Routes { name, contents });

struct Others<'a>(&'a mut [Box<dyn Transport>], &'a mut [Box<dyn Transport>]);

impl Progress for Others<'_> {
    fn progress(&mut self, wait: &WaitContext<'_>) -> Result<bool, Error> {
        let mut more = false;
        for transport in self.0.iter_mut().chain(&mut *self.1) {
            more |= transport.progress(wait)?;
        }
        Ok(more)
    }
}

impl Routes {
    /// Routes of a group of one, which has no peers.
    pub fn alone() -> Self {
        Routes { transports: Vec::new(), to: vec![0], name: "solo", reach: Distance::Process, contents: 0 }
    }

    /// Creates the routes from this rank's transports, nearest first, with the ranks that they lead to.
    pub fn new(
        world: usize,
        connected: Vec<(&'static TransportKind, Box<dyn Transport>, Vec<Rank>)>,
    ) -> Self {
        let mut to = vec![0; world];
        let (mut transports, mut names, mut reach) = (Vec::new(), Vec::new(), Distance::Process);
        for (index, (kind, transport, peers)) in connected.into_iter().enumerate() {
            peers.iter().for_each(|peer| to[peer.0] = index as u8);
            transports.push(transport);
            names.push(kind.name);
            reach = reach.max(kind.reach);
        }
        Routes { transports, to, name: joined(&names), reach, contents: 0 }
    }

    /// Names of the transports, as in `KOLO_TRANSPORT`: `shm+tcp`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Distance between the farthest ranks.
    pub fn reach(&self) -> Distance {
        self.reach
    }

    /// Calls [`Transport::streams`]; of the transport with the most.
    pub fn streams(&self) -> (usize, usize) {
        self.transports
            .iter()
            .map(|transport| transport.streams())
            .max_by_key(|(_, there)| *there)
            .unwrap_or((1, 1))
    }

    /// Calls [`Transport::use_streams`] on every transport.
    pub fn use_streams(&mut self, count: usize) {
        self.transports.iter_mut().for_each(|transport| transport.use_streams(count));
    }

    /// Returns a new number for bytes that have not been sent before ([`Segment::content`]).
    #[inline]
    pub fn next_content(&mut self) -> u64 {
        self.contents += 1;
        self.contents
    }

    /// Runs `work` with the transport at `index` and with the others. A single transport needs no others:
    /// most groups have one, and short collectives would notice the cost.
    #[inline]
    fn with<R>(&mut self, index: usize, work: impl FnOnce(&mut dyn Transport, &mut dyn Progress) -> R) -> R {
        match &mut self.transports[..] {
            [only] => work(&mut **only, &mut NoOthers),
            several => {
                let (before, rest) = several.split_at_mut(index);
                let (this, after) = rest.split_first_mut().expect("a group sends to others only");
                work(&mut **this, &mut Others(before, after))
            }
        }
    }

    #[inline]
    fn index(&self, peer: Rank) -> usize {
        usize::from(self.to[peer.0])
    }

    /// Calls [`Transport::send`] on the transport to the peer.
    #[inline]
    pub fn send(
        &mut self,
        to: Rank,
        segment: Segment<'_>,
        copied: bool,
        wait: &WaitContext<'_>,
    ) -> Result<(), Error> {
        self.with(self.index(to), |this, others| this.send(to, segment, copied, wait, others))
    }

    /// Calls [`Transport::receive`] on the transport to the peer.
    #[inline]
    pub fn receive(&mut self, from: Rank, bytes: usize, wait: &WaitContext<'_>) -> Result<*const u8, Error> {
        self.with(self.index(from), |this, others| this.receive(from, bytes, wait, others))
    }

    /// Calls [`Transport::receive_into`] on the transport to the peer.
    ///
    /// # Safety
    ///
    /// `into` is writable for `bytes` bytes.
    #[inline]
    pub unsafe fn receive_into(
        &mut self,
        from: Rank,
        into: *mut u8,
        bytes: usize,
        wait: &WaitContext<'_>,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        self.with(self.index(from), |this, others| unsafe {
            this.receive_into(from, into, bytes, wait, others)
        })
    }

    /// Calls [`Transport::release`] on the transport to the peer.
    #[inline]
    pub fn release(&mut self, from: Rank) {
        let index = self.index(from);
        self.transports[index].release(from);
    }

    /// Calls [`Transport::settle`] on every transport.
    #[inline]
    pub fn settle(&mut self, wait: &WaitContext<'_>) -> Result<(), Error> {
        (0..self.transports.len())
            .try_for_each(|index| self.with(index, |this, others| this.settle(wait, others)))
    }

    /// Returns [`Transport::in_place`], if all ranks can read each other's buffers.
    #[inline]
    pub fn in_place(&mut self) -> Option<&mut dyn InPlace> {
        match &mut self.transports[..] {
            [only] => only.in_place(),
            _ => None,
        }
    }

    /// Calls [`Transport::abandon`] on every transport.
    pub fn abandon(&mut self) {
        self.transports.iter_mut().for_each(|transport| transport.abandon());
    }

    /// Calls [`Transport::drain`] on every transport.
    pub fn drain(&mut self, gone: &dyn Fn(Rank) -> bool, until: Instant) {
        self.transports.iter_mut().for_each(|transport| transport.drain(gone, until));
    }
}

/// Joined names of transports that are used together. They are leaked: there are few combinations.
fn joined(names: &[&'static str]) -> &'static str {
    static JOINED: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    if let [only] = names {
        return only;
    }
    let name = names.join("+");
    let mut known = JOINED.lock();
    match known.get(&*name) {
        Some(known) => known,
        None => {
            let name: &'static str = name.leak();
            known.insert(name);
            name
        }
    }
}
