//! A communicator: what MPI calls a group that can talk.

use std::ffi::c_int;
use std::sync::Arc;

use mpi_sys::{MPI_Comm, RSMPI_COMM_NULL};

use super::library::{self, Library, call};
use kolo_rendezvous::Error;
use kolo_schedule::Rank;

pub(super) struct Communicator {
    pub(super) handle: MPI_Comm,
    pub(super) library: Arc<Library>,
}

// SAFETY: a handle is a name that any thread may use, see `Library`.
unsafe impl Send for Communicator {}

impl Communicator {
    /// All ranks of the job, apart from what else the program does with MPI.
    pub(super) fn of_job(library: Arc<Library>) -> Result<Self, Error> {
        let _turn = library.turn();
        let handle = library::world()?;
        Ok(Communicator { handle, library: library.clone() })
    }

    /// Ranks that give the same colour, ordered by key.
    pub(super) fn split(&self, colour: Rank, key: Rank) -> Result<Self, Error> {
        let _turn = self.library.turn();
        let mut handle = self.handle;
        // SAFETY: the communicator is alive, and so is the handle to write to. Error handlers are inherited.
        unsafe { call!(MPI_Comm_split(self.handle, colour.0 as c_int, key.0 as c_int, &mut handle))? };
        Ok(Communicator { handle, library: self.library.clone() })
    }

    pub(super) fn rank(&self) -> Result<Rank, Error> {
        let mut rank = 0;
        // SAFETY: as in `split`.
        unsafe { call!(MPI_Comm_rank(self.handle, &mut rank))? };
        Ok(Rank(rank as usize))
    }

    pub(super) fn size(&self) -> Result<usize, Error> {
        let mut size = 0;
        // SAFETY: as in `split`.
        unsafe { call!(MPI_Comm_size(self.handle, &mut size))? };
        Ok(size as usize)
    }

    /// The first rank that shares memory with this one.
    pub(super) fn first_of_node(&self) -> Result<Rank, Error> {
        let _turn = self.library.turn();
        let mut first = self.rank()?.0 as c_int;
        // SAFETY: all handles are alive, and one number is broadcast from rank 0 of the node, which is its first.
        unsafe {
            let mut node = RSMPI_COMM_NULL;
            let (kind, info) = (mpi_sys::RSMPI_COMM_TYPE_SHARED, mpi_sys::RSMPI_INFO_NULL);
            call!(MPI_Comm_split_type(self.handle, kind, 0, info, &mut node))?;
            let (number, int) = ((&raw mut first).cast(), mpi_sys::RSMPI_INT32_T);
            call!(MPI_Bcast(number, 1, int, 0, node))?;
            call!(MPI_Comm_free(&mut node))?;
        }
        Ok(Rank(first as usize))
    }
}

impl Drop for Communicator {
    fn drop(&mut self) {
        let _turn = self.library.turn();
        // SAFETY: nobody uses it any more, and the library is still running. A failure leaves it to MPI_Finalize.
        let _ = unsafe { call!(MPI_Comm_free(&mut self.handle)) };
    }
}
