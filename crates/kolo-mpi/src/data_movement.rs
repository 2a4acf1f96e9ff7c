//! Collectives that only move data.
//!
//! More elements than one call takes ([`MOST`]) go by several calls of simpler collectives, or by messages.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use mpi_sys::MPI_Status;

use super::call::{call, check};
use super::communicator::Communicator;
use super::view::{MOST, View, datatype, in_place, pieces};
use kolo_rendezvous::Error;
use kolo_schedule::{Chunks, Message, Range, Rank};

/// Tag of all messages: between two ranks they arrive in the order in which they were sent.
const TAG: c_int = 0;

impl Communicator {
    pub(super) fn all_gather(&self, view: &View, chunks: &Chunks) -> Result<(), Error> {
        let ranges = chunks.ranges(view.len, self.world);
        if view.len > MOST {
            let from = |(rank, range): (usize, &Range)| self.broadcast_range(view, *range, Rank(rank));
            return ranges.iter().enumerate().try_for_each(from);
        }
        let (kind, comm, all) = (datatype(view.dtype), self.handle, view.at(0));
        let (counts, starts) = layout(&ranges);
        // SAFETY: the buffer has as many elements as all chunks together, and nothing else uses it.
        unsafe {
            match chunks {
                Chunks::Equal => {
                    call!(MPI_Allgather(in_place(), 0, kind, all, counts[0], kind, comm))
                }
                Chunks::Varied(_) => {
                    let (counts, starts) = (counts.as_ptr(), starts.as_ptr());
                    call!(MPI_Allgatherv(in_place(), 0, kind, all, counts, starts, kind, comm))
                }
            }
        }
    }

    pub(super) fn broadcast(&self, view: &View, root: Rank) -> Result<(), Error> {
        self.broadcast_range(view, Range { start: 0, len: view.len }, root)
    }

    fn broadcast_range(&self, view: &View, range: Range, root: Rank) -> Result<(), Error> {
        let (kind, root) = (datatype(view.dtype), root.0 as c_int);
        for (start, count) in pieces(range.len) {
            // SAFETY: a piece of the range, which lies in the buffer.
            unsafe { call!(MPI_Bcast(view.at(range.start + start), count, kind, root, self.handle))? };
        }
        Ok(())
    }

    pub(super) fn gather(&self, view: &View, root: Rank) -> Result<(), Error> {
        let chunk = self.chunk(view, root);
        if chunk * self.world > MOST {
            let (root, others) = self.star(chunk, root);
            return self.exchange(view, &root, &others);
        }
        let (kind, comm, buffer, count) = (datatype(view.dtype), self.handle, view.at(0), chunk as c_int);
        let (from, into) =
            if self.rank == root { (in_place(), buffer) } else { (buffer, std::ptr::null_mut()) };
        // SAFETY: the root's buffer has a chunk per rank, others one; only the root's `into` is used.
        unsafe { call!(MPI_Gather(from, count, kind, into, count, kind, root.0 as c_int, comm)) }
    }

    pub(super) fn scatter(&self, view: &View, root: Rank) -> Result<(), Error> {
        let chunk = self.chunk(view, root);
        if chunk * self.world > MOST {
            let (root, others) = self.star(chunk, root);
            return self.exchange(view, &others, &root);
        }
        let (kind, comm, buffer, count) = (datatype(view.dtype), self.handle, view.at(0), chunk as c_int);
        let (from, into) =
            if self.rank == root { (buffer, in_place()) } else { (std::ptr::null_mut(), buffer) };
        // SAFETY: as above; only the root's `from` is used.
        unsafe { call!(MPI_Scatter(from, count, kind, into, count, kind, root.0 as c_int, comm)) }
    }

    /// Number of elements of one rank's chunk in a collective in which only the root holds all chunks.
    fn chunk(&self, view: &View, root: Rank) -> usize {
        if self.rank == root { view.len / self.world } else { view.len }
    }

    /// Returns the messages between the root and all other ranks: those of a rank that is not the root,
    /// and those of the root. One of the two lists is empty.
    fn star(&self, chunk: usize, root: Rank) -> (Vec<Message>, Vec<Message>) {
        if self.rank != root {
            return (vec![Message { peer: root, range: Range { start: 0, len: chunk } }], Vec::new());
        }
        let others = (0..self.world).filter(|rank| *rank != root.0);
        let range = |rank| Range { start: rank * chunk, len: chunk };
        (Vec::new(), others.map(|rank| Message { peer: Rank(rank), range: range(rank) }).collect())
    }

    pub(super) fn all_to_all(&self, view: &View, send: &[usize], receive: &[usize]) -> Result<(), Error> {
        let received: usize = receive.iter().sum();
        let taken = Chunks::Varied(receive.into()).ranges(view.len, self.world);
        let mut given = Chunks::Varied(send.into()).ranges(view.len, self.world);
        if self.most(view.len)? > MOST {
            given.iter_mut().for_each(|range| range.start += received);
            return self.all_to_all_by_messages(view, &given, &taken);
        }
        let (kind, comm) = (datatype(view.dtype), self.handle);
        let ((sent, from), (counts, into)) = (layout(&given), layout(&taken));
        // SAFETY: the buffer holds first the received chunks, then those to send.
        unsafe {
            call!(MPI_Alltoallv(
                view.at(received),
                sent.as_ptr(),
                from.as_ptr(),
                kind,
                view.at(0),
                counts.as_ptr(),
                into.as_ptr(),
                kind,
                comm
            ))
        }
    }

    fn all_to_all_by_messages(&self, view: &View, given: &[Range], taken: &[Range]) -> Result<(), Error> {
        let me = self.rank.0;
        let messages = |ranges: &[Range]| -> Vec<Message> {
            let of = |rank: usize| Message { peer: Rank(rank), range: ranges[rank] };
            (0..self.world).filter(|rank| *rank != me).map(of).collect()
        };
        let (from, into) = (view.at(given[me].start), view.at(taken[me].start));
        // SAFETY: one chunk to send and one to receive, of equal length (checked) and without overlap.
        unsafe {
            let bytes = taken[me].len * view.dtype.size();
            std::ptr::copy_nonoverlapping(from.cast::<u8>(), into.cast::<u8>(), bytes);
        }
        self.exchange(view, &messages(given), &messages(taken))
    }

    /// Returns the largest number of all ranks, because they must choose alike.
    fn most(&self, number: usize) -> Result<usize, Error> {
        let mut most = number as u64;
        let address = (&raw mut most).cast();
        // SAFETY: one number of that type.
        unsafe {
            let (kind, op) = (mpi_sys::RSMPI_UINT64_T, mpi_sys::RSMPI_MAX);
            call!(MPI_Allreduce(in_place(), address, 1, kind, op, self.handle))?;
        }
        Ok(most as usize)
    }

    /// Sends and receives at once. Returns when the receivers have begun to take all sent messages.
    pub(super) fn exchange(&self, view: &View, send: &[Message], receive: &[Message]) -> Result<(), Error> {
        let (kind, comm) = (datatype(view.dtype), self.handle);
        let mut requests = Vec::new();
        let mut expected = Vec::new();
        for Message { peer, range } in receive {
            for (start, count) in pieces(range.len) {
                // SAFETY: a piece of the range in the buffer (checked); MPI's use ends with the wait.
                unsafe {
                    let mut request = mpi_sys::RSMPI_REQUEST_NULL;
                    let into = view.at(range.start + start);
                    call!(MPI_Irecv(into, count, kind, peer.0 as c_int, TAG, comm, &mut request))?;
                    requests.push(request);
                }
                expected.push((*peer, count));
            }
        }
        for Message { peer, range } in send {
            for (start, count) in pieces(range.len) {
                // SAFETY: as above.
                unsafe {
                    let mut request = mpi_sys::RSMPI_REQUEST_NULL;
                    let from = view.at(range.start + start);
                    call!(MPI_Issend(from, count, kind, peer.0 as c_int, TAG, comm, &mut request))?;
                    requests.push(request);
                }
            }
        }
        // SAFETY: a status consists of numbers, for which zeros are valid.
        let mut statuses: Vec<MPI_Status> =
            vec![unsafe { MaybeUninit::zeroed().assume_init() }; requests.len()];
        let count = requests.len() as c_int;
        // SAFETY: as many statuses as requests.
        let waited = unsafe { call!(MPI_Waitall(count, requests.as_mut_ptr(), statuses.as_mut_ptr())) };
        if waited.is_err() {
            // The result of the call reports only that some request has failed.
            let pending = mpi_sys::MPI_ERR_PENDING as c_int;
            let failed = |status: &MPI_Status| ![0, pending].contains(&status.MPI_ERROR);
            if let Some(part) = statuses.iter().position(failed) {
                let message = match expected.get(part) {
                    Some((peer, count)) => format!("the message of {count} {} from {peer}", view.dtype),
                    None => "a message that was sent".into(),
                };
                check(&message, statuses[part].MPI_ERROR)?;
            }
            return waited;
        }
        expected
            .iter()
            .zip(&statuses)
            .try_for_each(|((peer, count), status)| self.complete(view, *peer, *count, status))
    }

    /// Checks the length of a received message, because MPI accepts a message that is too short.
    fn complete(&self, view: &View, peer: Rank, expected: c_int, status: &MPI_Status) -> Result<(), Error> {
        let mut count = 0;
        // SAFETY: the status of a message of that type.
        unsafe { call!(MPI_Get_count(status, datatype(view.dtype), &mut count))? };
        if count == expected {
            return Ok(());
        }
        let (here, dtype) = (self.rank, view.dtype);
        let call = |count: c_int| format!("exchange of {count} {dtype}");
        Err(Error::Mismatch { here, ours: call(expected), there: peer, theirs: call(count) })
    }

    pub(super) fn barrier(&self) -> Result<(), Error> {
        // SAFETY: the communicator is alive.
        unsafe { call!(MPI_Barrier(self.handle)) }
    }
}

/// Converts chunks to MPI's form: their lengths and their starts.
fn layout(ranges: &[Range]) -> (Vec<c_int>, Vec<c_int>) {
    let counts = ranges.iter().map(|range| range.len as c_int).collect();
    (counts, ranges.iter().map(|range| range.start as c_int).collect())
}
