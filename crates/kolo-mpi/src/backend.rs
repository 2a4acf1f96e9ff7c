//! The MPI backend: maps collectives to MPI's functions.

use kolo_comm::backend::{Backend, Memory, WaitMode};
use kolo_comm::{Collective, with_type};
use kolo_rendezvous::Error;
use kolo_schedule::Rank;

use super::communicator::Communicator;
use super::view::View;

/// Collectives by MPI over one communicator.
pub(super) struct Mpi(pub(super) Communicator);

impl Backend for Mpi {
    fn run(&mut self, collective: &Collective, memory: &Memory<'_>, _: WaitMode) -> Result<(), Error> {
        let comm = &self.0;
        collective.check(comm.rank, comm.world, memory.elements)?;
        let _serial = comm.library.serialize();
        let view = View { start: memory.start().as_ptr(), dtype: memory.dtype, len: memory.elements };
        match collective {
            Collective::AllReduce(_)
            | Collective::TreeSum { .. }
            | Collective::ReduceScatter(..)
            | Collective::Reduce(..) => with_type!(memory.dtype, T => {
                // SAFETY: `memory` is exclusive and has that many elements; any bits are a valid `T`.
                let data = unsafe { std::slice::from_raw_parts_mut(view.start.cast::<T>(), view.len) };
                comm.run_reduction(collective, data)
            }),
            Collective::AllGather(chunks) => comm.all_gather(&view, chunks),
            Collective::Broadcast(root) => comm.broadcast(&view, *root),
            Collective::Gather(root) => comm.gather(&view, *root),
            Collective::Scatter(root) => comm.scatter(&view, *root),
            Collective::AllToAll { send, receive } => comm.all_to_all(&view, send, receive),
            Collective::Exchange { send, receive } => comm.exchange(&view, send, receive),
            Collective::Barrier => comm.barrier(),
        }
    }

    fn name(&self) -> &'static str {
        "mpi"
    }

    /// False: below `MPI_THREAD_MULTIPLE` threads take turns, and a blocking call keeps its turn.
    fn shares_the_wire(&self) -> bool {
        false
    }

    fn split(&mut self, rank: Rank, members: &[Rank]) -> Result<Box<dyn Backend>, Error> {
        Ok(Box::new(Mpi(self.0.split(rank, members)?)))
    }
}
