//! The MPI library as a whole: started once, ended once.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use kolo_rendezvous::{BackendError, Error};
use mpi_sys::{MPI_Comm, RSMPI_COMM_SELF, RSMPI_COMM_WORLD, RSMPI_ERRORS_RETURN};
use parking_lot::{Mutex, MutexGuard};

use super::call::{abort, call};
use super::extremes::Extremes;

/// MPI, running in this process.
pub(super) struct Library {
    /// True if Kolo has started MPI and thus ends it.
    owned: bool,
    /// Communicator of the barrier at the end.
    leave: MPI_Comm,
    /// Longest time that the ranks wait for each other there.
    timeout: Duration,
    pub(super) extremes: Extremes,
    /// Lock for a library that cannot serve several threads at once. Two groups must not be used at the
    /// same time then: one could wait inside MPI for a rank that waits for this lock.
    serial: Option<Mutex<()>>,
}

// SAFETY: MPI's handles are names that any thread may use: at least `MPI_THREAD_SERIALIZED` has been
// granted, and if it is not more, `serial` makes threads take turns.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

enum Slot {
    Unused,
    Started { library: Weak<Library>, owned: bool },
}

static SLOT: Mutex<Slot> = Mutex::new(Slot::Unused);

/// Returns the running library; starts it if necessary.
pub(super) fn enter(timeout: Duration) -> Result<Arc<Library>, Error> {
    let mut slot = SLOT.lock();
    if let Slot::Started { library, owned } = &*slot {
        match library.upgrade() {
            Some(library) => return Ok(library),
            None if *owned => return Err(ended()),
            None => {}
        }
    }
    let library = Arc::new(Library::start(timeout)?);
    *slot = Slot::Started { library: Arc::downgrade(&library), owned: library.owned };
    Ok(library)
}

fn ended() -> Error {
    BackendError::Ended { backend: "MPI".into() }.into()
}

impl Library {
    fn start(timeout: Duration) -> Result<Library, Error> {
        let (mut initialized, mut finalized, mut level) = (0, 0, 0);
        // SAFETY: these may be called at any time, and the variables that they write to are alive. No
        // other thread starts MPI meanwhile, because the slot is locked. `MPI_ERRORS_RETURN` makes later
        // calls return their codes.
        unsafe {
            call!(MPI_Initialized(&mut initialized))?;
            call!(MPI_Finalized(&mut finalized))?;
            if finalized != 0 {
                return Err(ended());
            }
            if initialized == 0 {
                let (none, wanted) = (std::ptr::null_mut(), mpi_sys::RSMPI_THREAD_MULTIPLE);
                call!(MPI_Init_thread(none, std::ptr::null_mut(), wanted, &mut level))?;
                call!(MPI_Comm_set_errhandler(RSMPI_COMM_WORLD, RSMPI_ERRORS_RETURN))?;
                call!(MPI_Comm_set_errhandler(RSMPI_COMM_SELF, RSMPI_ERRORS_RETURN))?;
            } else {
                call!(MPI_Query_thread(&mut level))?;
            }
        }
        // SAFETY: constants.
        let (serial, multiple) =
            unsafe { (mpi_sys::RSMPI_THREAD_SERIALIZED, mpi_sys::RSMPI_THREAD_MULTIPLE) };
        if level < serial {
            let problem = "this MPI takes calls from one thread only (below MPI_THREAD_SERIALIZED)";
            return Err(Error::system(problem, "build it with threads, or let Kolo start it"));
        }
        let serial = (level < multiple).then(Mutex::default);
        // SAFETY: MPI runs.
        let extremes = unsafe { Extremes::create()? };
        Ok(Library { owned: initialized == 0, leave: world()?, timeout, extremes, serial })
    }

    /// Returns a guard to hold during a call, if threads must not be in MPI at the same time.
    pub(super) fn serialize(&self) -> Option<MutexGuard<'_, ()>> {
        self.serial.as_ref().map(Mutex::lock)
    }

    /// Waits until all ranks have come here. A rank that never comes is stuck in a call that this rank
    /// has not made. Without this wait neither would ever notice, because `MPI_Finalize` has no timeout.
    fn await_others(&self) -> Result<(), Error> {
        const LONGEST_SLEEP: Duration = Duration::from_millis(10);
        let deadline = Instant::now() + self.timeout;
        let mut sleep = Duration::from_micros(50);
        let mut over = 0;
        // SAFETY: MPI runs, the communicator is this library's own, and only this function uses the request.
        unsafe {
            let mut request = mpi_sys::RSMPI_REQUEST_NULL;
            call!(MPI_Ibarrier(self.leave, &mut request))?;
            loop {
                call!(MPI_Test(&mut request, &mut over, mpi_sys::RSMPI_STATUS_IGNORE))?;
                if over != 0 {
                    return Ok(());
                }
                if Instant::now() >= deadline {
                    let waited = self.timeout;
                    let remedy =
                        "all ranks must make the same calls; raise KOLO_TIMEOUT if they are merely slow";
                    abort(&format!("this rank is done, but others are not after {waited:?}; {remedy}"));
                }
                std::thread::sleep(sleep);
                sleep = (2 * sleep).min(LONGEST_SLEEP);
            }
        }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // Nobody enters the library anew meanwhile.
        let _slot = SLOT.lock();
        // SAFETY: nothing holds the library any more, so nothing of Kolo calls MPI meanwhile. A program that
        // has started MPI itself may have ended it, and with it what Kolo has created.
        let mut end = || unsafe {
            let mut finalized = 0;
            call!(MPI_Finalized(&mut finalized))?;
            if finalized != 0 {
                return Ok(());
            }
            if self.owned {
                self.await_others()?;
            }
            call!(MPI_Comm_free(&mut self.leave))?;
            self.extremes.free()?;
            if self.owned { call!(MPI_Finalize()) } else { Ok(()) }
        };
        // A program that has started MPI itself frees the rest when it ends MPI.
        if let (Err(error), true) = (end(), self.owned) {
            abort(&error.to_string());
        }
    }
}

/// Creates a communicator of all ranks that only this crate uses.
pub(super) fn world() -> Result<MPI_Comm, Error> {
    // SAFETY: MPI runs, and the handle to write to is alive.
    unsafe {
        let mut handle = mpi_sys::RSMPI_COMM_NULL;
        call!(MPI_Comm_dup(RSMPI_COMM_WORLD, &mut handle))?;
        call!(MPI_Comm_set_errhandler(handle, RSMPI_ERRORS_RETURN))?;
        Ok(handle)
    }
}
