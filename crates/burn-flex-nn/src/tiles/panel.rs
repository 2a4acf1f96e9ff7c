//! Second factor of the products: some columns of a matrix, packed row by row.

use std::cell::RefCell;
use std::ops::Range;

/// Number of rows and columns of a square that is transposed at once.
const PIECE: usize = 16;

/// Packed rows, each padded with zeros to whole vectors.
#[derive(Default)]
pub(crate) struct Panel {
    values: Vec<f32>,
    width: usize,
}

thread_local! {
    /// Reused panels; new ones would have to be cleared first.
    static SCRATCH: RefCell<Vec<Panel>> = RefCell::default();
}

impl Panel {
    pub(crate) fn take() -> Self {
        SCRATCH.with_borrow_mut(Vec::pop).unwrap_or_default()
    }

    pub(crate) fn give_back(self) {
        SCRATCH.with_borrow_mut(|panels| panels.push(self));
    }

    pub(crate) fn resize(&mut self, rows: usize, width: usize) {
        self.width = width;
        self.values.resize(rows * width, 0.0);
    }

    pub(crate) fn as_ptr(&self) -> *const f32 {
        self.values.as_ptr()
    }

    /// Returns some rows, side by side.
    pub(crate) fn rows(&self, at: usize, len: usize) -> &[f32] {
        &self.values[at * self.width..][..len * self.width]
    }

    /// Packs `columns` of the rows of a matrix, after the first `at` rows.
    #[inline(always)]
    pub(crate) fn pack<'a>(
        &mut self,
        at: usize,
        rows: impl Iterator<Item = &'a [f32]>,
        columns: Range<usize>,
    ) {
        let packed = &mut self.values[at * self.width..];
        match self.width {
            8 => pack_rows::<8>(packed, rows, columns),
            16 => pack_rows::<16>(packed, rows, columns),
            32 => pack_rows::<32>(packed, rows, columns),
            64 => pack_rows::<64>(packed, rows, columns),
            width => {
                let packed = packed.chunks_exact_mut(width).zip(rows);
                packed.for_each(|(packed, row)| copy_any(packed, &row[columns.clone()]));
            }
        }
    }

    /// Packs `columns` of the rows of a matrix in strips of `WIDTH`, one after the other. Each row is read at
    /// once.
    #[inline(always)]
    pub(crate) fn pack_strips<'a, const WIDTH: usize>(
        &mut self,
        rows: impl ExactSizeIterator<Item = &'a [f32]>,
        columns: Range<usize>,
    ) {
        let len = rows.len();
        self.resize(columns.len().div_ceil(WIDTH) * len, WIDTH);
        for (at, row) in rows.enumerate() {
            for (number, strip) in row[columns.clone()].chunks(WIDTH).enumerate() {
                copy::<WIDTH>(&mut self.values[(number * len + at) * WIDTH..][..WIDTH], strip);
            }
        }
    }

    /// Packs `columns` of a matrix given by its columns, after the first `at` rows.
    #[inline(always)]
    pub(crate) fn pack_transposed<'a>(
        &mut self,
        at: usize,
        columns: impl ExactSizeIterator<Item = &'a [f32]>,
    ) {
        let (width, len) = (self.width, columns.len());
        let mut rows = 0;
        let mut block: Vec<&[f32]> = Vec::with_capacity(PIECE);
        for (index, column) in columns.enumerate() {
            rows = column.len();
            block.push(column);
            if block.len() == PIECE || index + 1 == len {
                let first = index + 1 - block.len();
                transpose(&mut self.values[at * width + first..], width, &block);
                block.clear();
            }
        }
        if len < width {
            let packed = self.values[at * width..].chunks_exact_mut(width);
            packed.take(rows).for_each(|row| row[len..].fill(0.0));
        }
    }
}

#[inline(always)]
fn pack_rows<'a, const WIDTH: usize>(
    packed: &mut [f32],
    rows: impl Iterator<Item = &'a [f32]>,
    columns: Range<usize>,
) {
    for (packed, row) in packed.as_chunks_mut::<WIDTH>().0.iter_mut().zip(rows) {
        copy::<WIDTH>(packed, &row[columns.clone()]);
    }
}

/// Copies a row and fills the rest with zeros. A whole row of a known length is copied without a call.
#[inline(always)]
fn copy<const WIDTH: usize>(packed: &mut [f32], row: &[f32]) {
    match (packed.as_mut_array::<WIDTH>(), row.as_array::<WIDTH>()) {
        (Some(packed), Some(row)) => *packed = *row,
        _ => copy_any(packed, row),
    }
}

fn copy_any(packed: &mut [f32], row: &[f32]) {
    let (values, rest) = packed.split_at_mut(row.len());
    values.copy_from_slice(row);
    rest.fill(0.0);
}

/// Writes up to [`PIECE`] columns into rows that are `width` apart. Small squares keep it fast: columns may
/// be at a distance at which the cache holds only a few of them.
#[inline(always)]
fn transpose(into: &mut [f32], width: usize, columns: &[&[f32]]) {
    let rows = columns[0].len();
    let mut square = [[0.0; PIECE]; PIECE];
    for start in (0..rows).step_by(PIECE) {
        let end = rows.min(start + PIECE);
        for (line, column) in square.iter_mut().zip(columns) {
            match column[start..end].as_array() {
                Some(piece) => *line = *piece,
                None => line[..end - start].copy_from_slice(&column[start..end]),
            }
        }
        for row in start..end {
            let into = &mut into[row * width..row * width + columns.len()];
            let column: [f32; PIECE] = std::array::from_fn(|index| square[index][row - start]);
            match into.as_mut_array() {
                Some(into) => *into = column,
                None => into.copy_from_slice(&column[..columns.len()]),
            }
        }
    }
}

/// Cuts columns into panels of up to `most` vectors: the range of each, and the number of vectors per row.
pub(crate) fn panels(
    columns: usize,
    lanes: usize,
    most: usize,
) -> impl Iterator<Item = (Range<usize>, usize)> {
    (0..columns).step_by(most * lanes).map(move |start| {
        let end = columns.min(start + most * lanes);
        let vectors = (end - start).div_ceil(lanes);
        (start..end, if vectors > 2 { most } else { vectors })
    })
}
