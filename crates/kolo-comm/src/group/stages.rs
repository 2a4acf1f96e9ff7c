//! Collectives that belong together, with computation between them. They run one right after another on
//! the communication thread, so every rank runs them at the same place among its other collectives.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::Group;
use super::shared::Shared;
use crate::collective::Collective;
use crate::pending::{Pending, Timing};
use kolo_rendezvous::{Error, InvalidCall};
use kolo_schedule::Rank;
use kolo_transport::{Buffer, Element, Pool, WaitMode};

/// A group as the stages of [`Group::start_stages`] see it.
pub struct Stages {
    pub(super) shared: Arc<Shared>,
    pool: Arc<Pool>,
    rank: Rank,
    world: usize,
}

kolo_schedule::opaque_debug!(Stages { rank, world });

impl Stages {
    /// This rank's number in the group.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Number of ranks.
    pub fn world_size(&self) -> usize {
        self.world
    }

    /// Allocates a buffer of `len` zeros in the group's memory.
    ///
    /// # Errors
    ///
    /// The operating system has no more memory, or the length overflows.
    pub fn alloc<T: Element>(&self, len: usize) -> Result<Buffer<T>, Error> {
        Buffer::zeroed(&self.pool, len)
    }

    /// Runs a collective and returns the buffer. Fails as [`Group::run`] does.
    pub fn run<T: Element>(&self, collective: &Collective, buffer: Buffer<T>) -> Result<Buffer<T>, Error> {
        if !buffer.belongs_to(&self.pool) {
            return Err(InvalidCall::ForeignBuffer.into());
        }
        self.shared.run(collective, buffer, WaitMode::Background)
    }
}

impl Group {
    /// Starts several collectives as one on the communication thread, with computation between them. All
    /// ranks must start them at the same place among their collectives, and run the same collectives inside.
    ///
    /// # Errors
    ///
    /// [`Pending::wait`] returns the result of `stages`. A rank whose stages end with its own error must
    /// also end the group, or the other ranks wait for it until their deadline.
    pub fn start_stages<R: Send + 'static>(
        &self,
        stages: impl FnOnce(&Stages) -> Result<R, Error> + Send + 'static,
    ) -> Pending<R> {
        let (sender, pending) = Pending::new();
        let mut thread = self.comm_thread.lock();
        if let Err(error) = thread.ensure_started() {
            // The receiver is still in this function, so sending cannot fail.
            let _ = sender.send(Err(error));
            return pending;
        }
        let (shared, pool) = (self.shared.clone(), self.pool.clone());
        let group = Stages { shared, pool, rank: self.rank(), world: self.world_size() };
        group.shared.queued.fetch_add(1, Ordering::AcqRel);
        thread.submit(Box::new(move || {
            let started = Instant::now();
            let result = stages(&group);
            let timing = Timing { started, ended: Instant::now() };
            group.shared.queued.fetch_sub(1, Ordering::AcqRel);
            // Sending fails if the caller no longer waits for the result, which is harmless.
            let _ = sender.send(result.map(|result| (result, timing)));
        }));
        pending
    }
}
