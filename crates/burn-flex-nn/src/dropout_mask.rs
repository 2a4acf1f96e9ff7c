//! Masks of dropout, one bit for each element: a mask is drawn once, and both passes read it from the cache.

use crate::lanes::vectorized;

/// Bits of a word.
const BITS: usize = u16::BITS as usize;

/// Elements that a dropout keeps, row by row, and the factor of what it keeps.
#[derive(Clone, Debug)]
pub struct DropoutMask {
    /// Bits of the rows, each of which begins a word; the lowest bit comes first.
    words: Vec<u16>,
    rows: usize,
    columns: usize,
    scale: f32,
}

impl DropoutMask {
    /// Draws a mask. For each row, `row` returns the number of first columns that are drawn, and a function
    /// that returns true for each of them that is kept. All others are dropped.
    ///
    /// # Panics
    ///
    /// Panics if more columns are to be drawn than there are.
    pub fn draw<K: Fn(usize) -> bool>(
        rows: usize,
        columns: usize,
        scale: f32,
        row: impl Fn(usize) -> (usize, K),
    ) -> Self {
        let mut words = vec![0; rows * columns.div_ceil(BITS)];
        vectorized(
            #[inline(always)]
            || {
                let mut kept = vec![0; columns.next_multiple_of(BITS)];
                let lines = words.chunks_exact_mut(columns.div_ceil(BITS).max(1));
                for (words, (drawn, is_kept)) in lines.zip((0..rows).map(&row)) {
                    assert!(drawn <= columns, "{drawn} elements of a row of {columns}");
                    let (first, rest) = kept.split_at_mut(drawn);
                    first.iter_mut().enumerate().for_each(|(column, kept)| *kept = u8::from(is_kept(column)));
                    rest.fill(0);
                    for (word, kept) in words.iter_mut().zip(kept.as_chunks::<8>().0.as_chunks::<2>().0) {
                        *word = u16::from_le_bytes(kept.map(bits));
                    }
                }
            },
        );
        DropoutMask { words, rows, columns, scale }
    }

    /// Returns the numbers of rows and columns.
    pub fn dims(&self) -> [usize; 2] {
        [self.rows, self.columns]
    }

    /// Returns the factors of all elements, row by row: 0 for what is dropped.
    pub fn factors(&self) -> Vec<f32> {
        let mut factors = vec![1.0; self.rows * self.columns];
        self.multiply_all(&mut factors);
        factors
    }

    /// Multiplies all elements by their factors.
    pub(crate) fn multiply_all(&self, values: &mut [f32]) {
        vectorized(
            #[inline(always)]
            || {
                let rows = values.chunks_exact_mut(self.columns.max(1));
                rows.enumerate().for_each(|(row, values)| self.multiply(row, 0, values));
            },
        );
    }

    /// Multiplies some elements of a row, from a column on, by their factors.
    #[inline(always)]
    pub(crate) fn multiply(&self, row: usize, first: usize, values: &mut [f32]) {
        let len = self.columns.div_ceil(BITS);
        let words = &self.words[row * len..][..len];
        if first % BITS > 0 {
            for (column, value) in (first..).zip(values) {
                *value *= self.factor(words[column / BITS], column % BITS);
            }
            return;
        }
        let words = &words[first / BITS..];
        let (chunks, rest) = values.as_chunks_mut::<BITS>();
        for (chunk, word) in chunks.iter_mut().zip(words) {
            for bit in 0..BITS {
                chunk[bit] *= self.factor(*word, bit);
            }
        }
        for (bit, value) in rest.iter_mut().enumerate() {
            *value *= self.factor(words[chunks.len()], bit);
        }
    }

    #[inline(always)]
    fn factor(&self, word: u16, bit: usize) -> f32 {
        if (u32::from(word) >> bit) & 1 == 1 { self.scale } else { 0.0 }
    }
}

/// Returns a byte whose bit n is that of the byte n, each of which is 0 or 1.
#[inline(always)]
fn bits(bytes: [u8; 8]) -> u8 {
    // Moves the bit of byte n from place 8 n to place 56 + n. No two products meet in one place.
    (u64::from_le_bytes(bytes).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_kept(row: usize, column: usize) -> bool {
        (row * 31 + column * 7) % 5 > 1
    }

    #[test]
    fn every_element_has_its_factor() {
        for columns in [1, 15, 16, 17, 40, 64] {
            let drawn = |row: usize| columns.min(3 * row);
            let mask =
                DropoutMask::draw(9, columns, 1.25, |row| (drawn(row), move |column| is_kept(row, column)));
            let factors = mask.factors();
            assert_eq!((mask.dims(), factors.len()), ([9, columns], 9 * columns));
            for (index, factor) in factors.iter().enumerate() {
                let (row, column) = (index / columns, index % columns);
                let kept = column < drawn(row) && is_kept(row, column);
                assert_eq!(*factor, if kept { 1.25 } else { 0.0 }, "{row}, {column} of {columns}");
            }
            // From any column on.
            for first in 0..columns {
                let mut values = vec![2.0; columns - first];
                mask.multiply(8, first, &mut values);
                let expected = factors[8 * columns + first..].iter().map(|factor| 2.0 * factor);
                assert_eq!(values, expected.collect::<Vec<f32>>(), "{first} of {columns}");
            }
        }
        assert!(DropoutMask::draw(3, 0, 1.0, |_| (0, |_| true)).factors().is_empty());
    }

    #[test]
    fn what_is_not_finite_stays() {
        let mask = DropoutMask::draw(1, 2, 2.0, |_| (2, |column| column == 0));
        let mut values = [f32::INFINITY; 2];
        mask.multiply(0, 0, &mut values);
        assert!(values[0] == f32::INFINITY && values[1].is_nan());
    }
}
