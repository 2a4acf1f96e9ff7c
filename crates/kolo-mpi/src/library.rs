//! The MPI library as a whole: started once, ended once, its error codes read.

use std::ffi::{CStr, c_char, c_int};
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use mpi_sys::{MPI_Comm, RSMPI_COMM_SELF, RSMPI_COMM_WORLD, RSMPI_ERRORS_RETURN};

use super::reductions::Extremes;
use kolo_rendezvous::Error;
use kolo_rendezvous::lock;

/// Calls an MPI function and turns its code into a result named after it.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::library::check(stringify!($function), mpi_sys::$function($($argument),*))
    };
}
pub(super) use call;

/// MPI, running in this process.
pub(super) struct Library {
    /// Who starts MPI ends it.
    owned: bool,
    /// Where the ranks take leave of each other.
    leave: MPI_Comm,
    /// How long they wait for each other there.
    patience: Duration,
    pub(super) extremes: Extremes,
    /// For a library that cannot serve several threads at once. Two groups must not be used at the same time then: one
    /// could wait inside of MPI for a rank that waits here.
    turn: Option<Mutex<()>>,
}

// SAFETY: MPI's handles are names that any thread may use: MPI_THREAD_SERIALIZED has been granted at least, and where it
// is not more, `turn` sees to it that threads take turns.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

enum Slot {
    Unused,
    Started { library: Weak<Library>, owned: bool },
}

static SLOT: Mutex<Slot> = Mutex::new(Slot::Unused);

/// The running library, started if need be.
pub(super) fn enter(patience: Duration) -> Result<Arc<Library>, Error> {
    let mut slot = lock(&SLOT);
    if let Slot::Started { library, owned } = &*slot {
        match library.upgrade() {
            Some(library) => return Ok(library),
            None if *owned => return Err(ended()),
            None => {}
        }
    }
    let library = Arc::new(Library::start(patience)?);
    *slot = Slot::Started { library: Arc::downgrade(&library), owned: library.owned };
    Ok(library)
}

fn ended() -> Error {
    let remedy = "keep the first group until the last one is done";
    Error::Invalid(format!("MPI has ended in this process and cannot be started again; {remedy}"))
}

impl Library {
    fn start(patience: Duration) -> Result<Library, Error> {
        let (mut initialised, mut finalised, mut level) = (0, 0, 0);
        // SAFETY: these may be called at any time; what they write to is alive. No other thread starts MPI meanwhile,
        // because the slot is locked. MPI_ERRORS_RETURN is what makes later codes mean anything.
        unsafe {
            call!(MPI_Initialized(&mut initialised))?;
            call!(MPI_Finalized(&mut finalised))?;
            if finalised != 0 {
                return Err(ended());
            }
            if initialised == 0 {
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
            let remedy = "build it with threads, or let Kolo start it";
            let problem = "this MPI takes calls from one thread only (below MPI_THREAD_SERIALIZED)";
            return Err(Error::Invalid(format!("{problem}; {remedy}")));
        }
        let turn = (level < multiple).then(Mutex::default);
        // SAFETY: MPI runs.
        let extremes = unsafe { Extremes::create()? };
        Ok(Library { owned: initialised == 0, leave: world()?, patience, extremes, turn })
    }

    /// Held during a call, where threads must not be in MPI at the same time.
    pub(super) fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        self.turn.as_ref().map(lock)
    }

    /// Waits until all ranks have come here. One that never comes is stuck where this rank was expected, and neither
    /// would ever know: MPI_Finalize has no timeout.
    fn take_leave(&self) -> Result<(), Error> {
        const LONGEST_NAP: Duration = Duration::from_millis(10);
        let deadline = Instant::now() + self.patience;
        let mut nap = Duration::from_micros(50);
        let mut over = 0;
        // SAFETY: MPI runs, the communicator is this library's own, and the request is used here alone.
        unsafe {
            let mut request = mpi_sys::RSMPI_REQUEST_NULL;
            call!(MPI_Ibarrier(self.leave, &mut request))?;
            loop {
                call!(MPI_Test(&mut request, &mut over, mpi_sys::RSMPI_STATUS_IGNORE))?;
                if over != 0 {
                    return Ok(());
                }
                if Instant::now() >= deadline {
                    let waited = self.patience;
                    let remedy =
                        "all ranks must make the same calls; raise KOLO_TIMEOUT if they are merely slow";
                    abort(&format!("this rank is done, but others are not after {waited:?}; {remedy}"));
                }
                std::thread::sleep(nap);
                nap = (2 * nap).min(LONGEST_NAP);
            }
        }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        // SAFETY: nobody holds the library any more, so nobody calls MPI after this.
        let mut end = || unsafe {
            self.take_leave()?;
            call!(MPI_Comm_free(&mut self.leave))?;
            self.extremes.free()?;
            call!(MPI_Finalize())
        };
        if let Err(error) = end() {
            abort(&error.to_string());
        }
    }
}

/// A communicator of all ranks that is nobody else's.
pub(super) fn world() -> Result<MPI_Comm, Error> {
    // SAFETY: MPI runs, and the handle to write to is alive.
    unsafe {
        let mut handle = mpi_sys::RSMPI_COMM_NULL;
        call!(MPI_Comm_dup(RSMPI_COMM_WORLD, &mut handle))?;
        call!(MPI_Comm_set_errhandler(handle, RSMPI_ERRORS_RETURN))?;
        Ok(handle)
    }
}

/// Ends all processes of the job, this one included, and says why.
pub(super) fn abort(why: &str) {
    // A launcher that ends the job throws away what it has not read yet.
    const TO_BE_READ: Duration = Duration::from_millis(100);
    let mut rank = 0;
    // SAFETY: MPI runs. Another thread may be inside of MPI at this moment; whatever that breaks ends here.
    unsafe {
        mpi_sys::MPI_Comm_rank(RSMPI_COMM_WORLD, &mut rank);
        // In one piece, among what other ranks say. Who cannot write must still end.
        let words = format!("error: rank {rank} ends the job: {why}\n");
        let _ = std::io::stderr().write_all(words.as_bytes());
        std::thread::sleep(TO_BE_READ);
        mpi_sys::MPI_Abort(RSMPI_COMM_WORLD, 1);
    }
}

/// What a code of MPI means.
pub(super) fn check(what: &str, code: c_int) -> Result<(), Error> {
    if code == mpi_sys::MPI_SUCCESS as c_int {
        return Ok(());
    }
    // SAFETY: the text fits, as MPI defines the constant.
    let text = unsafe { text(|start, len| mpi_sys::MPI_Error_string(code, start, len)) };
    let text = text.unwrap_or_else(|| format!("code {code}"));
    // MPICH's texts go on with who called whom inside of it.
    let sentence = text.lines().next().unwrap_or_default().trim_end_matches(", error stack:");
    Err(Error::system(format!("{what} failed"), sentence))
}

pub(super) fn version() -> Result<String, Error> {
    // SAFETY: may be called before MPI is started; the text fits, as MPI defines the constant.
    let text = unsafe { text(|start, len| mpi_sys::MPI_Get_library_version(start, len)) };
    text.ok_or_else(|| Error::system("MPI_Get_library_version failed", "it does not say why"))
}

/// A text that MPI writes.
///
/// # Safety
///
/// `write` must write a C string of at most MPI_MAX_LIBRARY_VERSION_STRING bytes.
unsafe fn text(write: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> Option<String> {
    // Longer than any text of any MPI.
    const LONGEST: usize = 64 * 1024;
    let (mut text, mut len): (Vec<c_char>, c_int) = (vec![0; LONGEST], 0);
    if write(text.as_mut_ptr(), &mut len) != mpi_sys::MPI_SUCCESS as c_int {
        return None;
    }
    // SAFETY: MPI ends its texts with a zero.
    Some(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
}
