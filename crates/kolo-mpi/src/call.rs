//! Calls of MPI's functions, their codes and texts, and the end of a job.

use std::ffi::{CStr, c_char, c_int};
use std::io::Write;
use std::time::Duration;

use kolo_rendezvous::Error;
use mpi_sys::RSMPI_COMM_WORLD;

/// Calls an MPI function and turns its code into a result named after the function.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::call::check(stringify!($function), mpi_sys::$function($($argument),*))
    };
}
pub(super) use call;

/// Turns MPI's code for `what` into a result.
pub(super) fn check(what: &str, code: c_int) -> Result<(), Error> {
    if code == mpi_sys::MPI_SUCCESS as c_int {
        return Ok(());
    }
    // SAFETY: the text fits, as MPI defines the constant.
    let text = unsafe { text(|start, len| mpi_sys::MPI_Error_string(code, start, len)) };
    let text = text.unwrap_or_else(|| format!("code {code}"));
    // MPICH's texts go on with a stack of its own calls.
    let sentence = text.lines().next().unwrap_or_default().trim_end_matches(", error stack:");
    Err(Error::system(format!("{what} failed"), sentence))
}

pub(super) fn version() -> Result<String, Error> {
    // SAFETY: may be called before MPI is started; the text fits, as MPI defines the constant.
    let text = unsafe { text(|start, len| mpi_sys::MPI_Get_library_version(start, len)) };
    text.ok_or_else(|| Error::system("MPI_Get_library_version failed", "it does not say why"))
}

/// Returns a text that MPI writes.
///
/// # Safety
///
/// `write` must write a C string of at most `MPI_MAX_LIBRARY_VERSION_STRING` bytes.
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

/// Ends all processes of the job, this one included, and prints the reason.
pub(super) fn abort(why: &str) {
    // A launcher that ends the job discards output that it has not read yet.
    const TO_BE_READ: Duration = Duration::from_millis(100);
    let mut rank = 0;
    // SAFETY: MPI runs. Another thread may be inside MPI now, but any damage ends with the process.
    unsafe {
        mpi_sys::MPI_Comm_rank(RSMPI_COMM_WORLD, &mut rank);
        // One write keeps the line whole among other ranks' output. A failed write must not prevent the end.
        let line = format!("error: rank {rank} ends the job: {why}\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
        std::thread::sleep(TO_BE_READ);
        mpi_sys::MPI_Abort(RSMPI_COMM_WORLD, 1);
    }
}
