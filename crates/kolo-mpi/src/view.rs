//! Buffers, types and lengths as MPI sees them.

use std::ffi::{c_int, c_void};

use kolo_schedule::DType;
use mpi_sys::MPI_Datatype;

/// A buffer as MPI sees it.
#[derive(Clone, Copy)]
pub(super) struct View {
    pub(super) start: *mut u8,
    pub(super) dtype: DType,
    pub(super) len: usize,
}

impl View {
    pub(super) fn at(&self, index: usize) -> *mut c_void {
        self.start.wrapping_add(index * self.dtype.size()).cast()
    }
}

/// MPI's type for moving elements. MPI never adds 16-bit floats, so any type of their size will do for them.
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

/// Value that stands for "in place". mpi-sys does not have it, because it is a macro. There are two
/// families: if handles are ints, the library is of MPICH's (also Intel's and Cray's), and the address is
/// -1; if they are pointers, it is of Open MPI's or of MPI 5's, and the address is 1.
pub(super) fn in_place() -> *mut c_void {
    const INTS: bool = size_of::<mpi_sys::MPI_Comm>() == size_of::<c_int>();
    std::ptr::without_provenance_mut(if INTS { usize::MAX } else { 1 })
}

/// Maximum number of elements of one call. MPI counts in ints, and some versions also count bytes in them.
pub(super) const MOST: usize = 1 << 27;

/// Cuts a length into pieces for one call each, as (first element, number of elements).
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
