//! The part of a group that its communication thread and its sub-groups share: it runs collectives one by
//! one, and latches the first failure.

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use crate::backend::Backend;
use crate::collective::Collective;
use crate::connect::StoreSession;
use kolo_rendezvous::{Error, Liveness, culprit};
use kolo_schedule::Rank;
use kolo_transport::{Buffer, Element, Memory, WaitMode};
use parking_lot::Mutex;

/// The origin of a group, which ties its ranks to each other.
pub(super) enum GroupOrigin {
    Alone,
    /// Threads of one process, of the given number, which share one [`Liveness`].
    Threads(usize),
    Store(Mutex<Option<StoreSession>>),
    /// A backend that formed the group by its own means, and its function that ends the job.
    Foreign(fn(&Error)),
    /// A sub-group, which lives and dies with the group it was split from.
    Within(Arc<Shared>),
}

/// State of a group.
pub(super) struct Shared {
    /// The job's rank of this process.
    pub(super) rank: Rank,
    pub(super) backend: Mutex<Box<dyn Backend>>,
    pub(super) liveness: Arc<Liveness>,
    /// Number of collectives that the communication thread has received and not finished.
    pub(super) queued: AtomicUsize,
    pub(super) origin: GroupOrigin,
}

impl Shared {
    /// Runs a collective to its end. After a failure every later collective fails in the same way.
    pub(super) fn run<T: Element>(
        &self,
        collective: &Collective,
        buffer: Buffer<T>,
        mode: WaitMode,
    ) -> Result<Buffer<T>, Error> {
        if let Some(error) = self.liveness.failure() {
            return Err(error);
        }
        // A peer may read the buffer until the collective is over, even if this function panics.
        let mut buffer = ManuallyDrop::new(buffer);
        let result = self.backend.lock().run(collective, &buffer.erased(), mode);
        match result {
            Ok(()) => Ok(ManuallyDrop::into_inner(buffer)),
            Err(error) if error.is_refusal() => {
                drop(ManuallyDrop::into_inner(buffer));
                Err(self.failed(error))
            }
            Err(error) => {
                // A peer that has not noticed the failure may still be reading. Another process reads
                // pages that it has mapped itself, so this buffer may be freed with the group. A thread,
                // or MPI, reads this very memory, so it is never used again.
                if self.is_of_processes() {
                    ManuallyDrop::into_inner(buffer).abandon()
                }
                Err(self.failed(error))
            }
        }
    }

    /// Runs a collective on memory that is no buffer's, as [`Shared::run`] does; false if the backend does
    /// not run on it.
    pub(super) fn run_on(
        &self,
        collective: &Collective,
        memory: Memory<'_>,
        mode: WaitMode,
    ) -> Result<bool, Error> {
        if let Some(error) = self.liveness.failure() {
            return Err(error);
        }
        // A thread would read this very memory after a failure.
        let memory = if self.is_of_processes() { memory } else { memory.into_slice() };
        let mut backend = self.backend.lock();
        let result = match backend.runs_on(collective, &memory) {
            Ok(true) => backend.run(collective, &memory, mode).map(|()| true),
            other => other,
        };
        drop(backend);
        result.map_err(|error| {
            if !error.is_refusal() {
                memory.leave_to_peers();
            }
            self.failed(error)
        })
    }

    fn is_of_processes(&self) -> bool {
        match &self.origin {
            GroupOrigin::Store(_) => true,
            GroupOrigin::Within(parent) => parent.is_of_processes(),
            GroupOrigin::Alone | GroupOrigin::Threads(_) | GroupOrigin::Foreign(_) => false,
        }
    }

    /// Latches a failure, reports it to the other ranks, and returns the failure that counts.
    ///
    /// An invalid call affects only its caller, because nothing has been sent.
    pub(super) fn failed(&self, error: Error) -> Error {
        if let GroupOrigin::Within(parent) = &self.origin {
            return parent.failed(error);
        }
        if let Some(first) = self.liveness.failure() {
            return first;
        }
        if error.is_refusal() {
            return error;
        }
        if error.is_of_this_process() {
            return self.failed_here(error);
        }
        let error = match (&self.origin, error) {
            (GroupOrigin::Store(session), error) => match &*session.lock() {
                Some(session) => session.watch.report(error, &self.liveness),
                None => error,
            },
            (GroupOrigin::Foreign(end), error @ Error::Abandoned { .. }) => {
                end(&error);
                error
            }
            (GroupOrigin::Threads(world), Error::Timeout { rank, during, waited }) => {
                let rank = culprit(rank, *world, |rank| self.liveness.waiting_for(rank));
                Error::Timeout { rank, during, waited }
            }
            (_, error) => error,
        };
        self.liveness.fail(error)
    }

    /// Latches a failure of this process. To the other ranks it reports that this rank has given up: they
    /// can go on without it, and must not take its failure for their own.
    fn failed_here(&self, error: Error) -> Error {
        let abandoned = Error::Abandoned { rank: self.rank, reason: error.to_string() };
        match &self.origin {
            GroupOrigin::Threads(_) => {
                self.liveness.fail(abandoned);
                error
            }
            GroupOrigin::Store(session) => {
                // Latch it before news from the other ranks arrive, because the first failure counts.
                let first = self.liveness.fail(error);
                if let Some(session) = &*session.lock() {
                    session.watch.report(abandoned, &self.liveness);
                }
                first
            }
            GroupOrigin::Alone | GroupOrigin::Foreign(_) | GroupOrigin::Within(_) => {
                self.liveness.fail(error)
            }
        }
    }
}
