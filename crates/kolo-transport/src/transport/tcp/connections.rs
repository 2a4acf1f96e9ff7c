//! The TCP connections of one rank: one or several for each pair of ranks.
//!
//! With several connections, both ends send message number m over connection m modulo the number of those
//! in use. A lost packet, or a window that is too small for the distance, then delays only one of them.
//!
//! One thread drives all connections of a rank. While it waits for a message it also sends, so two ranks
//! that send each other more than the kernel buffers do not block each other.
//!
//! A waiting rank reads a few times without blocking, then calls `poll`. On a host with more ranks than
//! cores it yields its core between the reads. The number of reads depends on the success of the last
//! ones; it is zero if the reads would take the core from a thread that computes meanwhile.

use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::channel::Channel;
use super::header::{self, HEADER, Header};
use super::outgoing::Outgoing;
use super::peer::Peer;
use crate::memory::Segment;
use crate::transport::adaptive_spin::AdaptiveSpin;
use crate::transport::interface::{Progress, SHORT_SLEEP, Transport};
use crate::wait::WaitContext;
use crate::wait::WaitMode;
use kolo_rendezvous::{Error, Liveness};
use kolo_schedule::Rank;

/// Wait for the reason of a broken connection, which usually arrives by another way (a rank died or gave
/// up). The broken connection alone does not tell a culprit from a victim.
const REASON_WAIT: Duration = Duration::from_millis(1500);

/// Minimum and maximum number of reads that may come back empty before a rank sleeps.
const READS: (u32, u32) = (2, 128);

/// The connections of one rank to the peers that it reaches by TCP.
pub(crate) struct Tcp {
    peers: Vec<Option<Peer>>,
    /// Readable when something has happened to the group.
    alarm: Arc<OwnedFd>,
    /// Extra delivery time of messages: simulates distance on one host.
    delay: Duration,
    /// `crowded` is true with more ranks on this host than cores; `busy` is true with so many ranks that
    /// computing threads need the cores of communicating ones.
    crowded: bool,
    busy: bool,
    spin: AdaptiveSpin,
}

impl Tcp {
    /// Creates the transport from the connections to each rank; `on_host` ranks share this host's cores.
    pub(crate) fn new(
        peers: Vec<Vec<Channel>>,
        on_host: usize,
        delay: Duration,
        liveness: &Liveness,
    ) -> Result<Self, Error> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let alarm = eventfd(0, flags);
        let alarm =
            Arc::new(alarm.map_err(|cause| Error::io("cannot set up connections to peers", cause.into()))?);
        let bell = Arc::downgrade(&alarm);
        liveness.register_waker(Box::new(move || match bell.upgrade() {
            Some(bell) => {
                // The only failure is a full counter, and then the descriptor is readable already.
                let _ = rustix::io::write(&*bell, &1u64.to_ne_bytes());
                true
            }
            None => false,
        }));
        let peers = peers.into_iter().map(Peer::new).collect::<Result<_, Error>>()?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let (crowded, busy) = (on_host > cores, 2 * on_host > cores);
        Ok(Tcp { peers, alarm, delay, crowded, busy, spin: AdaptiveSpin::new(READS.0, READS.1, READS.1) })
    }

    fn peer(&mut self, rank: Rank) -> &mut Peer {
        self.peers[rank.0].as_mut().expect("there is a connection to every rank but this one")
    }

    /// Fills `into` completely, sending meanwhile.
    fn read(
        &mut self,
        from: Rank,
        into: &mut [u8],
        wait: &WaitContext<'_>,
        others: &mut dyn Progress,
    ) -> Result<(), Error> {
        let (mut filled, mut empty) = (0, 0);
        // News travels over another connection, so a peer may seem to leave before its last message.
        let mut left = None;
        while filled < into.len() {
            let stream = self.peer(from).next_in();
            match stream.incoming.read_from(&mut stream.channel, &mut into[filled..]) {
                Ok(0) => return Err(broken(from, wait)),
                Ok(count) => {
                    filled += count;
                    self.spin.came_after(empty);
                    (empty, left) = (0, None);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.push_out(wait)?;
                    if self.worth_another_try(empty, wait.mode) {
                        empty += 1;
                        continue;
                    }
                    match self.sleep(Some(from), from, wait, others) {
                        Err(Error::Left { .. })
                            if left.get_or_insert_with(Instant::now).elapsed() < REASON_WAIT =>
                        {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        other => other?,
                    }
                }
                Err(e) if e.kind() == ErrorKind::InvalidData => return Err(changed(from, &e, wait)),
                Err(_) => return Err(broken(from, wait)),
            }
        }
        Ok(())
    }

    /// True if the rank should read again before it sleeps, after `empty` reads that came back empty.
    fn worth_another_try(&mut self, empty: u32, mode: WaitMode) -> bool {
        if self.busy && mode == WaitMode::Background {
            return false;
        }
        let limit = self.spin.limit();
        if empty < limit && (!self.crowded || self.spin.step_behind()) {
            return true;
        }
        if empty <= limit {
            self.spin.gave_up();
        }
        false
    }

    /// Writes to every peer as much as the kernel takes.
    fn push_out(&mut self, wait: &WaitContext<'_>) -> Result<(), Error> {
        for (rank, peer) in self.peers.iter_mut().enumerate() {
            for stream in peer.iter_mut().flat_map(|peer| &mut peer.streams) {
                let written = stream.outgoing.write_to(&mut stream.channel);
                written.map_err(|_| broken(Rank(rank), wait))?;
            }
        }
        Ok(())
    }

    /// Sleeps until `reading` has bytes, a peer takes bytes again, or there is news. `blame` is the awaited
    /// peer.
    fn sleep(
        &mut self,
        reading: Option<Rank>,
        blame: Rank,
        wait: &WaitContext<'_>,
        others: &mut dyn Progress,
    ) -> Result<(), Error> {
        let _note = wait.waiting(blame);
        wait.check(blame)?;
        let more_to_send = others.progress(wait)?;
        let mut fds = vec![PollFd::new(&*self.alarm, PollFlags::IN)];
        for (rank, peer) in self.peers.iter().enumerate() {
            let Some(peer) = peer else { continue };
            for (number, stream) in peer.streams.iter().enumerate() {
                let next = number == peer.next_in_number();
                let mut flags = PollFlags::empty();
                flags.set(PollFlags::IN, reading == Some(Rank(rank)) && next);
                flags.set(PollFlags::OUT, !stream.outgoing.is_empty());
                if !flags.is_empty() {
                    fds.push(PollFd::new(&stream.channel, flags));
                }
            }
        }
        let limit = if more_to_send { SHORT_SLEEP } else { wait.sleep_limit() };
        let limit = rustix::time::Timespec { tv_sec: 0, tv_nsec: i64::from(limit.subsec_nanos()) };
        match poll(&mut fds, Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(cause) => return Err(Error::system("cannot wait for a connection", cause)),
        }
        let mut count = [0; 8];
        // Resets the alarm; usually there is nothing to read.
        let _ = rustix::io::read(&*self.alarm, &mut count);
        Ok(())
    }

    /// Reads and checks the header of the next message, and waits for its simulated arrival.
    fn read_header(
        &mut self,
        from: Rank,
        bytes: usize,
        wait: &WaitContext<'_>,
        others: &mut dyn Progress,
    ) -> Result<(), Error> {
        let mut header = [0; HEADER];
        self.read(from, &mut header, wait, others)?;
        let header = Header::decode(&header);
        header.check(from, bytes, wait)?;
        while let Some(rest) = header.under_way() {
            let _note = wait.waiting(from);
            match wait.check(from) {
                // The peer left after this message, which is here.
                Ok(()) | Err(Error::Left { .. }) => {}
                Err(error) => return Err(error),
            }
            self.push_out(wait)?;
            // Shorter sleeps than this would take longer.
            if rest > Duration::from_micros(100) {
                std::thread::sleep(rest.min(Duration::from_millis(1)) - Duration::from_micros(60));
            }
        }
        Ok(())
    }
}

/// Error for bytes that the session's keys do not open: something between the two ranks changed them.
fn changed(from: Rank, cause: &std::io::Error, wait: &WaitContext<'_>) -> Error {
    Error::Untrusted { rank: wait.name(from), cause: format!("its encrypted connection: {cause}") }
}

/// Returns the reason for a broken connection: the known one, else that the peer died.
fn broken(peer: Rank, wait: &WaitContext<'_>) -> Error {
    let until = Instant::now() + REASON_WAIT;
    while Instant::now() < until {
        if let Err(error) = wait.check(peer) {
            return error;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Error::Died { rank: wait.name(peer) }
}

impl Transport for Tcp {
    fn send(
        &mut self,
        to: Rank,
        segment: Segment<'_>,
        copied: bool,
        wait: &WaitContext<'_>,
        _: &mut dyn Progress,
    ) -> Result<(), Error> {
        let (call, bytes, due) = (wait.call.words(), segment.bytes as u64, header::due(self.delay));
        let peer = self.peer(to);
        let stream = peer.next_out();
        stream.outgoing.push(&Header { call, bytes, due }, segment);
        stream.outgoing.write_to(&mut stream.channel).map_err(|_| broken(to, wait))?;
        if copied {
            stream.outgoing.copy_last();
        }
        peer.sent += 1;
        Ok(())
    }

    fn receive(
        &mut self,
        from: Rank,
        bytes: usize,
        wait: &WaitContext<'_>,
        others: &mut dyn Progress,
    ) -> Result<*const u8, Error> {
        self.read_header(from, bytes, wait, others)?;
        let peer = self.peer(from);
        if peer.scratch.len() == peer.unreleased {
            peer.scratch.push(Vec::new());
        }
        let slot = peer.unreleased;
        let mut scratch = std::mem::take(&mut peer.scratch[slot]);
        scratch.resize(bytes.div_ceil(8).max(scratch.len()), 0);
        let start = scratch.as_mut_ptr().cast::<u8>();
        // SAFETY: the vector has at least `bytes` initialized bytes.
        let result = self.read(from, unsafe { std::slice::from_raw_parts_mut(start, bytes) }, wait, others);
        let peer = self.peer(from);
        peer.scratch[slot] = scratch;
        peer.unreleased += 1;
        peer.received += 1;
        result.map(|()| start.cast_const())
    }

    fn release(&mut self, from: Rank) {
        self.peer(from).unreleased = 0;
    }

    unsafe fn receive_into(
        &mut self,
        from: Rank,
        into: *mut u8,
        bytes: usize,
        wait: &WaitContext<'_>,
        others: &mut dyn Progress,
    ) -> Result<(), Error> {
        self.read_header(from, bytes, wait, others)?;
        // SAFETY: the caller promises `bytes` writable bytes; as parts of a buffer they are initialized.
        self.read(from, unsafe { std::slice::from_raw_parts_mut(into, bytes) }, wait, others)?;
        self.peer(from).received += 1;
        Ok(())
    }

    fn progress(&mut self, wait: &WaitContext<'_>) -> Result<bool, Error> {
        self.push_out(wait)?;
        Ok(self.peers.iter().flatten().any(Peer::is_sending))
    }

    fn streams(&self) -> (usize, usize) {
        let most = self.peers.iter().flatten().max_by_key(|peer| peer.streams.len());
        most.map_or((1, 1), |peer| (peer.used, peer.streams.len()))
    }

    fn use_streams(&mut self, count: usize) {
        self.peers.iter_mut().flatten().for_each(|peer| peer.use_streams(count));
    }

    fn abandon(&mut self) {
        self.peers.iter_mut().flatten().flat_map(|peer| &mut peer.streams).for_each(|stream| {
            stream.outgoing = Outgoing::default();
        });
    }

    fn settle(&mut self, wait: &WaitContext<'_>, others: &mut dyn Progress) -> Result<(), Error> {
        loop {
            self.push_out(wait)?;
            let waiting = |peer: &Option<Peer>| peer.as_ref().is_some_and(Peer::is_sending);
            let Some(rank) = self.peers.iter().position(waiting) else { return Ok(()) };
            self.sleep(None, Rank(rank), wait, others)?;
        }
    }
}
