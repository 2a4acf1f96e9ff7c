//! A communicator: MPI's name for a group of processes that exchange messages.

use std::ffi::c_int;
use std::sync::Arc;

use mpi_sys::{MPI_Comm, RSMPI_COMM_NULL};

use super::call::call;
use super::library::{self, Library};
use kolo_rendezvous::Error;
use kolo_schedule::Rank;

/// One rank's handle of a communicator.
pub(super) struct Communicator {
    pub(super) handle: MPI_Comm,
    pub(super) library: Arc<Library>,
    pub(super) rank: Rank,
    pub(super) world: usize,
}

// SAFETY: a handle is a name that any thread may use, see `Library`.
unsafe impl Send for Communicator {}

impl Communicator {
    /// Creates a communicator of all ranks of the job, separate from the program's other use of MPI.
    pub(super) fn of_job(library: Arc<Library>) -> Result<Self, Error> {
        let _serial = library.serialize();
        let handle = library::world()?;
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the communicator is alive, and so are the numbers to write to.
        unsafe {
            call!(MPI_Comm_rank(handle, &mut rank))?;
            call!(MPI_Comm_size(handle, &mut size))?;
        }
        let (rank, world) = (Rank(rank as usize), size as usize);
        Ok(Communicator { handle, library: library.clone(), rank, world })
    }

    /// Creates the communicator of `members`, in which this rank is `rank`. All ranks call it, for their
    /// groups.
    pub(super) fn split(&self, rank: Rank, members: &[Rank]) -> Result<Self, Error> {
        let _serial = self.library.serialize();
        let mut handle = self.handle;
        let (color, key) = (members[0].0 as c_int, rank.0 as c_int);
        // SAFETY: the communicator is alive, and so is the handle to write to. Error handlers are inherited.
        unsafe { call!(MPI_Comm_split(self.handle, color, key, &mut handle))? };
        Ok(Communicator { handle, library: self.library.clone(), rank, world: members.len() })
    }

    /// Returns the first rank that shares memory with this one.
    pub(super) fn first_of_node(&self) -> Result<Rank, Error> {
        let _serial = self.library.serialize();
        let mut first = self.rank.0 as c_int;
        // SAFETY: all handles are alive, and one number is broadcast from the node's first rank.
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
        let _serial = self.library.serialize();
        // SAFETY: unused from now on, and MPI still runs. After a failure `MPI_Finalize` frees it.
        let _ = unsafe { call!(MPI_Comm_free(&mut self.handle)) };
    }
}
