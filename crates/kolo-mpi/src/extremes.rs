//! MPI operations defined by Kolo: maximum and minimum of floats, in which a NaN wins.

use std::ffi::{c_int, c_void};

use kolo_comm::Number;
use kolo_rendezvous::Error;
use mpi_sys::{MPI_Datatype, MPI_Op};

use super::call::call;

/// Maximum and minimum of floats (`f32`, `f64`), in which a NaN wins; MPI leaves that case undefined.
pub(super) struct Extremes {
    pub(super) max: [MPI_Op; 2],
    pub(super) min: [MPI_Op; 2],
}

impl Extremes {
    /// # Safety
    ///
    /// MPI must be running.
    pub(super) unsafe fn create() -> Result<Self, Error> {
        // SAFETY: the functions follow MPI's rules for them; the order of arguments does not matter.
        let create = |function: Combine| unsafe {
            let mut op = mpi_sys::RSMPI_SUM;
            call!(MPI_Op_create(Some(function), 1, &mut op)).map(|()| op)
        };
        let max = [create(larger::<f32>)?, create(larger::<f64>)?];
        Ok(Extremes { max, min: [create(smaller::<f32>)?, create(smaller::<f64>)?] })
    }

    /// # Safety
    ///
    /// Nothing may use the operations any more, and MPI must still be running.
    pub(super) unsafe fn free(&mut self) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        let free = |op: &mut MPI_Op| unsafe { call!(MPI_Op_free(op)) };
        self.max.iter_mut().chain(&mut self.min).try_for_each(free)
    }
}

type Combine = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut MPI_Datatype);

unsafe extern "C" fn larger<S: Number>(
    from: *mut c_void,
    into: *mut c_void,
    len: *mut c_int,
    _: *mut MPI_Datatype,
) {
    // SAFETY: the caller's promise.
    unsafe { each::<S>(from, into, len, S::larger) }
}

unsafe extern "C" fn smaller<S: Number>(
    from: *mut c_void,
    into: *mut c_void,
    len: *mut c_int,
    _: *mut MPI_Datatype,
) {
    // SAFETY: the caller's promise.
    unsafe { each::<S>(from, into, len, S::smaller) }
}

/// # Safety
///
/// MPI's promise to such a function: two arrays of `len` elements that do not overlap.
unsafe fn each<S: Number>(from: *mut c_void, into: *mut c_void, len: *mut c_int, pick: impl Fn(S, S) -> S) {
    // SAFETY: the caller's promise.
    let (from, into) = unsafe {
        let len = *len as usize;
        (
            std::slice::from_raw_parts(from.cast::<S>(), len),
            std::slice::from_raw_parts_mut(into.cast::<S>(), len),
        )
    };
    into.iter_mut().zip(from).for_each(|(into, from)| *into = pick(*into, *from));
}
