//! Collectives that add.

use std::any::TypeId;
use std::ffi::{c_int, c_void};

use mpi_sys::MPI_Op;

use super::call::call;
use super::communicator::Communicator;
use super::extremes::Extremes;
use super::view::{MOST, datatype, in_place, pieces};
use kolo_comm::{Collective, Element, Number, backend};
use kolo_rendezvous::Error;
use kolo_schedule::tree::{self, Node};
use kolo_schedule::{Chunks, DType, Op, Range, Rank, ReadBlock, Readers};

impl Communicator {
    /// Runs a collective that adds, in the type of sums: 16-bit floats go through a copy in `f32`.
    pub(super) fn run_reduction<T: Element>(
        &self,
        collective: &Collective,
        data: &mut [T],
    ) -> Result<(), Error> {
        if TypeId::of::<T>() == TypeId::of::<T::Sum>() {
            // SAFETY: the two types are the same.
            let data = unsafe { std::slice::from_raw_parts_mut(data.as_mut_ptr().cast(), data.len()) };
            return self.combine::<T::Sum>(collective, data);
        }
        let mut wide = vec![T::Sum::default(); data.len()];
        T::widen(data, &mut wide);
        self.combine(collective, &mut wide)?;
        T::narrow(&wide, data);
        Ok(())
    }

    fn combine<S: Number>(&self, collective: &Collective, data: &mut [S]) -> Result<(), Error> {
        let op = collective.op();
        let result = match collective {
            Collective::TreeSum { contributions, len, readers } => {
                fold(contributions.of(self.rank), data, *len);
                let sum = &mut data[..*len];
                match readers {
                    Readers::All => self.all_reduce(sum, op)?,
                    Readers::Blocks(blocks) => self.reduce_to_readers(sum, op, blocks)?,
                }
                sum
            }
            Collective::ReduceScatter(_, chunks) => {
                let ranges = chunks.ranges(data.len(), self.world);
                self.reduce_scatter(data, op, chunks, &ranges)?;
                let own = ranges[self.rank.0];
                &mut data[own.start..][..own.len]
            }
            Collective::Reduce(_, root) => {
                self.reduce(data, op, *root)?;
                if self.rank == *root { data } else { &mut [] }
            }
            _ => {
                self.all_reduce(data, op)?;
                data
            }
        };
        if op == Op::Average {
            result.iter_mut().for_each(|value| *value = value.divide(self.world));
        }
        Ok(())
    }

    fn all_reduce<S: Number>(&self, data: &mut [S], op: Op) -> Result<(), Error> {
        let (kind, op) = (datatype(S::DTYPE), self.op(S::DTYPE, op));
        for (start, count) in pieces(data.len()) {
            let piece = data[start..].as_mut_ptr().cast();
            // SAFETY: the piece lies in `data`, whose elements are of that type.
            unsafe { call!(MPI_Allreduce(in_place(), piece, count, kind, op, self.handle))? };
        }
        Ok(())
    }

    fn reduce<S: Number>(&self, data: &mut [S], op: Op, root: Rank) -> Result<(), Error> {
        let (kind, op) = (datatype(S::DTYPE), self.op(S::DTYPE, op));
        // MPICH 4.0 and 4.1 read from the in-place address if the root is not rank 0 (their issue 6540).
        let copied = self.rank == root && root != Rank(0);
        let mut copy = Vec::new();
        for (start, count) in pieces(data.len()) {
            let piece = &mut data[start..][..count as usize];
            if copied {
                copy.clear();
                copy.extend_from_slice(piece);
            }
            let piece: *mut c_void = piece.as_mut_ptr().cast();
            let (from, into) = match (copied, self.rank == root) {
                (true, _) => (copy.as_ptr().cast(), piece),
                (false, true) => (in_place().cast_const(), piece),
                (false, false) => (piece.cast_const(), std::ptr::null_mut()),
            };
            // SAFETY: as above; only the root's `into` is used.
            unsafe { call!(MPI_Reduce(from, into, count, kind, op, root.0 as c_int, self.handle))? };
        }
        Ok(())
    }

    /// Reduces each block to its reader; MPI has no call for several readers, so then all ranks get it.
    fn reduce_to_readers<S: Number>(
        &self,
        mut sum: &mut [S],
        op: Op,
        blocks: &[ReadBlock],
    ) -> Result<(), Error> {
        for ReadBlock { len, readers } in blocks {
            let (block, rest) = sum.split_at_mut(*len);
            match **readers {
                [] => {}
                [reader] => self.reduce(block, op, reader)?,
                _ => self.all_reduce(block, op)?,
            }
            sum = rest;
        }
        Ok(())
    }

    /// Reduces, and leaves this rank's chunk in its place in `data`.
    fn reduce_scatter<S: Number>(
        &self,
        data: &mut [S],
        op: Op,
        chunks: &Chunks,
        ranges: &[Range],
    ) -> Result<(), Error> {
        if data.len() > MOST {
            let root = |(rank, range): (usize, &Range)| {
                self.reduce(&mut data[range.start..][..range.len], op, Rank(rank))
            };
            return ranges.iter().enumerate().try_for_each(root);
        }
        let (kind, op, comm) = (datatype(S::DTYPE), self.op(S::DTYPE, op), self.handle);
        let (own, start) = (ranges[self.rank.0], data.as_mut_ptr().cast());
        let counts: Vec<c_int> = ranges.iter().map(|range| range.len as c_int).collect();
        // SAFETY: `data` has as many elements as all chunks together, of that type.
        unsafe {
            match chunks {
                Chunks::Equal => {
                    call!(MPI_Reduce_scatter_block(in_place(), start, own.len as c_int, kind, op, comm))?;
                }
                Chunks::Varied(_) => {
                    call!(MPI_Reduce_scatter(in_place(), start, counts.as_ptr(), kind, op, comm))?;
                }
            }
        }
        // MPI puts the chunk at the start.
        data.copy_within(..own.len, own.start);
        Ok(())
    }

    fn op(&self, dtype: DType, op: Op) -> MPI_Op {
        let Extremes { max, min } = &self.library.extremes;
        // SAFETY: constants of the library.
        unsafe {
            match (op, dtype) {
                (Op::Sum | Op::Average, _) => mpi_sys::RSMPI_SUM,
                (Op::Product, _) => mpi_sys::RSMPI_PROD,
                (Op::Max, DType::F32) => max[0],
                (Op::Max, DType::F64) => max[1],
                (Op::Min, DType::F32) => min[0],
                (Op::Min, DType::F64) => min[1],
                (Op::Max, _) => mpi_sys::RSMPI_MAX,
                (Op::Min, _) => mpi_sys::RSMPI_MIN,
            }
        }
    }
}

/// Adds a rank's own parts in tree order; the sum is part 0. A rank without parts contributes zeros.
fn fold<S: Number>(nodes: &[Node], data: &mut [S], len: usize) {
    if nodes.is_empty() {
        return data[..len].fill(S::default());
    }
    let parts = data[..nodes.len() * len].as_mut_ptr();
    let sources: Vec<*const S> =
        (0..nodes.len()).map(|part| parts.wrapping_add(part * len).cast_const()).collect();
    // SAFETY: every part has `len` elements, and the result lies on the first of them.
    unsafe { backend::fold(parts, &sources, len, &tree::fold(nodes), Op::Sum, None) };
}
