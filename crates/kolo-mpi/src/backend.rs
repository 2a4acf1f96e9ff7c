//! The MPI backend: which function does which collective.

use std::ffi::{c_int, c_void};

use mpi_sys::MPI_Datatype;

use super::communicator::Communicator;
use kolo_comm::Collective;
use kolo_comm::backend::Backend;
use kolo_comm::backend::Memory;
use kolo_comm::backend::WaitMode;
use kolo_comm::with_type;
use kolo_rendezvous::Error;
use kolo_schedule::DType;
use kolo_schedule::Rank;

pub(super) struct Mpi {
    pub(super) comm: Communicator,
    pub(super) rank: Rank,
    pub(super) world: usize,
}

impl Mpi {
    pub(super) fn new(comm: Communicator, rank: Rank, world: usize) -> Self {
        Mpi { comm, rank, world }
    }
}

impl Backend for Mpi {
    fn run(&mut self, collective: &Collective, memory: &Memory<'_>, _: WaitMode) -> Result<(), Error> {
        collective.check(self.rank, self.world, memory.elements)?;
        let _turn = self.comm.library.turn();
        let view = View { start: memory.start().as_ptr(), dtype: memory.dtype, len: memory.elements };
        match collective {
            Collective::AllReduce(_)
            | Collective::TreeSum { .. }
            | Collective::ReduceScatter(..)
            | Collective::Reduce(..) => with_type!(memory.dtype, T => {
                // SAFETY: `memory` is held exclusively, and its block has that many elements, whose bits are all a T.
                let data = unsafe { std::slice::from_raw_parts_mut(view.start.cast::<T>(), view.len) };
                self.sums(collective, data)
            }),
            Collective::AllGather(chunks) => self.all_gather(&view, chunks),
            Collective::Broadcast(root) => self.broadcast(&view, *root),
            Collective::Gather(root) => self.gather(&view, *root),
            Collective::Scatter(root) => self.scatter(&view, *root),
            Collective::AllToAll { send, receive } => self.all_to_all(&view, send, receive),
            Collective::Exchange { send, receive } => self.exchange(&view, send, receive),
            Collective::Barrier => self.barrier(),
        }
    }

    fn name(&self) -> &'static str {
        "mpi"
    }

    fn split(&mut self, rank: Rank, members: &[Rank]) -> Result<Box<dyn Backend>, Error> {
        let comm = self.comm.split(members[0], rank)?;
        Ok(Box::new(Mpi::new(comm, rank, members.len())))
    }
}

/// A buffer as MPI sees it.
#[derive(Clone, Copy)]
pub(super) struct View {
    pub(super) start: *mut u8,
    pub(super) dtype: DType,
    pub(super) len: usize,
}

impl View {
    /// The address of an element.
    pub(super) fn at(&self, index: usize) -> *mut c_void {
        self.start.wrapping_add(index * self.dtype.size()).cast()
    }
}

/// The type by which elements are moved. Nothing is added in 16-bit floats, so any type of their size will do for them.
pub(super) fn datatype(dtype: DType) -> MPI_Datatype {
    // SAFETY: constants of the library.
    unsafe {
        match dtype {
            DType::F32 => mpi_sys::RSMPI_FLOAT,
            DType::F64 => mpi_sys::RSMPI_DOUBLE,
            DType::I32 => mpi_sys::RSMPI_INT32_T,
            DType::I64 => mpi_sys::RSMPI_INT64_T,
            DType::U8 => mpi_sys::RSMPI_UINT8_T,
            DType::F16 | DType::Bf16 => mpi_sys::RSMPI_UINT16_T,
        }
    }
}

/// What stands for "from where the result goes". mpi-sys does not have it, because it is a macro. There are two families:
/// where handles are ints it is that of MPICH (also Intel's and Cray's), and the address is -1; where they are pointers
/// it is that of Open MPI and of MPI 5, and the address is 1.
pub(super) fn in_place() -> *mut c_void {
    const INTS: bool = size_of::<mpi_sys::MPI_Comm>() == size_of::<c_int>();
    std::ptr::without_provenance_mut(if INTS { usize::MAX } else { 1 })
}

/// The most elements of one call. MPI counts in ints, and some versions count bytes in them, too.
pub(super) const MOST: usize = 1 << 27;

/// Cuts a length into what one call takes, as (first element, number of elements).
pub(super) fn pieces(len: usize) -> impl Iterator<Item = (usize, c_int)> {
    (0..len).step_by(MOST).map(move |start| (start, MOST.min(len - start) as c_int))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_any_length() {
        assert_eq!(pieces(0).count(), 0);
        assert_eq!(pieces(MOST).collect::<Vec<_>>(), [(0, MOST as c_int)]);
        let long = i32::MAX as usize + 5;
        assert_eq!(pieces(long).map(|(_, count)| count as usize).sum::<usize>(), long);
        assert_eq!(pieces(long).last(), Some((16 * MOST, 4)));
    }
}
